"""Actions of users on the pages, and checks of what the pages show."""

import msgspec
from playwright.async_api import Locator, Page, expect

from service.crypto.keyring import make_browser_secret, make_browser_session
from service.worker import Worker
from tests.pages.browser import PATIENCE_MS
from tests.support.browser import cookie_name, page_text
from tests.support.clients_and_users import ALICE, UserCredentials
from tests.support.codes import SESSION_MS
from tests.support.logins import login_of

HOUR_SECONDS = 3_600
expect.set_options(timeout=PATIENCE_MS)


def button(page: Page, text: str) -> Locator:
    """Return the button whose text has this key."""
    return page.get_by_role("button", name=page_text(text), exact=True)


def username_field(page: Page) -> Locator:
    return page.get_by_label(page_text("login.username"))


def password_field(page: Page) -> Locator:
    return page.get_by_label(page_text("login.password"))


def stay_box(page: Page) -> Locator:
    return page.get_by_label(page_text("login.stay"))


async def fill_login(page: Page, credentials: UserCredentials = ALICE, *, stay: bool = False) -> None:
    await username_field(page).fill(credentials.username)
    await password_field(page).fill(credentials.password)
    await stay_box(page).set_checked(stay)


async def log_in(page: Page, credentials: UserCredentials = ALICE, *, stay: bool = False) -> None:
    await fill_login(page, credentials, stay=stay)
    await button(page, "login.submit").click()


async def sign_in(page: Page, credentials: UserCredentials = ALICE, *, stay: bool = False) -> None:
    """Log in at the page of sessions."""
    await page.goto("/sessions/")
    await log_in(page, credentials, stay=stay)
    await expect_heading(page, "sessions.heading")


async def set_login_cookies(page: Page, worker: Worker, credentials: UserCredentials = ALICE) -> None:
    """Set the cookies of a login, for tests that are not about logging in."""
    user = await worker.logins.find_user(credentials.realm, credentials.username)
    assert user is not None
    session = make_browser_session(user.identity.shard)
    assert await worker.browser_sessions.start(session, login_of(user), lifetime_ms=SESSION_MS)
    web_url = (await page.request.get("/healthz")).url.removesuffix("/healthz")
    for name, value in (("browser", make_browser_secret()), ("session", session.text)):
        await page.context.add_cookies(
            [
                {
                    "name": cookie_name(name, web_url),
                    "value": value,
                    "domain": "127.0.0.1",
                    "path": "/",
                    "httpOnly": True,
                    "sameSite": "Lax",
                }
            ]
        )


async def open_consent_page(page: Page, address: str, credentials: UserCredentials = ALICE) -> None:
    """Open an authorization request in a browser without a login, and log in."""
    await page.goto(address)
    await log_in(page, credentials)
    await expect_consent(page)


async def allow(page: Page) -> None:
    await button(page, "consent.allow").click()


async def deny(page: Page) -> None:
    await button(page, "consent.deny").click()


async def find_middle(of: Locator) -> tuple[float, float]:
    """Return where to click during a navigation. Playwright's `click` waits for a page that stays."""
    await of.scroll_into_view_if_needed()
    box = await of.bounding_box()
    assert box is not None
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def expect_heading(page: Page, text: str) -> None:
    await expect(page.get_by_role("heading", level=1)).to_have_text(page_text(text))


async def expect_login(page: Page) -> None:
    await expect_heading(page, "login.heading")
    await expect(password_field(page)).to_have_value("")


async def expect_consent(page: Page, client_name: str = "Example Shop") -> None:
    heading = page_text("consent.heading").format(client_name=client_name)
    await expect(page.get_by_role("heading", level=1)).to_have_text(heading)


async def expect_refusal(page: Page, kind: str) -> None:
    """Check for an error page with this reason and without buttons."""
    await expect_heading(page, f"refused.{kind}_heading")
    await expect(page.get_by_text(page_text(f"refused.{kind}_message"))).to_be_visible()
    await expect(page.get_by_role("button")).to_have_count(0)


async def register_person(worker: Worker, username: str, **changes: object) -> UserCredentials:
    """Register a user with Alice's password, and her roles unless the changes say otherwise."""
    alice = await worker.logins.find_user(ALICE.realm, ALICE.username)
    assert alice is not None
    await worker.registry.users.put(msgspec.structs.replace(alice, username=username, **changes))
    return UserCredentials(username, ALICE.password)
