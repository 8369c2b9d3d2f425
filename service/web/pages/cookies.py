"""The cookies that a browser brings back, and the proof that a form came from one of our pages.

| cookie  | lifetime               | content                                                              |
| ------- | ---------------------- | -------------------------------------------------------------------- |
| browser | a year                 | a secret of the browser, to which login forms are bound              |
| session | the browser session's  | the name of the browser session                                      |
| device  | a year                 | an entry for the last user who logged in here, for the login limit   |

All cookies are HttpOnly and SameSite=Lax. On https they are Secure and have the prefix __Host-, so that no other host
of the same domain can set them.

Browsers send cookies to all ports and paths of a host. The names therefore end in four characters of the web URL's
digest, as in ts_session_3fa9, and two installations on one host have different cookies.

Clauses: RFC 6749 §10.12, RFC 6819 §4.4.1.8, §5.1.4.2.3
"""

from __future__ import annotations

import hashlib
import re
from typing import Final, Literal, cast
from urllib.parse import urlsplit

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import Keyring, make_browser_secret
from service.protocol.token_form import RandomToken, parse_browser_session
from service.protocol.user import User, UserIdentity
from service.web.request.reading import get_from_query, list_header_values

Notice = Literal[
    "signed_out_here", "signed_out_everywhere", "password_changed", "login_denied", "login_not_admitted", "login_failed"
]
"""The notices that the next page in this browser may show."""

_YEAR_SECONDS: Final = 365 * 24 * 3600
_DEVICE: Final = re.compile(r"([A-Za-z0-9_-]{43})~([A-Za-z0-9_-]{43})")
_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class BrowserCookies:
    def __init__(self, keyring: Keyring, web_url: str) -> None:
        self._keyring = keyring
        self._is_secure = urlsplit(web_url).scheme == "https"
        prefix, suffix = "__Host-" if self._is_secure else "", hashlib.sha256(web_url.encode()).hexdigest()[:4]
        self._browser, self._session, self._device = (
            f"{prefix}ts_{name}_{suffix}" for name in ("browser", "session", "device")
        )
        names = "|".join((self._browser, self._session, self._device))
        self._own_cookies = re.compile(rf"(?:^|;)[ \t]*({names})=([A-Za-z0-9_.~-]*)[ \t]*(?=;|$)")

    def find_secret(self, request: Request) -> str | None:
        secret = self._find(request, self._browser)
        return secret if _SECRET.fullmatch(secret) else None

    def set_browser_cookie(self, response: Response, secret: str) -> None:
        """Set the browser cookie for a year.

        If the cookie ended with the browser, two tabs that open at once would more often get two different cookies.
        """
        self._put(response, self._browser, secret, _YEAR_SECONDS)

    def find_session_token(self, request: Request) -> RandomToken | None:
        return parse_browser_session(self._find(request, self._session))

    def set_session_cookie(self, response: Response, name: RandomToken, max_age_seconds: int | None) -> None:
        """Set the session cookie. If `max_age_seconds` is None, the cookie ends when the browser is closed."""
        self._put(response, self._session, name.text, max_age_seconds)

    def remove_session_cookie(self, response: Response) -> None:
        self._put(response, self._session, "", 0)

    def has_device(self, request: Request) -> bool:
        return bool(self._find(request, self._device))

    def get_device(self, request: Request, identity: UserIdentity, revision: str) -> str:
        """Return the name of this browser for the user who logged in here last, or an empty text for any other user.

        The cookie does not reveal the user. It is valid until the user's record changes: a new password invalidates it.
        """
        found = _DEVICE.fullmatch(self._find(request, self._device))
        if found and self._keyring.recognises_for_page(found[2], "device", identity.digest, revision, found[1]):
            return found[1]
        return ""

    def set_device_cookie(self, request: Request, response: Response, user: User) -> None:
        name = self.get_device(request, user.identity, user.revision) or make_browser_secret()
        signature = self._keyring.sign_for_page("device", user.identity.digest, user.revision, name)
        self._put(response, self._device, f"{name}~{signature}", _YEAR_SECONDS)

    def sign_form(self, form: str, *parts: str) -> str:
        """Return the value of the hidden field `csrf`, bound to the form and to secrets of this browser."""
        return self._keyring.sign_for_page(f"form {form}", *parts)

    def verify_csrf(self, signature: str, form: str, *parts: str) -> bool:
        return self._keyring.recognises_for_page(signature, f"form {form}", *parts)

    def make_notice(self, request: Request, notice: Notice) -> str:
        """Return the address of the sessions page with a notice of what was just done; see `find_notice`."""
        proof = self.sign_form("notice", self.find_secret(request) or "", notice)
        return f"/sessions/?notice={notice}&proof={proof}"

    def find_notice(self, request: Request) -> Notice | None:
        """Return the notice of what was just done in this browser, or None.

        A link without a proof for this browser has no notice.
        """
        notice, proof = (get_from_query(request, name) for name in ("notice", "proof"))
        secret = self.find_secret(request)
        is_true = secret is not None and self.verify_csrf(proof, "notice", secret, notice)
        return cast("Notice", notice) if is_true else None

    def _find(self, request: Request, name: str) -> str:
        """Return the value of one of our cookies, or an empty text. The last value of several counts.

        All other cookies of a request are skipped. Starlette's parser unquotes each of them, in a time that grows with
        the square of its length before Python 3.11.10.
        """
        header = ";".join(list_header_values(request.scope, b"cookie"))
        cookies: dict[str, str] = dict(self._own_cookies.findall(header))
        return cookies.get(name, "")

    def _put(self, response: Response, name: str, value: str, max_age_seconds: int | None) -> None:
        response.set_cookie(
            name, value, max_age=max_age_seconds, path="/", secure=self._is_secure, httponly=True, samesite="lax"
        )
