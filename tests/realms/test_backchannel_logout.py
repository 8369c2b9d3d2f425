"""Logouts that an identity provider reports: what they end, when they are refused, and what strangers can do."""

import asyncio
import io
from typing import Any

import httpx2
import pytest

from service.realms.provider.circuit_breaker import CALLS, FAILURES
from service.realms.provider.client import KEYS_SECONDS, NEW_KEYS_SECONDS
from service.redis_client.deadline import StoreUnavailable
from service.store.sessions.revocations import Revocations
from service.store.single_use import SingleUse
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving_worker
from tests.realms.login_steps import (
    ASK_CEP,
    RegisterRealm,
    location_of,
    log_in_at_provider,
    log_in_through_cep,
    log_in_with_password,
    start_login,
)
from tests.store.interruptions import InterposedConnection
from tests.support.browser import SESSION_COOKIE, Browser, authorization_response, is_consent_page
from tests.support.browser import assert_refused as assert_refused_page
from tests.support.clients_and_users import AUDITOR, PHONE_APP, PHONE_CALLBACK, assert_error, tokens_of
from tests.support.events import events_of
from tests.support.fake_provider import (
    CLAIMS,
    KEY_NAMES,
    KEYS,
    OPENID_METADATA,
    PASSWORD,
    USERNAME,
    Answer,
    Drop,
    FakeProvider,
    Hang,
    Reply,
    read_wall_clock,
)
from tests.support.loop_time import LoopTime
from tests.support.waiting import until

pytestmark = pytest.mark.clause("decided-backchannel-logout")

LOGOUT = "/oauth2/v1/backchannel-logout/cep"
CONTENDERS = 20


async def log_in(http: httpx2.AsyncClient) -> dict[str, Any]:
    return dict(tokens_of(await log_in_with_password(http, USERNAME, PASSWORD)))


async def is_live(http: httpx2.AsyncClient, tokens: dict[str, Any]) -> bool:
    """Return True if both tokens are live. A session never has only one of them."""
    described = (await AUDITOR.introspect(http, tokens["access_token"])).json()
    refreshed = await PHONE_APP.refresh(http, tokens["refresh_token"])
    assert described["active"] is (refreshed.status_code == 200)
    return bool(described["active"])


async def log_out(http: httpx2.AsyncClient, logout_token: str, path: str = LOGOUT) -> httpx2.Response:
    return await http.post(path, data={"logout_token": logout_token})


def assert_done(response: httpx2.Response) -> None:
    assert (response.status_code, response.content) == (200, b"")
    assert "no-store" in response.headers["cache-control"]
    assert "content-type" not in response.headers


def assert_refused(response: httpx2.Response, says: str, status: int = 400) -> None:
    body = response.json()
    assert (response.status_code, body["error"]) == (status, "invalid_request")
    assert says in body["error_description"]
    assert "no-store" in response.headers["cache-control"]


def assert_unavailable(response: httpx2.Response) -> None:
    assert (response.status_code, response.json()["error"]) == (503, "temporarily_unavailable")
    assert int(response.headers["retry-after"]) >= 1


@pytest.mark.clause("spec-6-events")
async def test_logout_without_a_sid_ends_all_of_the_user(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, json_logs: io.StringIO
) -> None:
    sessions = [await log_in(http), await log_in(http)]
    provider.claims["sub"] = "another person"
    other = await log_in(http)
    events_of(json_logs)

    assert_done(await log_out(http, provider.make_logout_token(sub=CLAIMS["sub"])))

    told = {"username": CLAIMS["sub"], "realm": "cep", "address": "203.0.113.7", "reason": "user"}
    assert events_of(json_logs) == [("provider_logout", told)]
    assert [await is_live(http, session) for session in sessions] == [False, False]
    assert await is_live(http, other)


async def test_logout_with_a_sid_spares_other_logins_of_the_user(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, json_logs: io.StringIO
) -> None:
    """Without a text as the name of the login at the provider, every end of a login counts."""
    sessions = []
    for sid in ("this login", "another login", None, 7):
        provider.id_token_claims = {"sid": sid}
        sessions.append(await log_in(http))
    events_of(json_logs)

    assert_done(await log_out(http, provider.make_logout_token(sid="this login")))

    assert [(event, fields["reason"]) for event, fields in events_of(json_logs)] == [("provider_logout", "login")]
    assert [await is_live(http, session) for session in sessions] == [False, True, False, False]


@pytest.mark.clause("decided-events-of-users")
@pytest.mark.parametrize("sid", [None, "a login"])
async def test_logout_of_a_user_without_sessions_is_only_logged(
    cep: None, http: httpx2.AsyncClient, worker: Worker, provider: FakeProvider, json_logs: io.StringIO, sid: str | None
) -> None:
    for number in range(10):
        assert_done(await log_out(http, provider.make_logout_token(sub=f"nobody{number}", sid=sid)))
    await worker.audit_stream.flush()

    assert [event for event, _ in events_of(json_logs)] == ["nothing_revoked"] * 10
    assert await worker.event_stream.read() == []


