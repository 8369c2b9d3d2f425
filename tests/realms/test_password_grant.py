"""The password grant in an external realm: passwords, requests to the identity provider, roles and changes."""

import asyncio
import io
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

from service.protocol.user import User, digest_sid, identify_user
from service.store.keys import login_key, origins_key, registry_key
from service.worker import Worker
from tests.conftest import SEED, Clock, MakeSettings, environment_of, serving
from tests.invariants.dumps import dump_everything, find_secrets
from tests.realms.login_steps import CEP_SCOPE, EMAIL, SUB, RegisterRealm, log_in_with_password
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    USERINFO,
    WEB_SHOP,
    access_name_of,
    assert_error,
    bearer,
    tokens_of,
    verify,
)
from tests.support.events import events_of
from tests.support.fake_provider import (
    CLIENT_ID,
    CLIENT_SECRET,
    OPENID_METADATA,
    PASSWORD,
    TOKEN,
    USERNAME,
    Answer,
    Drop,
    FakeProvider,
    Held,
    Raw,
    Reply,
    published_key,
    realm_of,
    running_provider,
)
from tests.support.invalidations import await_invalidations
from tests.support.servers import RedisServer, running_service


async def user_of(http: httpx2.AsyncClient, response: httpx2.Response) -> tuple[str, str]:
    """Return the realm and the user name that an API sees."""
    answer = await verify(http, tokens_of(response)["access_token"])
    return answer.headers["x-auth-realm"], answer.headers["x-auth-user"]


