"""What a browser brings back: the cookies that we gave it, and the proof that a form came from one of our pages.

| cookie  | lives                              | says                                                        |
| ------- | ---------------------------------- | ----------------------------------------------------------- |
| browser | a year                             | which browser a login form is bound to                      |
| session | as the browser session             | the name of the browser session                             |
| device  | a year                             | in whose name this browser has logged in: for the throttle  |

All are HttpOnly and SameSite=Lax; on https they are Secure and have the prefix __Host-, so that no other host of the
same domain can set them.

Clauses: RFC 6749 §10.12, RFC 6819 §4.4.1.8, §5.1.4.2.3
"""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import Keyring, make_browser_secret
from service.protocol.token_form import RandomToken, digest_token, parse_browser_session
from service.protocol.user import User, UserIdentity
from service.web.request.form import get_from_query
from service.web.request.headers import list_header_values

MAX_DEVICE_USERS: Final = 5

_YEAR_SECONDS: Final = 365 * 24 * 3600
_DEVICE_ENTRY: Final = re.compile(r"[A-Za-z0-9_-]{43}~[A-Za-z0-9_-]{43}")
_COOKIES: Final = "token_service.cookies"
"""The key of the scope that keeps our cookies of a request, so that they are read once."""

_SECRET: Final = re.compile(r"[A-Za-z0-9_-]{43}")


class BrowserCookies:
    def __init__(self, keyring: Keyring, *, is_secure: bool) -> None:
        self._keyring = keyring
        self._is_secure = is_secure
        prefix = "__Host-ts_" if is_secure else "ts_"
        self._browser, self._session, self._device = (f"{prefix}{name}" for name in ("browser", "session", "device"))
        names = "|".join((self._browser, self._session, self._device))
        self._own_cookies = re.compile(rf"(?:^|;)[ \t]*({names})=([A-Za-z0-9_.~-]*)[ \t]*(?=;|$)")

    def find_secret(self, request: Request) -> str | None:
        secret = self._find(request, self._browser)
        return secret if _SECRET.fullmatch(secret) else None

    def find_bound_secret(self, request: Request, browser_digest: str) -> str | None:
        """None where this is not the browser that the digest names."""
        secret = self.find_secret(request)
        return secret if secret is not None and digest_token(secret) == browser_digest else None

    def set_browser_cookie(self, response: Response, secret: str) -> None:
        """It outlives the browser, so that two tabs which open at once seldom get two of them."""
        self._put(response, self._browser, secret, _YEAR_SECONDS)

    def find_session_name(self, request: Request) -> RandomToken | None:
        return parse_browser_session(self._find(request, self._session))

    def put_session(self, response: Response, name: RandomToken, max_age_seconds: int | None) -> None:
        """Without an age the cookie ends with the browser."""
        self._put(response, self._session, name.text, max_age_seconds)

    def remove_session(self, response: Response) -> None:
        self._put(response, self._session, "", 0)

    def has_devices(self, request: Request) -> bool:
        return bool(self._device_entries(request))

    def get_device(self, request: Request, identity: UserIdentity, revision: str) -> str:
        """The name of this browser as one in which the user has logged in before; empty where they have not.

        Each entry is a name that is good for one user only, which nobody can see from it, and only as long as the
        user's record stays what it is: a new password makes all of them void.
        """
        for entry in self._device_entries(request):
            name, _, signature = entry.partition("~")
            if self._keyring.recognises_for_page(signature, "device", identity.subject, revision, name):
                return name
        return ""

    def set_device_cookie(self, request: Request, response: Response, user: User) -> None:
        """This user's entry goes first; the cookie holds a few, for browsers that people share."""
        known = self.get_device(request, user.identity, user.revision)
        others = [entry for entry in self._device_entries(request) if entry.partition("~")[0] != known]
        name = known or make_browser_secret()
        entry = f"{name}~{self._keyring.sign_for_page('device', user.identity.subject, user.revision, name)}"
        self._put(response, self._device, ".".join([entry, *others][:MAX_DEVICE_USERS]), _YEAR_SECONDS)

    def sign_form(self, form: str, *parts: str) -> str:
        """The hidden field `csrf`: bound to the form and to what only this browser holds."""
        return self._keyring.sign_for_page(f"form {form}", *parts)

    def verify_csrf(self, signature: str, form: str, *parts: str) -> bool:
        return self._keyring.recognises_for_page(signature, f"form {form}", *parts)

    def make_notice(self, request: Request, path: str, notice: str) -> str:
        """The address of a page of ours that is to say what was just done; see `find_notice`."""
        proof = self.sign_form("notice", self.find_secret(request) or "", notice)
        return f"{path}{'&' if '?' in path else '?'}notice={notice}&proof={proof}"

    def find_notice(self, request: Request) -> str | None:
        """What was just done in this browser; a link that only claims it says nothing."""
        notice, proof = (get_from_query(request, name) for name in ("notice", "proof"))
        secret = self.find_secret(request)
        is_true = secret is not None and self.verify_csrf(proof, "notice", secret, notice)
        return notice if is_true else None

    def _device_entries(self, request: Request) -> list[str]:
        entries = self._find(request, self._device).split(".")
        return [entry for entry in entries[:MAX_DEVICE_USERS] if _DEVICE_ENTRY.fullmatch(entry)]

    def _find(self, request: Request, name: str) -> str:
        """Return the value of a cookie of ours, or an empty text; of several the last one counts.

        All other cookies of a request are passed over. Starlette's parser unquotes each of them, in a time that grows
        with the square of its length before Python 3.11.10.
        """
        if _COOKIES not in request.scope:
            header = ";".join(list_header_values(request.scope, b"cookie"))
            request.scope[_COOKIES] = dict(self._own_cookies.findall(header))
        value: str = request.scope[_COOKIES].get(name, "")
        return value

    def _put(self, response: Response, name: str, value: str, max_age_seconds: int | None) -> None:
        response.set_cookie(
            name, value, max_age=max_age_seconds, path="/", secure=self._is_secure, httponly=True, samesite="lax"
        )
