"""Pages below HTTP: browsers that are signed in, and consents that they have open."""

from dataclasses import dataclass
from typing import Any

import msgspec

from service.crypto.keyring import make_browser_session, make_consent
from service.protocol.authorization_code import AuthorizationCode
from service.protocol.token_form import RandomToken
from service.protocol.user import User, identify_user
from service.store.browsers.consents import AllowAnswer, DenyAnswer
from service.store.keys import browser_key, code_key, consent_key, index_key, mark_key
from tests.store.sessions import Sessions, make_code_of
from tests.support.clients_and_users import ALICE, UserCredentials
from tests.support.codes import SESSION_MS, consent_request_for
from tests.support.logins import login_of

CONSENT_MS = 1_800_000

_BROWSER_LINES = "version created_ms expires_ms user_digest subject realm username login name browser_name used_ms sid"
_CONSENT_LINES = "version created_ms expires_ms login user_digest answer request sid"
_CODE_LINES = (
    "version created_ms expires_ms user_digest subject client_id redirect_uri code_challenge username scope "
    "browser_name sid"
)


@dataclass(frozen=True)
class Page:
    """A consent as its browser has it: the user, and the code that the consent would lead to."""

    user: User
    browser: RandomToken
    consent: RandomToken
    code_name: RandomToken
    code: AuthorizationCode

    @property
    def browser_key(self) -> str:
        return browser_key(self.browser.shard, self.browser.digest)

    @property
    def consent_key(self) -> str:
        return consent_key(self.consent.shard, self.consent.digest)

    @property
    def code_key(self) -> str:
        return code_key(self.code_name.shard, self.code_name.digest)

    @property
    def members(self) -> tuple[str, str, str]:
        """Return the entries of the user's index: the browser session, the consent, the code."""
        return f"browser:{self.browser.digest}", f"consent:{self.consent.digest}", f"code:{self.code_name.digest}"


class Pages:
    """Signs users in, and holds, allows and denies their consents. The lifetimes are those of `sessions`."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.store = sessions.store
        self.browser_sessions = sessions.worker.browser_sessions

    async def sign_in(
        self, credentials: UserCredentials = ALICE, *, lifetime_ms: int = SESSION_MS, sid: str = ""
    ) -> RandomToken:
        user = await self.sessions.find_user(credentials)
        browser = make_browser_session(user.identity.shard)
        assert await self.browser_sessions.start(browser, login_of(user, sid), lifetime_ms=lifetime_ms)
        return browser

    async def make(
        self, credentials: UserCredentials = ALICE, browser: RandomToken | None = None, **fields: str | None
    ) -> Page:
        """Make a consent that is not held yet."""
        user = await self.sessions.find_user(credentials)
        consent = make_consent(user.identity.shard)
        return Page(
            user=user,
            browser=browser or await self.sign_in(credentials),
            consent=consent,
            code_name=self.sessions.worker.keyring.derive_code(consent),
            code=msgspec.structs.replace(make_code_of(credentials), **fields),
        )

    async def hold(self, page: Page) -> bool:
        return await self.sessions.consents.hold(page.consent, page.browser, consent_request_for(page.code))

    async def open(
        self, credentials: UserCredentials = ALICE, browser: RandomToken | None = None, **fields: str | None
    ) -> Page:
        page = await self.make(credentials, browser, **fields)
        assert await self.hold(page)
        return page

    async def allow(self, page: Page, *, browser: RandomToken | None = None) -> AllowAnswer:
        return await self.sessions.consents.allow(
            page.consent, browser or page.browser, page.user, page.code_name, consent_request_for(page.code)
        )

    async def deny(self, page: Page, *, browser: RandomToken | None = None) -> DenyAnswer:
        return await self.sessions.consents.deny(page.consent, browser or page.browser)

    def browser_record(self, browser: RandomToken) -> dict[str, str]:
        """Return the record by the names of its lines, or nothing if there is none."""
        return self._read(browser_key(browser.shard, browser.digest), _BROWSER_LINES)

    def consent_record(self, page: Page) -> dict[str, str]:
        return self._read(page.consent_key, _CONSENT_LINES)

    def code_record(self, page: Page) -> dict[str, str]:
        return self._read(page.code_key, _CODE_LINES)

    def change_browser(self, page: Page, **lines: str) -> None:
        self._change(page.browser_key, self.browser_record(page.browser) | lines)

    def change_consent(self, page: Page, **lines: str) -> None:
        self._change(page.consent_key, self.consent_record(page) | lines)

    def index(self, credentials: UserCredentials = ALICE) -> dict[str, int]:
        """Return the user's index: each member, and when it ends in milliseconds."""
        members: Any = self.store.zrange(self.index_key(credentials), 0, -1, withscores=True)
        return {str(member): int(ends_ms) for member, ends_ms in members}

    def index_key(self, credentials: UserCredentials = ALICE) -> str:
        identity = identify_user(credentials.realm, credentials.username)
        return index_key(identity.shard, identity.digest)

    def set_mark(self, marked_ms: int, credentials: UserCredentials = ALICE) -> None:
        """Set the mark of a revokeAll that has deleted nothing yet."""
        identity = identify_user(credentials.realm, credentials.username)
        self.store.set(mark_key(identity.shard, identity.digest), marked_ms, px=10_000_000)

    def dump_all(self) -> dict[str, str | list[tuple[str, float]] | dict[str, str]]:
        """Return every key with its value."""
        return {key: self._look_at(key) for key in sorted(map(str, self.store.scan_iter(count=1000)))}

    def _look_at(self, key: str) -> Any:
        kind = self.store.type(key)
        if kind == "zset":
            return self.store.zrange(key, 0, -1, withscores=True)
        if kind == "hash":
            return self.store.hgetall(key)
        return sorted(self.store.smembers(key)) if kind == "set" else self.store.get(key)

    def _change(self, key: str, record: dict[str, str]) -> None:
        self.store.set(key, "\n".join(record.values()), keepttl=True)

    def _read(self, key: str, lines: str) -> dict[str, str]:
        text = self.store.get(key)
        return {} if text is None else dict(zip(lines.split(), str(text).split("\n"), strict=True))
