"""The password grant of realm cep over HTTP: the organisation checks the password, and only its yes counts."""

from __future__ import annotations

import asyncio
from base64 import b64encode
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import msgspec
import pytest
import redis
import yaml
from joserfc import jwt

from service.protocol.user import User, identify_user
from service.store.keys import login_key, registry_key
from service.worker import Worker
from tests.conftest import SEED, Clock, MakeSettings, environment_of, serving
from tests.invariants.dumps import dump_everything, find_secrets
from tests.realms.conftest import Enlist
from tests.realms.journey import CEP_SCOPE, log_in_with_password
from tests.support.actors import (
    ALICE,
    PHONE_APP,
    WEB_SHOP,
    access_name_of,
    assert_error,
    is_live,
    revoke_all,
    tokens_of,
    verify,
)
from tests.support.fake_provider import (
    CLAIMS,
    CLIENT_ID,
    CLIENT_SECRET,
    INTROSPECT,
    KEYS,
    OAUTH_METADATA,
    OPENID_METADATA,
    PASSWORD,
    TOKEN,
    USERINFO,
    USERNAME,
    Answer,
    Drop,
    Endless,
    FakeProvider,
    Hang,
    Held,
    Raw,
    Reply,
    published_key,
    realm_of,
    running_organisation,
)
from tests.support.invalidations import heard
from tests.support.loop_time import LoopTime
from tests.support.servers import RedisServer, free_port, running_service

SUB = str(CLAIMS["sub"])
EMAIL = str(CLAIMS["email"])
BASIC = "Basic " + b64encode(b"token-service:secret+at+the+organisation").decode()
ORGANISATION_SCOPE = "realm:cep role:organisation"
WRONG_ALICE = replace(ALICE, password="wrong")


async def log_in(http: httpx2.AsyncClient, scope: str = CEP_SCOPE) -> httpx2.Response:
    """With the right pair."""
    return await log_in_with_password(http, USERNAME, PASSWORD, scope=scope)


async def guess(http: httpx2.AsyncClient, username: str = USERNAME, scope: str = CEP_SCOPE) -> httpx2.Response:
    return await log_in_with_password(http, username, "wrong", scope=scope)


async def user_of(http: httpx2.AsyncClient, response: httpx2.Response) -> tuple[str, str]:
    """The realm and the user that an API hears of."""
    answer = await verify(http, tokens_of(response)["access_token"])
    return answer.headers["x-auth-realm"], answer.headers["x-auth-user"]


def assert_away(response: httpx2.Response) -> None:
    """Told as an outage, in JSON, with the time to try again."""
    assert_error(response, 503, "temporarily_unavailable")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["retry-after"] == "1"


def count_sessions(store: redis.Redis) -> int:
    return sum(1 for kind in ("family", "access") for _ in store.scan_iter(f"{kind}:*"))


def sign(organisation: FakeProvider, **changes: object) -> str:
    """An ID token as the organisation makes them, but known to the test."""
    claims = {"iss": organisation.url, "aud": CLIENT_ID, "sub": SUB, "iat": 0, "exp": 4_000_000_000} | changes
    return jwt.encode({"alg": "RS256", "kid": published_key().kid}, claims, published_key())


@asynccontextmanager
async def held(organisation: FakeProvider, login: asyncio.Task[httpx2.Response]) -> AsyncIterator[None]:
    """The login is under way at the organisation, which has its answer ready at the end of the block."""
    released = asyncio.Event()
    tokens = {"access_token": "t", "token_type": "Bearer", "id_token": sign(organisation)}
    organisation.answer(TOKEN, Held(Reply(200, tokens), released))
    await organisation.reached(TOKEN)
    assert not login.done()
    yield
    released.set()


# Who it is


