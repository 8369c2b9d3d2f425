"""Redis runs a script and the answer is lost: no theft, no second run, and no call gets another's answer."""

import asyncio
from collections.abc import Sequence

import httpx2
import pytest

from service.config.settings import load_settings
from service.protocol.user import identify_user
from service.store.client import load_script
from service.worker import Worker
from tests.conftest import Clock, serving
from tests.faults.deployment import Deployment, Session, call_of, start_sessions
from tests.support.browser import Browser, assert_refused, authorization_response, authorization_url, is_login_page
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    UserCredentials,
    assert_error,
    revoke_all,
    tokens_of,
)
from tests.support.loop_time import LoopTime
from tests.support.redis_monitor import recording_commands
from tests.support.waiting import until, until_status

SPEND = load_script("sessions/spend_refresh_token")
# A worker runs these in the background: it writes security events and looks for the secret keys in use.
BACKGROUND = [load_script(name) for name in ("append_events", "register_secret_keys")]
USERS = 16


@pytest.mark.clause("decided-i10-outage-is-not-theft", "decided-i10-own-retry", "spec-3-replay-in-grace")
@pytest.mark.clause("decided-replay-gets-the-head")
async def test_retry_of_a_lost_refresh_gets_the_newest_token(
    deployment: Deployment, proxied_http: httpx2.AsyncClient
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(proxied_http, ALICE))
    for spent in (1, 2, 3):
        deployment.proxy.cut_after = call_of("sessions/spend_refresh_token")

        with recording_commands(deployment.store) as commands:
            assert_error(await PHONE_APP.refresh(proxied_http, tokens["refresh_token"]), 503, "temporarily_unavailable")

        assert deployment.proxy.cut_after is None
        assert count_runs(commands) == 1
        family = deployment.find_family(tokens["refresh_token"])
        assert family is not None
        # One generation was spent and one access token added, so the script ran once.
        assert (family.head, len(family.access_digests)) == (spent + 1, 2 * spent)
        again = tokens_of(await PHONE_APP.refresh(proxied_http, tokens["refresh_token"]))
        head = deployment.find_family(again["refresh_token"])
        assert head is not None
        assert head.head == spent + 1
        assert deployment.knows_access_token(again["access_token"])
        tokens = again


@pytest.mark.clause("decided-password-change-pending", "decided-i10-own-retry")
async def test_worker_finishes_password_change_without_answer(
    deployment: Deployment, worker: Worker, loop_time: LoopTime
) -> None:
    before = await worker.registry.users.find(identify_user(BOB.realm, BOB.username))
    assert before is not None
    fields = {"current": BOB.password, "new": "a new password", "repeated": "a new password"}
    settings = load_settings(deployment.environment(REDIS_URL=deployment.proxy.url))
    async with serving(settings, Clock(deployment.store)) as http:
        tokens = tokens_of(await PHONE_APP.log_in(http, BOB))
        browser, other = Browser(http), Browser(http)
        page = await browser.sign_in(BOB)
        await other.sign_in(BOB)
        deployment.proxy.cut_after = call_of("registry/replace_password_hash")
        try:
            lost = await browser.submit(page, "/sessions/password", fields)

            assert_refused(lost, 503, "busy")
            assert deployment.proxy.cut_after is None
            with loop_time.running_at(5):  # a worker looks for pending revocations every 15 seconds
                await until(lambda: not deployment.knows_access_token(tokens["access_token"]))
            assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 400, "invalid_grant")
            for each in (browser, other):
                assert is_login_page(await each.open("/sessions/"))
            new = UserCredentials(BOB.username, "a new password")
            assert not is_login_page(await browser.sign_in(new))
        finally:
            await worker.registry.users.put(before)


def count_runs(commands: Sequence[str]) -> int:
    """Return how often requests ran scripts. What a worker runs in the background does not count."""
    runs = [command for command in commands if command.upper().startswith("EVAL")]
    return sum(not any(script.sha1 in run or script.text in run for script in BACKGROUND) for run in runs)


