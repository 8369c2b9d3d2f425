"""POST /oauth2/v1/global-token-revocation over HTTP: another system revokes everything of a user."""

import io
import json
from dataclasses import replace

import httpx2
import msgspec
import pytest
import redis

from service.observability.audit import GROUPS
from service.protocol.provider import IdentityProvider
from service.protocol.user import User, identify_user
from service.worker import Worker
from tests.conftest import make_code
from tests.support.browser import SESSIONS, Browser, authorization_url, is_login_page
from tests.support.clients_and_users import (
    ALICE,
    BACK_OFFICE,
    BOB,
    GATEWAY,
    GLOBAL_REVOCATION,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    assert_error,
    is_live,
    name_subject,
    revoke_user,
    tokens_of,
)
from tests.support.events import events_of

BASE_URL = "http://127.0.0.1:8000"
ISSUER = "https://login.example.org/"
SUBJECT = identify_user("main", ALICE.username).digest
CAROL = UserCredentials("248289761001", "", "cep")
LIMIT = 64 * 1024
BODY = json.dumps({"sub_id": name_subject(SUBJECT)}).encode()
JSON = {"Content-Type": "application/json"}


def by_issuer(iss: str, sub: str) -> dict[str, str]:
    return {"format": "iss_sub", "iss": iss, "sub": sub}


def by_email(email: str) -> dict[str, str]:
    return {"format": "email", "email": email}


def assert_done(response: httpx2.Response) -> None:
    assert (response.status_code, response.content) == (204, b""), response.text
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert "content-type" not in response.headers


async def post(
    http: httpx2.AsyncClient, body: bytes, client: OAuthClient = BACK_OFFICE, query: str = "", **headers: str
) -> httpx2.Response:
    sent = client.basic | JSON | {name.replace("_", "-"): value for name, value in headers.items()}
    return await http.post(GLOBAL_REVOCATION + query, content=body, headers=sent)


async def put_cep(worker: Worker, *, issuer: str = ISSUER, username_claim: str = "sub") -> None:
    provider = IdentityProvider(
        client_id="token-service",
        issuer=issuer,
        authorization_endpoint="https://login.example.org/authorize",
        token_endpoint="https://login.example.org/token",
        jwks_uri="https://login.example.org/keys",
        username_claim=username_claim,
        default_roles=("enduser",),
    )
    await worker.registry.realms.put("cep", provider)


async def log_carol_in(http: httpx2.AsyncClient, worker: Worker) -> str:
    """Return an access token of a user whom the registry does not list."""
    code = await make_code(worker, CAROL, scope="realm:cep role:enduser")
    return tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["access_token"]