@pytest.mark.clause("spec-2.2-realm-cep", "decided-cep-password-grant", "spec-5.4-scope-selects")
async def test_the_right_pair_gives_tokens_of_the_user_whom_the_organisation_names(
    http: httpx2.AsyncClient, cep: None
) -> None:
    response = await log_in(http)

    assert tokens_of(response)["scope"] == CEP_SCOPE
    assert await user_of(http, response) == ("cep", SUB)
    assert (await PHONE_APP.refresh(http, tokens_of(response)["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-cep-password-grant")
async def test_what_was_typed_is_not_who_it_is(http: httpx2.AsyncClient, organisation: FakeProvider, cep: None) -> None:
    """An organisation that takes several spellings of a name still names one user."""
    tokens = {"access_token": "t", "token_type": "Bearer", "id_token": sign(organisation)}
    organisation.answer(TOKEN, Reply(200, tokens))

    answers = [await log_in_with_password(http, name, "any") for name in ("zoe", "ZOE", EMAIL, ALICE.username)]

    assert {await user_of(http, answer) for answer in answers} == {("cep", SUB)}
    shards = {access_name_of(tokens_of(answer)["access_token"]).shard for answer in answers}
    assert shards == {identify_user("cep", SUB).shard}


@pytest.mark.clause("decided-external-source", "decided-cep-password-grant")
@pytest.mark.parametrize(
    ("changes", "asked"),
    [
        pytest.param({}, [OPENID_METADATA, TOKEN, KEYS], id="the ID token"),
        pytest.param({"username_claim": "email"}, [OPENID_METADATA, TOKEN, KEYS], id="another claim of it"),
        pytest.param({"scope": "email"}, [OAUTH_METADATA, OPENID_METADATA, TOKEN, USERINFO], id="userinfo"),
        pytest.param(
            {"scope": None, "introspection_endpoint": INTROSPECT},
            [OAUTH_METADATA, OPENID_METADATA, TOKEN, INTROSPECT],
            id="introspection",
        ),
    ],
)
async def test_the_user_is_learnt_from_whatever_the_organisation_has(
    http: httpx2.AsyncClient,
    organisation: FakeProvider,
    enlist: Enlist,
    changes: dict[str, str | None],
    asked: list[str],
) -> None:
    whole = {key: organisation.url + str(text) if key.endswith("_endpoint") else text for key, text in changes.items()}
    await enlist(**whole)

    response = await log_in(http)

    assert await user_of(http, response) == ("cep", EMAIL if "username_claim" in changes else SUB)
    assert [request.path for request in organisation.requests] == asked


@pytest.mark.clause("decided-same-name-in-two-realms")
async def test_a_user_there_with_the_name_of_one_of_ours_is_another_user(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, store: redis.Redis
) -> None:
    organisation.claims["sub"] = ALICE.username
    theirs = tokens_of(await log_in(http))["access_token"]
    ours = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    assert (await revoke_all(http, theirs)).status_code == 200

    assert (is_live(store, theirs), is_live(store, ours)) == (False, True)


@pytest.mark.clause("decided-invalid-grant-400", "6749-5.2-invalid-grant", "decided-cep-password-grant")
async def test_a_wrong_password_there_is_answered_in_the_words_of_a_wrong_password_here(
    http: httpx2.AsyncClient, cep: None, store: redis.Redis
) -> None:
    theirs, ours = await guess(http), await PHONE_APP.log_in(http, WRONG_ALICE)

    assert_error(theirs, 400, "invalid_grant")
    assert theirs.content == ours.content
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize("verified", [False, None])
async def test_an_email_that_is_not_called_verified_is_nobody(
    http: httpx2.AsyncClient, organisation: FakeProvider, enlist: Enlist, store: redis.Redis, verified: object
) -> None:
    await enlist(username_claim="email")
    organisation.claims["email_verified"] = verified

    assert_error(await log_in(http), 400, "invalid_grant")
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-email-folded")
@pytest.mark.parametrize(("listed", "named"), [(EMAIL, EMAIL.upper()), (EMAIL.upper(), EMAIL)])
async def test_capitals_do_not_lead_round_the_record_of_a_user(
    http: httpx2.AsyncClient, organisation: FakeProvider, enlist: Enlist, listed: str, named: str
) -> None:
    """The default role would be there for a user whom the file does not list."""
    await enlist({"username": listed, "realm": "cep", "roles": []}, username_claim="email")
    organisation.claims["email"] = named

    assert_error(await log_in(http), 400, "invalid_scope")


# What is not a yes

NONSENSE: dict[str, Answer] = {
    "500": Reply(500),
    "502 with tokens": Reply(502, {"access_token": "t", "token_type": "Bearer"}),
    "201": Reply(201, {"access_token": "t", "token_type": "Bearer"}),
    "204": Reply(204),
    "an empty body": Reply(200),
    "no JSON": Reply(200, b"<html>Welcome</html>", {"content-type": "text/html"}),
    "no object": Reply(200, b'["access_token"]'),
    "deep JSON": Reply(200, b"[" * 100_000),
    "no HTTP": Raw(b"220 mail.org.example ESMTP\r\n"),
    "a head without end": Endless(head=b"HTTP/1.1 200 OK\r\nx: ", chunk=b"x" * 4096),
    "half of the body": Raw(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"access_token"'),
    "a huge answer": Endless(),
    "a packed answer": Reply(200, b"\x1f\x8b", {"content-encoding": "gzip"}),
    "a dropped connection": Drop(),
}


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("path", [OPENID_METADATA, TOKEN, KEYS])
@pytest.mark.parametrize("answer", [pytest.param(answer, id=name) for name, answer in NONSENSE.items()])
async def test_nonsense_is_an_outage_of_the_organisation_and_no_login(
    http: httpx2.AsyncClient,
    organisation: FakeProvider,
    cep: None,
    store: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    path: str,
    answer: Answer,
) -> None:
    organisation.answer(path, answer)

    assert_away(await log_in(http))

    assert count_sessions(store) == 0
    assert "the organisation of realm cep does not answer rightly: " in caplog.text
    organisation.answer(path, None)
    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize("path", [OPENID_METADATA, TOKEN, KEYS])
async def test_an_organisation_that_hangs_is_given_up_in_time(
    http: httpx2.AsyncClient,
    organisation: FakeProvider,
    cep: None,
    giving_up: None,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    organisation.answer(path, Hang())

    assert_away(await log_in(http))

    assert "no answer within 5 s" in caplog.text
    await organisation.left_alone()


@pytest.mark.clause("decided-external-realm-down")
async def test_an_organisation_that_is_not_there_is_an_outage_until_it_is_back(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with organisation.away():
        assert_away(await log_in(http))

    assert "it cannot be reached: " in caplog.text
    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize("host", ["nobody.invalid", "x" * 64 + ".invalid", "a..invalid", "xn--.invalid", "[::1]"])
async def test_a_host_that_leads_nowhere_is_an_outage(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, host: str
) -> None:
    """What a metadata document names need not be a name at all."""
    scheme = "http" if host == "[::1]" else "https"
    organisation.metadata["token_endpoint"] = f"{scheme}://{host}:{free_port()}/token"

    assert_away(await log_in(http))


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("path", [OPENID_METADATA, TOKEN, KEYS])
async def test_a_redirect_is_not_followed_and_takes_no_password_along(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, path: str, status: int
) -> None:
    async with running_organisation() as another:
        organisation.answer(path, Reply(status, headers={"location": another.url + path}))

        assert_away(await log_in(http))

        assert another.requests == []
    assert len(organisation.calls(path)) == 1


REFUSALS_OF_OURS = {
    "our secret is wrong": (401, {"error": "invalid_client"}),
    "our secret is wrong, as 400": (400, {"error": "invalid_client"}),
    "no password grant there": (400, {"error": "unsupported_grant_type"}),
    "none for us": (400, {"error": "unauthorized_client"}),
    "another scope": (400, {"error": "invalid_scope"}),
    "a malformed request": (400, {"error": "invalid_request"}),
    "too many requests": (429, {"error": "invalid_grant"}),
}
REFUSALS_OF_A_LOGIN = {
    "an error of its own": (400, {"error": "consent_required"}),
    "no code at all": (400, {"error": "Wrong password for zoe!"}),
    "an error without a name": (400, {"message": "no"}),
    "a 403": (403, {"error": "access_denied"}),
    "a 404": (404, {"error": "not_found"}),
}


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize(
    "reply", (REFUSALS_OF_A_LOGIN | REFUSALS_OF_OURS).values(), ids=REFUSALS_OF_A_LOGIN | REFUSALS_OF_OURS
)
async def test_only_a_refusal_that_may_hide_a_wrong_password_is_counted_and_apart_from_guesses(
    http: httpx2.AsyncClient,
    organisation: FakeProvider,
    cep: None,
    store: redis.Redis,
    reply: tuple[int, dict[str, object]],
) -> None:
    organisation.answer(TOKEN, Reply(*reply))

    assert_away(await log_in(http))

    of_the_login = [login_key(identify_user("cep", USERNAME), "refused")]
    assert list(store.scan_iter("login:*")) == (of_the_login if reply in REFUSALS_OF_A_LOGIN.values() else [])
    assert not list(store.scan_iter("address:*:login:*"))


@pytest.mark.clause("decided-external-realm-down")
async def test_a_secret_of_ours_that_the_organisation_does_not_know_is_told_to_the_operator(
    http: httpx2.AsyncClient, enlist: Enlist, caplog: pytest.LogCaptureFixture
) -> None:
    await enlist(client_secret="not the one")

    assert_away(await log_in(http))

    assert "it answers with the error invalid_client" in caplog.text
    assert "not the one" not in caplog.text


UNBELIEVABLE: dict[str, dict[str, dict[str, object]]] = {
    "no access token": {"token_response": {"access_token": None}},
    "an access token that no header can carry": {"token_response": {"access_token": "a\r\nb"}},
    "another type of token": {"token_response": {"token_type": "mac"}},
    "no type of token": {"token_response": {"token_type": None}},
    "an ID token that is none": {"token_response": {"id_token": "x"}},
    "an ID token of another type": {"token_response": {"id_token": 7}},
    "no claim": {"claims": {"sub": None}},
    "an empty claim": {"claims": {"sub": ""}},
    "a claim that is a list": {"claims": {"sub": [SUB]}},
    "a claim over 255 characters": {"claims": {"sub": "x" * 256}},
    "half of a character": {"claims": {"sub": "\ud800"}},
    "a claim with a line end": {"claims": {"sub": "zoe\nadmin"}},
    "another issuer": {"id_token_claims": {"iss": "https://evil.example"}},
    "another audience": {"id_token_claims": {"aud": "another client"}},
    "an old ID token": {"id_token_claims": {"exp": 1}},
    "no time of issue": {"id_token_claims": {"iat": None}},
    "another key": {"id_token_header": {"kid": "another"}},
    "metadata of another issuer": {"metadata": {"issuer": "https://evil.example"}},
    "metadata without a token endpoint": {"metadata": {"token_endpoint": None}},
    "metadata that leads to plain HTTP elsewhere": {"metadata": {"token_endpoint": "http://evil.example/token"}},
    "metadata with an address that is no text": {"metadata": {"token_endpoint": ["https://evil.example"]}},
}


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked", "decided-external-username")
@pytest.mark.clause("decided-external-id-token", "8414-3.3-issuer-checked")
@pytest.mark.parametrize("changes", [pytest.param(changes, id=name) for name, changes in UNBELIEVABLE.items()])
async def test_an_answer_that_cannot_be_believed_is_an_outage_and_no_login(
    http: httpx2.AsyncClient,
    organisation: FakeProvider,
    cep: None,
    store: redis.Redis,
    changes: dict[str, dict[str, object]],
) -> None:
    for name, changed in changes.items():
        getattr(organisation, name).update(changed)

    assert_away(await log_in(http))

    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-id-token")
async def test_an_id_token_that_somebody_else_signed_is_not_believed(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None
) -> None:
    for key in (None, CLIENT_SECRET.encode()):
        organisation.sign_with(key)
        assert_away(await log_in(http))


@pytest.mark.clause("decided-external-source", "decided-external-answer-checked")
async def test_userinfo_of_somebody_else_than_the_id_token_is_not_believed(
    http: httpx2.AsyncClient, organisation: FakeProvider, enlist: Enlist
) -> None:
    await enlist(username_claim="nickname")
    organisation.userinfo = {"nickname": "zoe"}
    assert await user_of(http, await log_in(http)) == ("cep", "zoe")

    organisation.userinfo |= {"sub": "another"}

    assert_away(await log_in(http))


# What is sent


@pytest.mark.clause("6749-4.3.2-password-validated", "decided-cep-password-grant")
async def test_the_organisation_is_sent_a_password_grant_and_nothing_more(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None
) -> None:
    document = Reply(200, organisation.describe(), {"set-cookie": "pet=cat; Path=/"})
    organisation.answer(OPENID_METADATA, document)

    assert (await log_in(http)).status_code == 200

    (request,) = organisation.calls(TOKEN)
    assert (request.method, request.query) == ("POST", {})
    assert request.form == {
        "grant_type": "password",
        "username": USERNAME,
        "password": PASSWORD,
        "scope": "openid email",
    }
    headers = dict(request.headers)
    assert int(headers.pop("content-length")) > 0
    assert headers == {
        "host": organisation.url.removeprefix("http://"),
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "token-service",
        "content-type": "application/x-www-form-urlencoded",
        "authorization": BASIC,
    }


async def test_without_a_scope_in_its_entry_the_organisation_is_sent_none(
    http: httpx2.AsyncClient, organisation: FakeProvider, enlist: Enlist
) -> None:
    await enlist(scope=None)

    assert (await log_in(http)).status_code == 200

    assert organisation.calls(TOKEN)[0].form == {"grant_type": "password", "username": USERNAME, "password": PASSWORD}


async def test_a_public_client_there_names_itself_in_the_form(
    http: httpx2.AsyncClient, organisation: FakeProvider, enlist: Enlist
) -> None:
    await enlist(client_secret=None)

    await log_in(http)

    (request,) = organisation.calls(TOKEN)
    assert (request.form["client_id"], request.form.get("client_secret")) == (CLIENT_ID, None)
    assert "authorization" not in request.headers


async def test_the_secret_goes_into_the_form_where_the_organisation_takes_it_nowhere_else(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None
) -> None:
    organisation.metadata["token_endpoint_auth_methods_supported"] = ["client_secret_post"]

    await log_in(http)

    (request,) = organisation.calls(TOKEN)
    assert (request.form["client_id"], request.form["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)
    assert "authorization" not in request.headers


TEXTS = {
    "umlauts": "Zoë Müller",
    "beyond the first plane": "😀 zoe",
    "signs of forms": "a&b=c+d%41 e;f?g#h",
    "an encoded line end": "a%0D%0Ab",
    "signs of Basic and JSON": 'a:b"c\\d',
    "spaces around": "  zoe  ",
    "a tab": "z\toe",
    "1024 characters": "0123456789abcdef" * 64,
    "1024 characters of four bytes": "😀" * 1024,
}


@pytest.mark.clause("6749-b-utf-8-form", "decided-cep-password-grant")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_user_names_and_passwords_arrive_unchanged(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, text: str
) -> None:
    assert_error(await log_in_with_password(http, text, text[::-1]), 400, "invalid_grant")

    (request,) = organisation.calls(TOKEN)
    assert (request.form["username"], request.form["password"]) == (text, text[::-1])


async def test_no_proxy_of_the_environment_hears_of_a_login(
    http: httpx2.AsyncClient, cep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, nobody)
        monkeypatch.setenv(name.upper(), nobody)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    assert (await log_in(http)).status_code == 200


# What is kept


@pytest.mark.clause("decided-external-tokens-dropped", "decided-i5-nothing-presentable-at-rest")
@pytest.mark.clause("decided-i5-organisation-secret-encrypted", "spec-2.2-realm-cep")
@pytest.mark.clause("6819-5.1.4.1.3-realm-secret-encrypted")
async def test_neither_redis_nor_the_log_at_its_lowest_level_learns_a_secret_of_the_organisation(
    organisation: FakeProvider, redis_server: RedisServer, store: redis.Redis, tmp_path: Path
) -> None:
    """Not of a login that goes well, nor of one that fails in whatever way, nor what the organisation repeats."""
    seed = yaml.safe_load(SEED.read_text()) | {"realms": {"cep": realm_of(organisation)}}
    file = tmp_path / "seed.yaml"
    file.write_text(yaml.safe_dump(seed))
    guessed = "a guess for the organisation"
    id_token = sign(organisation)
    handed_out = {"access_token": "an-access-token-of-theirs", "refresh_token": "a-refresh-token-of-theirs"}
    quoting: list[Answer | None] = [
        None,
        Reply(400, {"error": guessed, "error_description": guessed}),
        Reply(400, {"error": "invalid_request", "error_description": guessed}),
        Reply(400, guessed.encode()),
        Reply(500, guessed.encode()),
        Reply(200, {"error": guessed}),
        Reply(302, headers={"location": organisation.url + "/?password=" + guessed.replace(" ", "+")}),
        Raw(f"{guessed}\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 200 OK\r\n{guessed}\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 {guessed} OK\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 200 OK\r\ncontent-length: {guessed}\r\n\r\n".encode()),
        Drop(),
    ]
    variables = {"LOG_LEVEL": "debug", "TOKEN_SERVICE_SEED_FILE": str(file)}
    with running_service(tmp_path, environment_of(redis_server, **variables)) as service:
        async with httpx2.AsyncClient(base_url=service.url, timeout=30) as http:
            organisation.token_response = {**handed_out, "id_token": id_token}
            assert (await log_in(http)).status_code == 200
            statuses = []
            for answer in quoting:
                organisation.answer(TOKEN, answer)
                statuses.append((await log_in_with_password(http, "a name that was typed", guessed)).status_code)
            organisation.answer(TOKEN, None)
            organisation.id_token_claims = {"iss": guessed}
            organisation.token_response = dict(handed_out)
            assert (await log_in(http)).status_code == 503
        log = service.log.read_text()

    assert statuses == [400] + [503] * (len(quoting) - 1)
    assert '"level":"debug"' in log
    assert "the organisation of realm cep does not answer rightly" in log
    secrets = [PASSWORD, guessed, CLIENT_SECRET, BASIC.removeprefix("Basic "), id_token, *id_token.split(".")]
    secrets += [*handed_out.values(), PASSWORD.replace(" ", "+"), guessed.replace(" ", "+")]
    assert find_secrets(log.encode(), secrets) == set()
    assert find_secrets(dump_everything(store), secrets) == set()
    assert "a name that was typed" not in log


# The throttle


@pytest.mark.clause("decided-login-limit", "decided-limit-stops-checking", "6749-4.3.2-brute-force")
@pytest.mark.clause("decided-order-throttle-before-password", "decided-external-throttle-first")
async def test_past_ten_wrong_passwords_the_organisation_is_not_asked_any_more(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, clock: Clock
) -> None:
    for _ in range(10):
        assert_error(await guess(http), 400, "invalid_grant")

    for response in (await guess(http), await log_in(http)):
        assert_error(response, 429, "invalid_grant")
        assert 1 <= int(response.headers["retry-after"]) <= 60
    assert len(organisation.calls(TOKEN)) == 10
    clock.advance(60)
    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-isolated", "decided-only-failures-count")
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Reply(500), id="500"),
        pytest.param(Drop(), id="a dropped connection"),
        pytest.param(Reply(200, b"?"), id="garbage"),
        pytest.param(Reply(401, {"error": "invalid_client"}), id="a refusal of ours"),
        pytest.param(Hang(), id="a hanging organisation"),
    ],
)
async def test_failures_of_the_organisation_use_up_nobodys_attempts(
    make_settings: MakeSettings,
    clock: Clock,
    organisation: FakeProvider,
    cep: None,
    store: redis.Redis,
    giving_up: None,
    answer: Answer,
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute",
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER="1/minute",
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="4/minute",
    )
    async with serving(settings, clock) as http:
        organisation.answer(TOKEN, answer)
        for _ in range(3):
            assert_away(await guess(http))

        assert not list(store.scan_iter("login:*")) + list(store.scan_iter("address:*:login:*"))
        organisation.answer(TOKEN, None)
        assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-isolated", "decided-login-limit-per-address", "decided-login-limit")
async def test_guesses_in_one_realm_do_not_count_in_the_other(
    make_settings: MakeSettings, clock: Clock, organisation: FakeProvider, cep: None
) -> None:
    """Neither for a name that both realms know, nor for the address that both come from."""
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute", TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute"
    )
    async with serving(settings, clock) as http:
        assert_error(await guess(http, ALICE.username), 400, "invalid_grant")
        assert_error(await guess(http, ALICE.username), 429, "invalid_grant")
        assert_error(await guess(http, "another"), 429, "invalid_grant")
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        clock.advance(60)

        assert_error(await PHONE_APP.log_in(http, WRONG_ALICE), 400, "invalid_grant")
        assert_error(await PHONE_APP.log_in(http, ALICE), 429, "invalid_grant")
        assert_error(await guess(http, ALICE.username), 400, "invalid_grant")
        clock.advance(60)
        assert_error(await PHONE_APP.log_in(http, WRONG_ALICE), 400, "invalid_grant")
        assert (await log_in(http)).status_code == 200


# Who may have what


@pytest.mark.clause("decided-external-roles", "decided-user-scope-after-password", "decided-order-user-scope-last")
async def test_a_user_whom_nobody_listed_has_the_roles_of_the_realm_and_no_others(
    http: httpx2.AsyncClient, cep: None, store: redis.Redis
) -> None:
    assert (await log_in(http)).status_code == 200
    sessions = count_sessions(store)

    assert_error(await log_in(http, ORGANISATION_SCOPE), 400, "invalid_scope")
    assert_error(await guess(http, scope=ORGANISATION_SCOPE), 400, "invalid_grant")
    assert count_sessions(store) == sessions


@pytest.mark.clause("decided-external-roles")
async def test_a_realm_without_default_roles_lets_only_listed_users_in(
    http: httpx2.AsyncClient, organisation: FakeProvider, enlist: Enlist
) -> None:
    await enlist({"username": SUB, "realm": "cep", "roles": ["enduser"]}, default_roles=None)

    assert (await log_in(http)).status_code == 200
    organisation.claims["sub"] = "another"
    assert_error(await log_in(http), 400, "invalid_scope")


@pytest.mark.clause("decided-external-roles", "spec-2.3-user-record", "decided-user-scope-after-password")
async def test_a_listed_user_has_the_roles_of_the_list_instead(http: httpx2.AsyncClient, enlist: Enlist) -> None:
    await enlist({"username": SUB, "realm": "cep", "roles": ["organisation"]})

    assert tokens_of(await log_in(http, ORGANISATION_SCOPE))["scope"] == ORGANISATION_SCOPE
    assert_error(await log_in(http), 400, "invalid_scope")


@pytest.mark.clause("decided-external-roles", "decided-cep-password-grant")
async def test_a_list_of_users_names_them_as_the_organisation_does_and_not_as_they_type(
    http: httpx2.AsyncClient, enlist: Enlist
) -> None:
    await enlist(
        {"username": USERNAME, "realm": "cep", "roles": ["organisation"]},
        {"username": SUB, "realm": "main", "password": "x" * 8, "roles": ["organisation"]},
    )

    assert_error(await log_in(http, ORGANISATION_SCOPE), 400, "invalid_scope")


@pytest.mark.clause("decided-disabled-user")
async def test_a_disabled_user_is_answered_like_a_wrong_password_though_the_organisation_says_yes(
    http: httpx2.AsyncClient, cep: None, parts: Worker, store: redis.Redis
) -> None:
    wrong = await guess(http)
    await parts.registry.put_users([User(realm="cep", username=SUB, roles=("enduser",), disabled=True)])
    await heard(parts)

    disabled = await log_in(http)

    assert (400, wrong.content) == (disabled.status_code, disabled.content)
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-client-scope", "decided-order-client-scope-before-throttle")
async def test_a_client_without_the_realm_is_refused_before_anybody_is_asked(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None
) -> None:
    assert_error(await log_in_with_password(http, USERNAME, PASSWORD, WEB_SHOP), 400, "invalid_scope")
    assert organisation.requests == []


@pytest.mark.clause("spec-4.2-password-one-realm-one-role")
@pytest.mark.parametrize(
    "scope", ["realm:cep", "role:enduser", "realm:cep realm:main role:enduser", "realm:cep role:enduser role:device"]
)
async def test_a_scope_of_another_form_is_refused_before_anybody_is_asked(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, scope: str
) -> None:
    assert_error(await log_in(http, scope), 400, "invalid_scope")
    assert organisation.requests == []


# What changes


@pytest.mark.clause("decided-external-follows-the-record", "decided-realm-without-login", "spec-2.2-realms")
async def test_a_realm_that_is_configured_while_the_service_runs_is_there_within_a_second(
    http: httpx2.AsyncClient, enlist: Enlist, loop_time: LoopTime
) -> None:
    assert_error(await log_in(http), 400, "invalid_scope")

    await enlist()
    loop_time.advance(1)

    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-follows-the-record", "decided-realm-without-login")
async def test_a_realm_that_is_gone_is_refused_cleanly(
    http: httpx2.AsyncClient,
    organisation: FakeProvider,
    cep: None,
    parts: Worker,
    store: redis.Redis,
) -> None:
    assert (await log_in(http)).status_code == 200

    store.delete(registry_key("realm", "cep"))
    await heard(parts)

    assert_error(await log_in(http), 400, "invalid_scope")
    assert len(organisation.calls(TOKEN)) == 1


@pytest.mark.clause("decided-external-follows-the-record", "decided-external-realm-down")
@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"default_roles": ()}, id="fewer roles"),
        pytest.param({"issuer": "https://another.example"}, id="another organisation"),
        pytest.param({"username_claim": "email"}, id="another claim"),
        pytest.param(None, id="no realm any more"),
    ],
)
async def test_a_realm_that_changes_while_its_organisation_thinks_gives_no_tokens(
    http: httpx2.AsyncClient,
    organisation: FakeProvider,
    cep: None,
    parts: Worker,
    store: redis.Redis,
    changes: dict[str, object] | None,
) -> None:
    record = await parts.registry.find_realm("cep")
    assert record is not None
    login = asyncio.create_task(log_in(http))
    async with held(organisation, login):
        if changes is None:
            store.delete(registry_key("realm", "cep"))
        else:
            await parts.registry.put_realm("cep", msgspec.structs.replace(record, **changes))
        await heard(parts)

    assert_away(await login)

    assert count_sessions(store) == 0