@pytest.mark.parametrize("sid", [None, "a login"])
async def test_logout_ends_an_open_consent_page_and_a_code(
    cep: None, http: httpx2.AsyncClient, browser: Browser, provider: FakeProvider, sid: str | None
) -> None:
    provider.id_token_claims = {"sid": "a login"}
    page = await log_in_through_cep(browser)
    code = authorization_response(await browser.allow(page))["code"]
    page = await browser.open(ASK_CEP)
    assert is_consent_page(page)

    assert_done(await log_out(http, provider.make_logout_token(sid=sid)))

    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    assert_refused_page(await browser.allow(page), 403, "signed_out")
    assert (await browser.open(ASK_CEP)).status_code == 303


@pytest.mark.clause("decided-login-under-way-at-revocation", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("sid", [None, "a login"])
async def test_login_under_way_does_not_survive_the_logout(
    cep: None, http: httpx2.AsyncClient, browser: Browser, provider: FakeProvider, sid: str | None
) -> None:
    """The browser is sent to the provider again, and then has a login."""
    provider.id_token_claims = {"sid": "a login"}
    back = await log_in_at_provider(await start_login(browser))

    assert_done(await log_out(http, provider.make_logout_token(sid=sid)))

    anew = location_of(await browser.open(back))
    assert SESSION_COOKIE not in browser.cookie_values
    assert is_consent_page(await browser.open(await log_in_at_provider(anew)))


async def test_logout_of_a_user_without_sessions_is_done(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider
) -> None:
    for sid in (None, "a login"):
        assert_done(await log_out(http, provider.make_logout_token(sub="nobody", sid=sid)))


async def test_refused_logout_ends_nothing(cep: None, http: httpx2.AsyncClient, provider: FakeProvider) -> None:
    session = await log_in(http)
    token = provider.make_logout_token()

    assert_refused(await log_out(http, provider.make_logout_token(aud="another")), "The aud of the logout token")
    assert_refused(await log_out(http, token.rpartition(".")[0] + "."), "sign")
    assert_refused(await log_out(http, provider.make_logout_token(header={"kid": "forged"})), "signature")
    assert_refused(await http.post(LOGOUT, data={"x": "y"}), "logout_token is missing")
    assert_refused(await http.post(f"{LOGOUT}?logout_token={token}"), "content type")
    assert_refused(await http.post(LOGOUT, data={"logout_token": [token, token]}), "more than once")
    assert (await http.get(LOGOUT)).status_code == 405

    assert await is_live(http, session)
    assert_done(await log_out(http, token))


@pytest.mark.parametrize(
    "changes",
    [{"username_claim": "email"}, {"jwks_uri": None, "userinfo_endpoint": "https://login.example.org/userinfo"}],
    ids=repr,
)
async def test_realm_without_logout_is_not_found(
    register_realm: RegisterRealm, http: httpx2.AsyncClient, provider: FakeProvider, changes: dict[str, object]
) -> None:
    await register_realm(**changes)

    for realm in ("cep", "main", "other", "%20"):
        path = f"/oauth2/v1/backchannel-logout/{realm}"
        assert_refused(await log_out(http, provider.make_logout_token(), path), "not support back-channel logout", 404)
    assert provider.requests == [] or "jwks_uri" in changes  # which are then looked for


# One use


@pytest.mark.clause("decided-logout-token-once")
async def test_one_of_many_repeats_of_a_token_ends_sessions(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, clock: Clock
) -> None:
    """Contenders that meet the first use may repeat its work. Nobody can do so later, to end a new login."""
    session, token = await log_in(http), provider.make_logout_token()
    responses = await asyncio.gather(*(log_out(http, token) for _ in range(CONTENDERS)))
    assert {response.status_code for response in responses} <= {200, 400}
    assert_done(next(response for response in responses if response.status_code == 200))
    assert not await is_live(http, session)

    clock.advance(1)  # each logout moves the mark by a millisecond at least
    session = await log_in(http)
    for response in await asyncio.gather(*(log_out(http, token) for _ in range(CONTENDERS))):
        assert_refused(response, "this jti has already been processed")
    assert await is_live(http, session)


@pytest.mark.clause("decided-logout-token-once")
async def test_used_token_is_refused_until_it_is_too_old(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, clock: Clock
) -> None:
    """The token comes from a clock that is almost a minute ahead, and never expires."""
    now = read_wall_clock()
    token = provider.make_logout_token(iat=now + 50, exp=now + 10_000)
    assert_done(await log_out(http, token))
    clock.advance(640)
    assert_refused(await log_out(http, token), "jti")
    clock.advance(20)

    assert_refused(await log_out(http, token), "The iat of the logout token violates")


@pytest.mark.clause("decided-logout-token-once")
@pytest.mark.parametrize("is_done", [True, False], ids=["after the work", "before the work"])
async def test_outage_before_the_note_leaves_the_token_usable(
    cep: None, http_worker: Worker, make_settings: MakeSettings, provider: FakeProvider, is_done: bool
) -> None:
    """Redis goes away before the token is noted as used. The sessions have ended by then, or they have not."""

    async def refuse(call: int) -> None:
        if call == int(is_done):
            raise StoreUnavailable("broken by the test")

    connection = InterposedConnection(make_settings(), refuse)
    if is_done:
        http_worker.single_use = SingleUse(connection)
    else:
        http_worker.revocations = Revocations(connection)
    async with serving_worker(http_worker) as http:
        session, token = await log_in(http), provider.make_logout_token()
        assert_unavailable(await log_out(http, token))
        assert await is_live(http, session) is not is_done

        assert_done(await log_out(http, token))
        assert not await is_live(http, session)
        assert_refused(await log_out(http, token), "jti")
    await connection.close()


# Keys


@pytest.mark.clause("decided-external-fresh-keys")
@pytest.mark.parametrize(("old", "new"), KEY_NAMES)
async def test_new_key_of_the_provider_is_fetched(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, held_time: LoopTime, old: str | None, new: str | None
) -> None:
    provider.replace_key(old)
    session = await log_in(http)
    held_time.advance(NEW_KEYS_SECONDS + 1)
    provider.replace_key(new)

    assert_done(await log_out(http, provider.make_logout_token()))
    assert not await is_live(http, session)
    assert len(provider.calls(KEYS)) == 2


@pytest.mark.parametrize("path", [OPENID_METADATA, KEYS])
@pytest.mark.parametrize("answer", [Reply(500), Drop(), Hang()], ids=lambda answer: type(answer).__name__)
async def test_token_may_come_again_after_a_failure_of_the_keys(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, held_time: LoopTime, path: str, answer: Answer
) -> None:
    token = provider.make_logout_token()
    provider.answer(path, answer)
    assert_unavailable(await held_time.advance_until_done(log_out(http, token)))

    provider.answer(path, None)
    assert_done(await log_out(http, token))


# Strangers


@pytest.mark.clause("decided-logout-strangers")
async def test_forged_tokens_cause_few_requests_for_keys(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, held_time: LoopTime
) -> None:
    """A token with a wrong claim causes none. Many with a made-up key or signature cause one in five seconds."""
    await log_in(http)
    held_time.advance(KEYS_SECONDS + 1)
    for forged in (provider.make_logout_token(iss="https://forged.example"), "x.y.z"):
        assert (await log_out(http, forged)).status_code == 400
    assert len(provider.calls(KEYS)) == 1

    right = provider.make_logout_token()
    many = [provider.make_logout_token(header={"kid": "forged"}), right[:-342] + "A" * 342] * CONTENDERS
    for count in (2, 2, 3):
        for response in await asyncio.gather(*(log_out(http, forged) for forged in many)):
            assert_refused(response, "signature")
        assert len(provider.calls(KEYS)) == count
        held_time.advance(4)


@pytest.mark.clause("decided-logout-strangers")
async def test_forged_tokens_open_no_circuit_for_others(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, held_time: LoopTime
) -> None:
    """The provider's keys cannot be fetched, but the service has those that honest tokens need."""
    await log_in(http)
    held_time.advance(NEW_KEYS_SECONDS + 1)
    provider.answer(KEYS, Drop())
    forged = provider.make_logout_token(header={"kid": "forged"})
    for _ in range(3 * FAILURES):
        assert_unavailable(await log_out(http, forged))
    assert len(provider.calls(KEYS)) == 1 + FAILURES

    session = await log_in(http)
    assert_done(await log_out(http, provider.make_logout_token()))
    assert not await is_live(http, session)


@pytest.mark.clause("decided-logout-strangers")
async def test_login_with_known_keys_waits_for_no_forged_token(
    cep: None, http: httpx2.AsyncClient, provider: FakeProvider, held_time: LoopTime
) -> None:
    await log_in(http)
    held_time.advance(NEW_KEYS_SECONDS + 1)
    provider.answer(KEYS, Hang())
    forged = provider.make_logout_token(header={"kid": "forged"})
    logouts = [asyncio.create_task(log_out(http, forged)) for _ in range(CALLS)]
    await provider.await_requests(KEYS, 2)

    login = asyncio.create_task(log_in(http))
    await until(login.done, "the login")
    assert not any(logout.done() for logout in logouts)
    assert await is_live(http, login.result())
    await held_time.advance_until_done(asyncio.wait(logouts))
    for logout in logouts:
        assert_unavailable(logout.result())
