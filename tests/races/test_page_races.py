"""The pages with many concurrent clicks: one answer counts, and nothing is issued after a log-out."""

import asyncio
from collections.abc import Awaitable, Sequence
from functools import partial

import httpx2
import pytest

from service.protocol.user import identify_user
from service.worker import Worker
from tests.races.instances import InstancePair, all_at_once, is_live, places, until_available
from tests.support.browser import (
    SESSIONS,
    Browser,
    assert_refused,
    authorization_response,
    authorization_url,
    change_user,
    is_consent_page,
    is_login_page,
)
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    SHOP_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    revoke_all,
    revoke_user,
    tokens_of,
)
from tests.support.invalidations import await_invalidations

ROUNDS = 2
CLICKS = 24
LOGINS = 8
PLACES = (0, 1, 5, CLICKS // 2, CLICKS)
PLACES_OF_ONE = places(0, 5, CLICKS, more=(1, CLICKS // 2))
"""The positions of the ending request among the clicks. Each gives another interleaving."""

Opened = tuple[Browser, httpx2.Response]


def copy_of(browser: Browser) -> Browser:
    """Return another window with the same cookies, which does not see later changes of them."""
    copy = Browser(browser.http)
    copy.cookies = httpx2.Cookies(browser.cookies)
    return copy


async def open_pages(http: httpx2.AsyncClient, browsers: int, pages: int) -> list[Opened]:
    """Open several consent pages of Alice's in each of several browsers, each in a window of its own."""
    opened: list[Opened] = []
    for _ in range(browsers):
        browser = Browser(http)
        answers = [await browser.open_consent_page(authorization_url()) for _ in range(pages)]
        opened += [(copy_of(browser), answer) for answer in answers]
    return opened


async def click(browser: Browser, page: httpx2.Response, *, allows: bool = True) -> httpx2.Response:
    """Click on allow or deny, and once more if the service is too busy, as the page says."""
    return await until_available(lambda: browser.allow(page) if allows else browser.deny(page))


def codes_of(answers: Sequence[httpx2.Response]) -> set[str]:
    """Return the codes of the clicks that were answered with a redirect."""
    return {authorization_response(answer)["code"] for answer in answers if answer.status_code == 303}


async def run_with(
    place: int, clicks: Sequence[Awaitable[httpx2.Response]], end: Awaitable[httpx2.Response]
) -> tuple[list[httpx2.Response], httpx2.Response]:
    """Send the ending request at this position among the clicks. Returns the answers to the clicks, and its own."""
    requests = [asyncio.ensure_future(click) for click in clicks[:place]]
    ending = asyncio.ensure_future(end)
    requests += [asyncio.ensure_future(click) for click in clicks[place:]]
    return list(await asyncio.gather(*requests)), await ending


@pytest.mark.clause("decided-one-consent-one-code", "decided-i1-one-winner", "6749-10.5-short-lived-single-use")
@pytest.mark.parametrize(("client", "callback"), [(PHONE_APP, PHONE_CALLBACK), (WEB_SHOP, SHOP_CALLBACK)])
async def test_many_clicks_on_allow_give_one_code(
    instances: InstancePair, http: httpx2.AsyncClient, client: OAuthClient, callback: str
) -> None:
    browser = Browser(http)
    for _ in range(ROUNDS):
        page = await browser.open_consent_page(authorization_url(client, callback))

        answers = await all_at_once([click(browser, page) for _ in range(CLICKS)])

        (code,) = {authorization_response(answer, callback)["code"] for answer in answers}
        assert len(list(instances.store.scan_iter("code:*"))) == 1
        tokens = dict(tokens_of(await client.exchange(http, code, callback)))
        for answer in await all_at_once([click(browser, page) for _ in range(CLICKS)]):
            assert_refused(answer, 400, "answered")
        assert not list(instances.store.scan_iter("code:*"))
        assert await is_live(instances, http, client, tokens)


@pytest.mark.clause("decided-one-consent-one-code", "decided-i1-one-winner", "6749-4.1.2-second-use-denied")
async def test_clicks_during_the_exchange_give_no_second_session(
    instances: InstancePair, http: httpx2.AsyncClient
) -> None:
    browser = Browser(http)
    for place in PLACES:
        page = await browser.open_consent_page(authorization_url())
        code = authorization_response(await browser.allow(page))["code"]

        clicks = [click(browser, page) for _ in range(CLICKS)]
        answers, exchanged = await run_with(place, clicks, PHONE_APP.exchange(http, code, PHONE_CALLBACK))

        assert codes_of(answers) <= {code}
        for answer in answers:
            if answer.status_code != 303:
                assert_refused(answer, 400, "answered")
        assert not list(instances.store.scan_iter("code:*"))
        assert await is_live(instances, http, PHONE_APP, dict(tokens_of(exchanged)))


@pytest.mark.clause("decided-i1-one-winner", "decided-second-exchange-ends-family", "6749-4.1.2-second-use-denied")
async def test_concurrent_exchanges_of_a_page_code_have_one_winner(
    instances: InstancePair, http: httpx2.AsyncClient
) -> None:
    browser = Browser(http)
    for _ in range(ROUNDS):
        code = await browser.get_code()

        answers = await all_at_once([PHONE_APP.exchange(http, code, PHONE_CALLBACK) for _ in range(CLICKS)])

        (won,) = [answer for answer in answers if answer.status_code == 200]
        for answer in answers:
            if answer is not won:
                assert_error(answer, 400, "invalid_grant")
        assert not await is_live(instances, http, PHONE_APP, dict(tokens_of(won)))


@pytest.mark.clause("decided-i1-one-winner", "spec-4.1-denial")
@pytest.mark.parametrize("denies", [1, CLICKS // 2, CLICKS - 1])
@pytest.mark.parametrize("allow_first", [False, True])
async def test_concurrent_allow_and_deny_count_once(
    instances: InstancePair, http: httpx2.AsyncClient, denies: int, allow_first: bool
) -> None:
    browser = Browser(http)
    page = await browser.open_consent_page(authorization_url())
    decisions = sorted([True] * (CLICKS - denies) + [False] * denies, reverse=allow_first)
    if denies == CLICKS // 2:
        decisions = [allow_first, not allow_first] * denies

    answers = await all_at_once([click(browser, page, allows=allows) for allows in decisions])

    told: dict[bool, set[str]] = {True: set(), False: set()}
    for answer, allows in zip(answers, decisions, strict=True):
        if answer.status_code == 303:
            told[allows].add(authorization_response(answer).get("code", "denied"))
        else:
            assert_refused(answer, 400, "answered")
            told[allows].add("answered")
    (winner,) = (told[True] | told[False]) - {"answered"}
    was_allowed = winner != "denied"
    assert told == {was_allowed: {winner}, not was_allowed: {"answered"}}
    assert len(list(instances.store.scan_iter("code:*"))) == was_allowed


async def allow_and_exchange(browser: Browser, page: httpx2.Response) -> httpx2.Response:
    """Click on allow and exchange the code at once. Returns the answer to the exchange, or the page without a code."""
    answer = await click(browser, page)
    if answer.status_code != 303:
        return answer
    return await PHONE_APP.exchange(browser.http, authorization_response(answer)["code"], PHONE_CALLBACK)


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-revoke-all-covers-logins", "spec-4.4-all-tokens")
@pytest.mark.parametrize("place", PLACES_OF_ONE)
@pytest.mark.parametrize("way", ["client", "bearer", "page"])
async def test_nothing_comes_of_pages_that_a_revoke_all_covers(
    instances: InstancePair, http: httpx2.AsyncClient, place: int, way: str
) -> None:
    of_bob = await Browser(http).get_code(credentials=BOB)
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    sessions = Browser(http)
    listed = await sessions.sign_in(ALICE)
    opened = await open_pages(http, 3, 2)
    clicks = [click(browser, page) for browser, page in opened * (CLICKS // len(opened))]
    ways = {
        "client": partial(revoke_user, http, {"format": "email", "email": ALICE.username}),
        "bearer": partial(revoke_all, http, tokens["access_token"]),
        "page": partial(sessions.submit, listed, "/sessions/end-all", {}),
    }

    answers, ended = await run_with(place, clicks, until_available(ways[way]))

    assert ended.status_code == (204 if way == "client" else 200)
    for answer in answers:
        if answer.status_code != 303:
            assert answer.status_code in (400, 403), answer.text
    for code in codes_of(answers):
        assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK), 400, "invalid_grant")
    for answer in await all_at_once([click(browser, page) for browser, page in opened]):
        assert_refused(answer, 403, "signed_out")
    for browser, _ in opened:
        assert is_login_page(await browser.open(authorization_url()))
    assert tokens_of(await PHONE_APP.exchange(http, of_bob, PHONE_CALLBACK))
    later = await Browser(http).get_code()
    assert tokens_of(await PHONE_APP.exchange(http, later, PHONE_CALLBACK))


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-revoke-all-covers-logins")
@pytest.mark.parametrize("place", [1, 3, 6])
async def test_fast_exchanges_do_not_outlive_revoke_all(
    instances: InstancePair, http: httpx2.AsyncClient, place: int
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    opened = await open_pages(http, 3, 2)

    clicks = [allow_and_exchange(browser, page) for browser, page in opened]
    answers, ended = await run_with(place, clicks, until_available(partial(revoke_all, http, tokens["access_token"])))

    assert ended.status_code == 200
    for answer in answers:
        if answer.status_code == 200:
            assert not await is_live(instances, http, PHONE_APP, dict(tokens_of(answer)))
        else:
            assert answer.status_code in (400, 403), answer.text
    assert not list(instances.store.scan_iter("access:*"))
    assert not list(instances.store.scan_iter("code:*"))


@pytest.mark.clause("decided-revoke-all-later-tokens-live", "decided-revoke-all-covers-logins")
@pytest.mark.parametrize("place", [0, LOGINS // 2, LOGINS])
async def test_browser_login_during_revoke_all_is_wholly_live_or_dead(
    instances: InstancePair, http: httpx2.AsyncClient, place: int
) -> None:
    """The order of the two decides. A login that begins after the answer always works."""
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    browsers = [Browser(http) for _ in range(LOGINS)]
    forms = [await browser.open(authorization_url()) for browser in browsers]

    logins = [until_available(partial(browser.log_in, form)) for browser, form in zip(browsers, forms, strict=True)]
    answers, ended = await run_with(place, logins, until_available(partial(revoke_all, http, tokens["access_token"])))

    assert ended.status_code == 200
    for browser, answer in zip(browsers, answers, strict=True):
        assert is_consent_page(answer) or answer.status_code == 403, answer.text
        is_good = is_consent_page(await browser.open(authorization_url()))
        assert is_good != is_login_page(await browser.open(SESSIONS))
        if is_consent_page(answer):
            outcome = await allow_and_exchange(browser, answer)
            assert (outcome.status_code == 200) == is_good, outcome.text
            assert not is_good or await is_live(instances, http, PHONE_APP, dict(tokens_of(outcome)))
    later = Browser(http)
    assert is_consent_page(await later.open_consent_page(authorization_url()))


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-disabled-user")
@pytest.mark.parametrize("place", [0, 3, 8])
async def test_browser_login_during_disabling_is_void(
    instances: InstancePair, http: httpx2.AsyncClient, worker: Worker, place: int
) -> None:
    """A seed disables a user in this order: first the record, then all sessions. Eight logins are not throttled."""
    browsers = [Browser(http) for _ in range(8)]
    forms = [await browser.open(authorization_url()) for browser in browsers]
    opened = await open_pages(http, 2, 3)
    identity = identify_user(ALICE.realm, ALICE.username)

    async def disable() -> httpx2.Response:
        await change_user(worker, ALICE, disabled=True)
        await worker.revocations.revoke_all(identity.shard, identity.digest)
        return httpx2.Response(200)

    known = await worker.registry.users.find(identity)
    assert known is not None
    logins = [until_available(partial(browser.log_in, form)) for browser, form in zip(browsers, forms, strict=True)]
    clicks = [allow_and_exchange(browser, page) for browser, page in opened]
    try:
        answers, _ = await run_with(place, [*logins, *clicks], disable())

        # Earlier logins hold no session now, and later ones are refused.
        for browser in (*browsers, *(browser for browser, _ in opened)):
            assert is_login_page(await browser.open(authorization_url()))
        for browser, answer in zip(browsers, answers[:8], strict=True):
            if is_consent_page(answer):
                assert_refused(await browser.allow(answer), 403, "signed_out")
            else:
                # 400: an attempt that was told to try again had used up the form.
                assert is_login_page(answer) or answer.status_code in (400, 403)
        for answer in answers[8:]:
            assert answer.status_code != 200 or not await is_live(instances, http, PHONE_APP, dict(tokens_of(answer)))
        for kind in ("access", "family", "code", "browser", "consent"):
            assert not list(instances.store.scan_iter(f"{kind}:*")), kind
    finally:
        await worker.registry.users.put(known)
        await await_invalidations(worker)
    assert await Browser(http).get_code()


@pytest.mark.clause("decided-i1-one-winner")
@pytest.mark.parametrize("place", PLACES_OF_ONE)
async def test_sign_out_during_consent_leaves_one_code_at_most(
    instances: InstancePair, http: httpx2.AsyncClient, place: int
) -> None:
    """A code allowed before the sign-out is the client's. A click after it is refused."""
    browser = Browser(http)
    page = await browser.open_consent_page(authorization_url())
    listed, window = await browser.open(SESSIONS), copy_of(browser)

    clicks = [click(window, page) for _ in range(CLICKS)]
    answers, ended = await run_with(
        place, clicks, until_available(partial(browser.submit, listed, "/sessions/sign-out", {}))
    )

    assert is_login_page(ended)
    codes = codes_of(answers)
    assert len(codes) <= 1
    for answer in answers:
        if answer.status_code != 303:
            assert_refused(answer, 403, "signed_out")
    assert_refused(await window.allow(page), 403, "signed_out")
    assert len(list(instances.store.scan_iter("code:*"))) == len(codes)
    for code in codes:
        assert tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))


@pytest.mark.clause("decided-parallel-logins-wait")
async def test_parallel_login_forms_start_one_browser_session(
    instances: InstancePair, http: httpx2.AsyncClient
) -> None:
    """Each gives a session of its own. The browser keeps the last one that it gets."""
    browser = Browser(http)
    form = await browser.open(authorization_url())

    answers = await all_at_once([until_available(partial(browser.log_in, form)) for _ in range(LOGINS)])

    assert {is_consent_page(answer) or answer.status_code in (400, 403) for answer in answers} == {True}
    page = await browser.open_consent_page(authorization_url())
    assert tokens_of(await allow_and_exchange(browser, page))