@pytest.mark.clause("9493-3.2.2-email", "9493-3.2.3-issuer-and-subject", "9493-3.2.4-opaque")
@pytest.mark.clause("decided-global-revocation-covers", "decided-i7-revocation-is-final")
@pytest.mark.parametrize(
    "sub_id",
    [
        pytest.param(name_subject(SUBJECT), id="opaque"),
        pytest.param(by_issuer(BASE_URL, SUBJECT), id="iss_sub"),
        pytest.param(by_email(ALICE.username), id="email"),
        pytest.param(by_email(" ALICE@Example.com\u200b"), id="email as typed"),
    ],
)
async def test_everything_of_the_user_ends(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, sub_id: dict[str, str]
) -> None:
    sessions = [(client, tokens_of(await client.log_in(http, ALICE))) for client in (PHONE_APP, WEB_SHOP, MADE_SECRET)]
    of_bob = tokens_of(await PHONE_APP.log_in(http, BOB))
    code, browser = await make_code(worker), Browser(http)
    consent_page = await browser.open_consent_page(authorization_url())

    assert_done(await revoke_user(http, sub_id))

    for client, tokens in sessions:
        assert not is_live(store, tokens["access_token"])
        assert_error(await client.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert (await browser.allow(consent_page)).status_code == 403
    assert is_login_page(await browser.open(SESSIONS))
    assert is_live(store, of_bob["access_token"])
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    assert_done(await revoke_user(http, sub_id))


@pytest.mark.clause("9493-3.2.3-issuer-and-subject", "decided-global-revocation-issuers")
async def test_an_issuer_names_the_users_of_its_realm(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    await put_cep(worker)
    tokens = [await log_carol_in(http, worker) for _ in range(2)]
    of_alice = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    assert_done(await revoke_user(http, by_issuer(ISSUER, CAROL.username.upper() + " ")))
    assert_done(await revoke_user(http, by_issuer(BASE_URL, CAROL.username)))
    assert all(is_live(store, token) for token in tokens)
    assert_done(await revoke_user(http, by_issuer(ISSUER, CAROL.username)))

    assert not any(is_live(store, token) for token in tokens)
    assert is_live(store, of_alice)


@pytest.mark.clause("decided-global-revocation-issuers")
@pytest.mark.parametrize("iss", [ISSUER.rstrip("/"), ISSUER.upper(), BASE_URL + "/", "https://other.example", "main"])
async def test_another_issuer_is_invalid_request(http: httpx2.AsyncClient, worker: Worker, iss: str) -> None:
    await put_cep(worker)

    assert_error(await revoke_user(http, by_issuer(iss, SUBJECT)), 400, "invalid_request")


@pytest.mark.clause("decided-global-revocation-issuers")
@pytest.mark.parametrize(("issuer", "username_claim"), [(ISSUER, "email"), (ISSUER, "oid"), ("", "sub")])
async def test_only_issuers_of_subjects_count(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, issuer: str, username_claim: str
) -> None:
    """A user who is known by another claim could be another person than the one of this `sub`."""
    await put_cep(worker, issuer=issuer, username_claim=username_claim)
    token = await log_carol_in(http, worker)

    assert_error(await revoke_user(http, by_issuer(issuer, CAROL.username)), 400, "invalid_request")
    assert is_live(store, token)


@pytest.mark.clause("decided-global-revocation-unknown-user")
@pytest.mark.parametrize(
    "sub_id",
    [
        pytest.param(name_subject(identify_user("main", "nobody").digest), id="a subject of nobody"),
        pytest.param(
            name_subject(User(realm="cep", username="x").subject[:-1] + "B"), id="another spelling of a subject"
        ),
        pytest.param(name_subject(SUBJECT + "\n"), id="a line end"),
        pytest.param(name_subject(f"{SUBJECT[:3]}}}:x"), id="a hash tag"),
        pytest.param(name_subject("x" * 60_000), id="a long text"),
        pytest.param(by_issuer(BASE_URL, ALICE.username), id="a name as subject"),
        pytest.param(by_issuer(ISSUER, "\x00"), id="a control character"),
        pytest.param(by_email("nobody@example.com"), id="an address of nobody"),
        pytest.param(by_email(" \t"), id="blanks"),
        pytest.param(by_email("a" * 60_000 + "@example.com"), id="a long address"),
        pytest.param(by_email("\U0001f600@\U0010ffff.\x7f"), id="strange characters"),
    ],
)
async def test_a_user_who_does_not_exist_is_204(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis, sub_id: dict[str, str]
) -> None:
    await put_cep(worker)
    token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    assert_done(await revoke_user(http, sub_id))
    assert is_live(store, token)


@pytest.mark.clause("decided-global-revocation-unknown-user")
async def test_made_up_subjects_displace_no_evidence(
    http: httpx2.AsyncClient, http_worker: Worker, json_logs: io.StringIO
) -> None:
    """A user with a record or with sessions has an entry, also if the request is repeated."""
    await put_cep(http_worker)
    await log_carol_in(http, http_worker)
    events_of(json_logs)
    made_up = [name_subject(User(realm="cep", username=f"nobody{number}").subject) for number in range(100)]
    known = [name_subject(SUBJECT), by_issuer(ISSUER, CAROL.username)]
    for sub_id in (*made_up, *known, *made_up, *known):
        assert_done(await revoke_user(http, sub_id))
    await http_worker.audit_stream.flush()
    entries = await http_worker.event_stream.read()

    subjects = [SUBJECT, User(realm="cep", username=CAROL.username).subject]
    assert [msgspec.json.decode(entry.text)["sub"] for entry in entries] == subjects * 2
    assert {GROUPS[entry.stream] for entry in entries} == {"programs"}
    logged = [event for event, _ in events_of(json_logs)]
    assert logged == (["nothing_revoked"] * 100 + ["revoke_all"] * 2) * 2


@pytest.mark.clause("9493-3-members-required", "decided-global-revocation-body")
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{}",
        b'{"sub_id": null}',
        b'{"sub_id": [{"format": "opaque", "id": "x"}]}',
        b'{"sub_id": {"id": "x"}}',
        b'{"sub_id": {"format": "opaque"}}',
        b'{"sub_id": {"format": "opaque", "id": ""}}',
        b'{"sub_id": {"format": "opaque", "id": 5}}',
        b'{"sub_id": {"format": ["opaque"], "id": "x"}}',
        b'{"sub_id": {"format": "OPAQUE", "id": "x"}}',
        b'{"sub_id": {"format": "iss_sub", "iss": "http://127.0.0.1:8000"}}',
        b'{"sub_id": {"format": "iss_sub", "iss": "", "sub": "x"}}',
        b'{"sub_id": {"format": "phone_number", "phone_number": "+12065550100"}}',
        b'{"format": "opaque", "id": "x"}',
        b'{"sub_id": {"format": "opaque", "id": "\\ud800"}}',
        b'{"sub_id": {"format": "opaque", "id": "\xff"}}',
        BODY.decode().encode("utf-16"),
        b"\xef\xbb\xbf" + BODY,
        BODY[:-1] + b", " + BODY[1:],
        b'{"sub_id": {"format": "email", "email": "nobody@example.com", "em\\u0061il": "alice@example.com"}}',
        b"[" * LIMIT,
        b'{"a":' * 10_000 + b"1" + b"}" * 10_000,
    ],
    ids=lambda body: ascii(body[:50]),
)
async def test_a_body_without_a_known_identifier_is_refused(http: httpx2.AsyncClient, body: bytes) -> None:
    assert_error(await post(http, body), 400, "invalid_request")