@pytest.mark.clause("spec-2.2-realm-cep", "decided-cep-password-grant", "spec-5.4-scope-selects")
async def test_password_grant_issues_tokens_for_provider_users(http: httpx2.AsyncClient, cep: None) -> None:
    response = await log_in(http)

    assert tokens_of(response)["scope"] == CEP_SCOPE
    assert await user_of(http, response) == ("cep", SUB)
    assert (await PHONE_APP.refresh(http, tokens_of(response)["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-cep-password-grant")
async def test_typed_name_is_not_the_identity(http: httpx2.AsyncClient, provider: FakeProvider, cep: None) -> None:
    """A provider that accepts several spellings of a name still identifies one user."""
    tokens = {"access_token": "t", "token_type": "Bearer", "id_token": sign(provider)}
    provider.answer(TOKEN, Reply(200, tokens))

    answers = [await log_in_with_password(http, name, "any") for name in ("zoe", "ZOE", EMAIL, ALICE.username)]

    assert {await user_of(http, answer) for answer in answers} == {("cep", SUB)}
    shards = {access_name_of(tokens_of(answer)["access_token"]).shard for answer in answers}
    assert shards == {identify_user("cep", SUB).shard}


@pytest.mark.clause("decided-userinfo")
async def test_userinfo_has_the_name_of_a_listed_user(http: httpx2.AsyncClient, register_realm: RegisterRealm) -> None:
    await register_realm({"username": SUB, "realm": "cep", "roles": ["enduser"], "name": "Zoe"})
    headers = bearer(tokens_of(await log_in(http))["access_token"])

    body = (await http.get(USERINFO, headers=headers)).json()

    assert (body["username"], body["name"], body["sub"][0], "email" in body) == (SUB, "Zoe", "~", False)


@pytest.mark.clause("decided-invalid-grant-400", "6749-5.2-invalid-grant", "decided-cep-password-grant")
async def test_wrong_external_password_reads_like_a_local_one(
    http: httpx2.AsyncClient, cep: None, store: redis.Redis
) -> None:
    theirs, ours = await guess(http), await PHONE_APP.log_in(http, WRONG_ALICE)

    assert_error(theirs, 400, "invalid_grant")
    assert theirs.content == ours.content
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-username")
async def test_unverified_email_names_no_user(
    http: httpx2.AsyncClient, provider: FakeProvider, register_realm: RegisterRealm, store: redis.Redis
) -> None:
    await register_realm(username_claim="email")
    provider.claims["email_verified"] = False

    assert_error(await log_in(http), 400, "invalid_grant")
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-email-folded")
async def test_capitals_do_not_lead_round_the_record_of_a_user(
    http: httpx2.AsyncClient, provider: FakeProvider, register_realm: RegisterRealm
) -> None:
    """Otherwise another spelling would get the default role, as a user without an entry does."""
    await register_realm({"username": EMAIL, "realm": "cep", "roles": []}, username_claim="email")
    provider.claims["email"] = EMAIL.upper()

    assert_error(await log_in(http), 400, "invalid_scope")


@pytest.mark.clause("decided-external-realm-down")
async def test_unreachable_provider_is_an_outage_until_it_returns(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with provider.stopped():
        assert_provider_unavailable(await log_in(http))

    assert "it cannot be reached: " in caplog.text
    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
async def test_redirects_are_not_followed(http: httpx2.AsyncClient, provider: FakeProvider, cep: None) -> None:
    async with running_provider() as another:
        provider.answer(TOKEN, Reply(307, headers={"location": another.url + TOKEN}))

        assert_provider_unavailable(await log_in(http))

        assert another.requests == []
    assert len(provider.calls(TOKEN)) == 1


REFUSALS_OF_OURS = {
    "our secret is wrong": (401, {"error": "invalid_client"}),
    "no password grant there": (400, {"error": "unsupported_grant_type"}),
    "too many requests": (429, {"error": "invalid_grant"}),
}


REFUSALS_OF_A_LOGIN = {
    "an error of its own": (400, {"error": "consent_required"}),
    "a 403": (403, {"error": "access_denied"}),
}


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize(
    "reply", (REFUSALS_OF_A_LOGIN | REFUSALS_OF_OURS).values(), ids=REFUSALS_OF_A_LOGIN | REFUSALS_OF_OURS
)
async def test_ambiguous_provider_refusals_are_counted_separately(
    http: httpx2.AsyncClient,
    worker: Worker,
    provider: FakeProvider,
    cep: None,
    store: redis.Redis,
    reply: tuple[int, dict[str, object]],
) -> None:
    provider.answer(TOKEN, Reply(*reply))

    assert_provider_unavailable(await log_in(http))

    identity = identify_user("cep", USERNAME)
    counted = {f"{login_key(identity)}:{worker.keyring.digest_origin('provider')}", origins_key(identity)}
    assert set(store.scan_iter("login:*")) == (counted if reply in REFUSALS_OF_A_LOGIN.values() else set())
    assert not list(store.scan_iter("address:*:login:*"))


WRONG_ALICE = replace(ALICE, password="wrong")


async def log_in(http: httpx2.AsyncClient, scope: str = CEP_SCOPE) -> httpx2.Response:
    """Log in with the right user name and password."""
    return await log_in_with_password(http, USERNAME, PASSWORD, scope=scope)


async def guess(http: httpx2.AsyncClient, username: str = USERNAME, scope: str = CEP_SCOPE) -> httpx2.Response:
    return await log_in_with_password(http, username, "wrong", scope=scope)


def assert_provider_unavailable(response: httpx2.Response) -> None:
    """Check for the JSON response of an outage, with the time of a retry."""
    assert_error(response, 503, "temporarily_unavailable")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["retry-after"] == "1"


def count_sessions(store: redis.Redis) -> int:
    return sum(1 for kind in ("family", "access") for _ in store.scan_iter(f"{kind}:*"))


def sign(provider: FakeProvider, **changes: object) -> str:
    """Return an ID token like the provider's, whose content the test knows."""
    claims = {"iss": provider.url, "aud": CLIENT_ID, "sub": SUB, "iat": 0, "exp": 4_000_000_000} | changes
    return jwt.encode({"alg": "RS256", "kid": published_key().kid}, claims, published_key())


BASIC = "Basic " + b64encode(b"token-service:secret+at+the+organisation").decode()


@pytest.mark.clause("6749-4.3.2-password-validated", "decided-cep-password-grant")
async def test_the_provider_is_sent_a_password_grant_and_nothing_more(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None
) -> None:
    document = Reply(200, provider.describe(), {"set-cookie": "pet=cat; Path=/"})
    provider.answer(OPENID_METADATA, document)

    assert (await log_in(http)).status_code == 200

    (request,) = provider.calls(TOKEN)
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
        "host": provider.url.removeprefix("http://"),
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "token-service",
        "content-type": "application/x-www-form-urlencoded",
        "authorization": BASIC,
    }


TEXTS = {
    "signs of forms and Unicode": "  Zoë&b=c+d%41%0D%0A e;f?g#h\t😀 ",
    "1024 characters of four bytes": "😀" * 1024,
}


@pytest.mark.clause("6749-b-utf-8-form", "decided-cep-password-grant")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_user_names_and_passwords_arrive_unchanged(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, text: str
) -> None:
    assert_error(await log_in_with_password(http, text, text[::-1]), 400, "invalid_grant")

    (request,) = provider.calls(TOKEN)
    assert (request.form["username"], request.form["password"]) == (text, text[::-1])


@pytest.mark.clause("decided-external-tokens-dropped", "decided-i5-nothing-presentable-at-rest")
@pytest.mark.clause("decided-i5-organisation-secret-encrypted", "spec-2.2-realm-cep")
@pytest.mark.clause("6819-5.1.4.1.3-realm-secret-encrypted")
async def test_redis_and_log_never_hold_provider_secrets(
    provider: FakeProvider, redis_server: RedisServer, store: redis.Redis, tmp_path: Path
) -> None:
    """This covers successful logins, all failing ones, and secrets that the provider repeats."""
    seed = yaml.safe_load(SEED.read_text()) | {"realms": {"cep": realm_of(provider)}}
    file = tmp_path / "seed.yaml"
    file.write_text(yaml.safe_dump(seed))
    guessed = "a guess for the organisation"
    id_token = sign(provider)
    handed_out = {"access_token": "an-access-token-of-theirs", "refresh_token": "a-refresh-token-of-theirs"}
    quoting: list[Answer | None] = [
        None,
        Reply(400, {"error": guessed, "error_description": guessed}),
        Reply(400, {"error": "invalid_request", "error_description": guessed}),
        Reply(400, guessed.encode()),
        Reply(500, guessed.encode()),
        Reply(200, {"error": guessed}),
        Reply(302, headers={"location": provider.url + "/?password=" + guessed.replace(" ", "+")}),
        Raw(f"{guessed}\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 200 OK\r\n{guessed}\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 {guessed} OK\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 200 OK\r\ncontent-length: {guessed}\r\n\r\n".encode()),
        Drop(),
    ]
    variables = {"LOG_LEVEL": "debug", "TOKEN_SERVICE_SEED_FILE": str(file)}
    with running_service(tmp_path, environment_of(redis_server, **variables)) as service:
        async with httpx2.AsyncClient(base_url=service.url, timeout=30) as http:
            provider.token_response = {**handed_out, "id_token": id_token}
            assert (await log_in(http)).status_code == 200
            statuses = []
            for answer in quoting:
                provider.answer(TOKEN, answer)
                statuses.append((await log_in_with_password(http, "a name that was typed", guessed)).status_code)
            provider.answer(TOKEN, None)
            provider.id_token_claims = {"iss": guessed}
            provider.token_response = dict(handed_out)
            assert (await log_in(http)).status_code == 503
        log = service.log.read_text()

    assert statuses == [400] + [503] * (len(quoting) - 1)
    assert '"level":"debug"' in log
    assert "the identity provider of realm cep is unavailable" in log
    secrets = [PASSWORD, guessed, CLIENT_SECRET, BASIC.removeprefix("Basic "), id_token, *id_token.split(".")]
    secrets += [*handed_out.values(), PASSWORD.replace(" ", "+"), guessed.replace(" ", "+")]
    assert find_secrets(log.encode(), secrets) == set()
    assert find_secrets(dump_everything(store), secrets) == set()
    assert "a name that was typed" not in log


@pytest.mark.clause("decided-external-isolated", "decided-login-limit-per-address", "decided-login-limit")
async def test_guesses_in_one_realm_do_not_count_in_the_other(
    make_settings: MakeSettings, clock: Clock, provider: FakeProvider, cep: None
) -> None:
    """This holds for a name that exists in both realms, and for an address that uses both."""
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


PROVIDER_SCOPE = "realm:cep role:organisation"


@asynccontextmanager
async def held_login(
    provider: FakeProvider, login: asyncio.Task[httpx2.Response], **claims: object
) -> AsyncIterator[None]:
    """Hold a login at the provider inside the block. Its response is released at the end."""
    released = asyncio.Event()
    tokens = {"access_token": "t", "token_type": "Bearer", "id_token": sign(provider, **claims)}
    provider.answer(TOKEN, Held(Reply(200, tokens), released))
    await provider.await_requests(TOKEN)
    assert not login.done()
    yield
    released.set()


@pytest.mark.clause("decided-login-under-way-at-revocation", "decided-provider-logout")
@pytest.mark.parametrize("sid", [None, "", "one", "other"])
async def test_login_under_way_at_the_provider_does_not_survive(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, worker: Worker, sid: str | None
) -> None:
    """With a session id, that session ends, and logins without one. Otherwise everything of the user is revoked."""
    zoe = identify_user("cep", SUB)
    provider.id_token_claims = {} if sid is None else {"sid": sid}
    login = asyncio.create_task(log_in(http))
    async with held_login(provider, login, **provider.id_token_claims):
        if sid is None:
            await worker.revocations.revoke_all(zoe.shard, zoe.digest)
        else:
            await worker.revocations.end_provider_login(zoe.shard, zoe.digest, digest_sid("cep", "one"))
    if sid == "other":
        tokens_of(await login)
    else:
        assert_error(await login, 503, "temporarily_unavailable")
    provider.answer(TOKEN, None)

    tokens_of(await log_in(http))


@pytest.mark.clause("decided-external-roles", "decided-cep-password-grant")
async def test_user_list_uses_the_names_of_the_provider(
    http: httpx2.AsyncClient, register_realm: RegisterRealm
) -> None:
    await register_realm(
        {"username": USERNAME, "realm": "cep", "roles": ["organisation"]},
        {"username": SUB, "realm": "main", "password": "a password of Zoe", "roles": ["organisation"]},
    )

    assert_error(await log_in(http, PROVIDER_SCOPE), 400, "invalid_scope")


@pytest.mark.clause("decided-disabled-user")
async def test_disabled_external_user_gets_wrong_password_answer(
    http: httpx2.AsyncClient, cep: None, worker: Worker, store: redis.Redis
) -> None:
    wrong = await guess(http)
    await worker.registry.users.put(User(realm="cep", username=SUB, roles=("enduser",), disabled=True))
    await await_invalidations(worker)

    disabled = await log_in(http)

    assert (400, wrong.content) == (disabled.status_code, disabled.content)
    assert count_sessions(store) == 0


@pytest.mark.clause("spec-6-events")
async def test_event_of_a_disabled_user_has_the_name_of_the_record(
    http: httpx2.AsyncClient, register_realm: RegisterRealm, provider: FakeProvider, json_logs: io.StringIO
) -> None:
    """The provider spells the e-mail address in another way, and `sub` is that of the record."""
    await register_realm({"username": EMAIL, "realm": "cep", "roles": [], "disabled": True}, username_claim="email")
    provider.claims["email"] = EMAIL.upper()
    events_of(json_logs)

    assert_error(await log_in(http), 400, "invalid_grant")

    assert [(event, fields.get("username")) for event, fields in events_of(json_logs)] == [("login_failed", EMAIL)]


@pytest.mark.clause("decided-client-scope", "decided-order-client-scope-before-throttle")
async def test_client_without_the_realm_never_reaches_the_provider(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None
) -> None:
    assert_error(await log_in_with_password(http, USERNAME, PASSWORD, WEB_SHOP), 400, "invalid_scope")
    assert provider.requests == []


@pytest.mark.clause("decided-external-follows-the-record", "decided-external-realm-down")
@pytest.mark.parametrize(
    "changes",
    [pytest.param({"username_claim": "email"}, id="another claim"), pytest.param(None, id="no realm any more")],
)
async def test_realm_change_during_a_login_yields_no_tokens(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    cep: None,
    worker: Worker,
    store: redis.Redis,
    changes: dict[str, object] | None,
) -> None:
    record = await worker.registry.realms.find("cep")
    assert record is not None
    login = asyncio.create_task(log_in(http))
    async with held_login(provider, login):
        if changes is None:
            store.delete(registry_key("realm", "cep"))
        else:
            await worker.registry.realms.put("cep", msgspec.structs.replace(record, **changes))
        await await_invalidations(worker)

    assert_provider_unavailable(await login)

    assert count_sessions(store) == 0