@pytest.mark.clause("decided-i10-outage-is-not-theft", "decided-i10-own-retry", "decided-i1-one-winner")
async def test_second_click_on_allow_returns_the_lost_code(
    deployment: Deployment, proxied_http: httpx2.AsyncClient
) -> None:
    browser = Browser(proxied_http)
    page = await browser.open_consent_page(authorization_url())
    deployment.proxy.cut_after = call_of("browsers/allow_consent")

    with recording_commands(deployment.store) as commands:
        lost = await browser.allow(page)

    assert_refused(lost, 503, "busy")
    assert int(lost.headers["retry-after"]) >= 1
    assert deployment.proxy.cut_after is None
    assert count_runs(commands) == 1
    (made,) = deployment.store.scan_iter("code:*")
    code = authorization_response(await browser.allow(page))["code"]
    assert list(deployment.store.scan_iter("code:*")) == [made]
    tokens = tokens_of(await PHONE_APP.exchange(proxied_http, code, PHONE_CALLBACK))
    assert deployment.knows_access_token(tokens["access_token"])
    assert_refused(await browser.allow(page), 400, "answered")


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-revoke-all-presented-token-last")
async def test_revocation_without_answer_holds_and_can_be_repeated(
    deployment: Deployment, proxied_http: httpx2.AsyncClient
) -> None:
    tokens, other = [tokens_of(await PHONE_APP.log_in(proxied_http, ALICE)) for _ in range(2)]

    deployment.proxy.cut_after = call_of("sessions/end_family")
    assert_error(await PHONE_APP.revoke(proxied_http, tokens["refresh_token"]), 503, "temporarily_unavailable")
    assert not deployment.knows_access_token(tokens["access_token"])
    assert (await PHONE_APP.revoke(proxied_http, tokens["refresh_token"])).status_code == 200

    deployment.proxy.cut_after = call_of("sessions/revoke_all")
    assert_error(await revoke_all(proxied_http, other["access_token"]), 503, "temporarily_unavailable")
    assert_error(await PHONE_APP.refresh(proxied_http, other["refresh_token"]), 400, "invalid_grant")
    assert (await revoke_all(proxied_http, other["access_token"])).status_code == 200
    assert not deployment.knows_access_token(other["access_token"])


@pytest.mark.clause("decided-i10-cancelled-request", "decided-i8-one-deadline")
async def test_late_answer_reaches_no_other_call(
    deployment: Deployment, proxied_http: httpx2.AsyncClient, worker: Worker
) -> None:
    """The calls are given up, and the connection that all share with them."""
    usernames = [f"user-{number}@example.com" for number in range(USERS)]
    sessions = [(username, (await start_sessions(worker, username, 1))[0]) for username in usernames]
    deployment.proxy.keep_back = call_of("sessions/spend_refresh_token")

    given_up = await asyncio.gather(*(ask_often(deployment, proxied_http, *session) for session in sessions))

    deployment.proxy.deliver()
    assert sum(given_up) > 0
    # The next connection answers everybody rightly, too.
    await until_status(lambda: proxied_http.get("/readyz"), 200)
    assert sum(await asyncio.gather(*(ask_often(deployment, proxied_http, *session) for session in sessions))) == 0


async def ask_often(deployment: Deployment, http: httpx2.AsyncClient, username: str, session: Session) -> int:
    """Each 200 answer must be the caller's own; how many requests were given up."""
    given_up = 0
    for _ in range(2):
        response = await PHONE_APP.refresh(http, session[1])
        if response.status_code == 503:
            given_up += 1
            continue
        tokens = tokens_of(response)
        record = deployment.find_access_token(tokens["access_token"])
        family = deployment.find_family(session[1])
        assert record is not None
        assert family is not None
        assert username == record[6] == family.username
        assert deployment.find_family(tokens["refresh_token"]) == family
    return given_up