@pytest.mark.clause("decided-disabled-user")
async def test_a_user_who_is_disabled_while_the_organisation_thinks_gets_no_tokens(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, parts: Worker, store: redis.Redis
) -> None:
    login = asyncio.create_task(log_in(http))
    async with held(organisation, login):
        await parts.registry.put_users([User(realm="cep", username=SUB, roles=("enduser",), disabled=True)])
        await heard(parts)

    assert_error(await login, 400, "invalid_grant")

    assert count_sessions(store) == 0


@pytest.mark.clause("decided-client-looked-at-again", "6749-10.3-client-limits-scope", "6749-5.2-unauthorized-client")
@pytest.mark.parametrize(
    ("changes", "status", "error"),
    [
        pytest.param({"grant_types": ("refresh_token",)}, 400, "unauthorized_client", id="the grant"),
        pytest.param({"scope": "realm:main role:enduser"}, 400, "invalid_scope", id="the realm"),
        pytest.param(None, 401, "invalid_client", id="its registration"),
    ],
)
async def test_a_client_does_not_get_what_it_lost_while_the_organisation_thought(
    http: httpx2.AsyncClient,
    organisation: FakeProvider,
    cep: None,
    parts: Worker,
    store: redis.Redis,
    changes: dict[str, object] | None,
    status: int,
    error: str,
) -> None:
    client = await parts.registry.find_client(PHONE_APP.client_id)
    assert client is not None
    login = asyncio.create_task(log_in(http))
    async with held(organisation, login):
        if changes is None:
            store.delete(registry_key("client", PHONE_APP.client_id))
        else:
            narrowed = msgspec.structs.replace(client, **changes)
            await parts.registry.put_client(narrowed, old_origins=(), new_origins=(), narrowing=None)
        await heard(parts)

    assert_error(await login, status, error)

    assert count_sessions(store) == 0


@pytest.mark.clause("decided-revoke-all-covers", "decided-i7-revocation-is-final")
async def test_revoke_all_ends_every_session_of_a_user_of_the_organisation_and_of_nobody_else(
    http: httpx2.AsyncClient, organisation: FakeProvider, cep: None, store: redis.Redis
) -> None:
    mine = [tokens_of(await log_in(http)) for _ in range(3)]
    organisation.claims["sub"] = "another"
    theirs = tokens_of(await log_in(http))

    assert (await revoke_all(http, mine[0]["access_token"])).status_code == 200

    assert not any(is_live(store, tokens["access_token"]) for tokens in mine)
    for tokens in mine:
        assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
    assert is_live(store, theirs["access_token"])
    assert (await PHONE_APP.refresh(http, theirs["refresh_token"])).status_code == 200
