"""Many concurrent changes of one password: one is made, and no session outlives it."""

import asyncio
from collections.abc import AsyncIterator

import httpx2
import pytest

from service.crypto.password_hashing import verify_password
from service.protocol.user import identify_user
from service.worker import Worker
from tests.races.instances import InstancePair, all_at_once, is_live, until_available
from tests.support.browser import SESSIONS, Browser, is_login_page
from tests.support.clients_and_users import BOB, PHONE_APP, UserCredentials, tokens_of
from tests.support.invalidations import await_invalidations

CONTENDERS = 20
LOGINS = 12
IDENTITY = identify_user(BOB.realm, BOB.username)


@pytest.fixture
async def bob(instances: InstancePair, worker: Worker) -> AsyncIterator[UserCredentials]:
    """Bob, who has his password back after the test, since the registry is shared."""
    before = await worker.registry.users.find(IDENTITY)
    assert before is not None
    yield BOB
    await worker.registry.users.put(before)
    await await_invalidations(worker)


async def change_password(browser: Browser, page: httpx2.Response, new: str) -> httpx2.Response:
    fields = {"current": BOB.password, "new": new, "repeated": new}
    return await until_available(lambda: browser.submit(page, "/sessions/password", fields))


async def open_windows(http: httpx2.AsyncClient, count: int) -> list[tuple[Browser, httpx2.Response]]:
    """Sign Bob in once. Returns windows with the same cookies, which do not see later changes of them."""
    browser = Browser(http)
    page = await browser.sign_in(BOB)
    windows = [Browser(http) for _ in range(count)]
    for window in windows:
        window.cookies = httpx2.Cookies(browser.cookies)
    return [(window, page) for window in windows]


async def find_password(worker: Worker, passwords: list[str]) -> str:
    """Return the one of these passwords that is Bob's now."""
    user = await worker.registry.users.find(IDENTITY)
    assert user is not None
    assert user.password_hash is not None
    (password,) = [each for each in passwords if verify_password(each, user.password_hash)[0]]
    return password


@pytest.mark.clause("decided-password-change-one-wins", "decided-i1-one-winner")
async def test_one_of_many_equal_password_changes_succeeds(
    bob: UserCredentials, worker: Worker, http: httpx2.AsyncClient
) -> None:
    windows = await open_windows(http, CONTENDERS)
    passwords = [f"password number {number}" for number in range(CONTENDERS)]
    await all_at_once(
        [change_password(window, page, new) for (window, page), new in zip(windows, passwords, strict=True)]
    )
    signed_in = [not is_login_page(await window.open(SESSIONS)) for window, _ in windows]

    winner = passwords.index(await find_password(worker, passwords))
    assert signed_in == [number == winner for number in range(CONTENDERS)]
    assert not await worker.registry.has_pending()


@pytest.mark.clause("decided-password-change", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("place", [0, LOGINS // 2, LOGINS])
async def test_no_login_with_the_old_password_outlives_a_change(
    bob: UserCredentials, worker: Worker, instances: InstancePair, http: httpx2.AsyncClient, place: int
) -> None:
    """A login that was checked before the change may commit after it, and then is refused."""
    [(window, page)] = await open_windows(http, 1)
    strangers = [Browser(http) for _ in range(LOGINS)]
    pages = [await stranger.open(SESSIONS) for stranger in strangers]
    logins = [PHONE_APP.log_in(http, BOB) for _ in range(LOGINS)]
    browser_logins = [stranger.log_in(login, BOB) for stranger, login in zip(strangers, pages, strict=True)]
    requests = [*logins[:place], *browser_logins[:place], change_password(window, page, "a new password")]
    answers = await all_at_once([*requests, *logins[place:], *browser_logins[place:]])

    assert await find_password(worker, [BOB.password, "a new password"]) == "a new password"
    assert not is_login_page(await window.open(SESSIONS))
    for answer in answers:
        if "application/json" in answer.headers["content-type"] and answer.status_code == 200:
            assert not await is_live(instances, http, PHONE_APP, dict(tokens_of(answer)))
    for opened in await asyncio.gather(*(stranger.open(SESSIONS) for stranger in strangers)):
        assert is_login_page(opened)