@pytest.mark.clause("decided-global-revocation-body")
async def test_unknown_members_are_ignored(http: httpx2.AsyncClient) -> None:
    sub_id = name_subject(SUBJECT) | {"email": "x"}
    body = json.dumps({"client_secret": 5, "sub_id": sub_id, "reason": {"deep": [None] * 1000}}).encode()

    assert_done(await post(http, body))
    assert_done(
        await post(http, BODY.ljust(LIMIT), Content_Type="Application/JSON; charset=UTF-8", Accept=JSON["Content-Type"])
    )


@pytest.mark.clause("decided-wrong-content-type", "decided-codings", "decided-body-limit", "decided-order-form-first")
@pytest.mark.clause("decided-parameters-in-query", "decided-global-revocation-order")
async def test_the_form_of_the_request_comes_first(http: httpx2.AsyncClient) -> None:
    wrong = replace(BACK_OFFICE, client_secret="wrong")

    assert_error(await post(http, b"{", wrong), 400, "invalid_request")
    assert_error(
        await post(http, BODY, wrong, Content_Type="application/x-www-form-urlencoded"), 400, "invalid_request"
    )
    assert_error(await post(http, BODY, wrong, Content_Type="application/json; charset=utf-16"), 400, "invalid_request")
    assert_error(await post(http, BODY, wrong, Content_Encoding="gzip"), 415, "invalid_request")
    assert_error(await post(http, BODY.ljust(LIMIT + 1), wrong), 413, "invalid_request")
    assert_error(await post(http, BODY, wrong, "?client_id=back-office"), 400, "invalid_request")


@pytest.mark.clause("decided-global-revocation-order", "6749-5.2-basic-challenge")
async def test_the_client_comes_before_the_identifier(http: httpx2.AsyncClient) -> None:
    in_body = BACK_OFFICE.credentials | {"sub_id": name_subject(SUBJECT)}
    refused = [
        await http.post(GLOBAL_REVOCATION, json={}),
        await http.post(GLOBAL_REVOCATION, json=in_body),
        await http.post(GLOBAL_REVOCATION, json={}, headers={"Authorization": "Bearer x"}),
        await post(http, b"{}", replace(BACK_OFFICE, client_secret="wrong")),
        await post(http, b"{}", OAuthClient("nobody", "x")),
        await post(http, b"{}", replace(PHONE_APP, client_secret="x")),
    ]

    for response in refused:
        assert_error(response, 401, "invalid_client")
        assert response.headers["www-authenticate"] == 'Basic realm="token-service"'


@pytest.mark.clause("decided-global-revocation-right", "decided-global-revocation-order")
@pytest.mark.parametrize("client", [GATEWAY, WEB_SHOP, PHONE_APP], ids=lambda client: client.client_id)
async def test_only_a_client_with_the_right_may_revoke(
    http: httpx2.AsyncClient, store: redis.Redis, client: OAuthClient
) -> None:
    token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    assert_error(await post(http, b"{}", client), 400, "invalid_request")
    assert_error(await post(http, BODY, client), 403, "unauthorized_client")
    assert_error(await revoke_user(http, by_issuer("https://other.example", "x"), client), 403, "unauthorized_client")
    assert is_live(store, token)


@pytest.mark.clause("decided-global-revocation-right")
async def test_a_public_client_has_no_right_to_revoke(http: httpx2.AsyncClient, worker: Worker) -> None:
    """Only a record that was written past all checks could give it one."""
    client = await worker.registry.clients.find(PHONE_APP.client_id)
    assert client is not None
    await worker.registry.clients.put(msgspec.structs.replace(client, revoke_users=True), client)

    assert_error(await post(http, BODY, PHONE_APP), 403, "unauthorized_client")
