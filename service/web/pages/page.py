"""The responses of pages: the headers that protect them, and the pages that report an error.

Clauses: RFC 6749 §3.1.2.4, §4.1.2.1, §10.13, §10.15, RFC 6819 §5.2.2.6, RFC 9207 §2, SPEC §4.1, §7.4
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Literal
from urllib.parse import urlsplit

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from service.config.settings import Settings
from service.gateway.outage_log import report_outage
from service.protocol.authorization import (
    AuthorizationRefused,
    ReturnAddress,
    make_location,
    redirecting_oauth_errors_to,
)
from service.protocol.client import Client
from service.protocol.errors import AccessDenied, OAuthError, ServerError
from service.protocol.negotiation import find_language, parse_ui_locales
from service.protocol.token_response import NO_STORE_HEADERS
from service.protocol.uri import is_loopback
from service.redis_client.deadline import StoreUnavailable
from service.web.pages.languages import DEFAULT_LANGUAGE, Language, load_languages
from service.web.pages.rendering import Renderer
from service.web.request.reading import list_preferred
from service.web.request.state import LANGUAGE, REASON, WAY_BACK
from service.web.responses import answer_http_exception

Handler = Callable[[Request], Awaitable[Response]]
RefusalKind = Literal["expired", "answered", "forged", "astray", "signed_out"]
ErrorKind = Literal[RefusalKind, "unverified", "busy", "unforeseen", "unknown_path"]

_HEADERS: Final = {
    **NO_STORE_HEADERS,
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_HSTS: Final = {"Strict-Transport-Security": "max-age=31536000"}
"""HSTS for one year. Subdomains are not included, because they may belong to other services."""
_LOGIN_ROUTES: Final = ("authorization/login", "authorization/callback")
_POLICY: Final = "default-src 'none'; style-src 'self'; img-src 'self'; base-uri 'none'; frame-ancestors 'none'"

log = logging.getLogger("service.pages")


class PageRefusal(Exception):
    """An error that is shown as a page, without a redirect."""

    def __init__(self, kind: RefusalKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
        self.status = 400 if kind in ("expired", "answered") else 403


class SessionOver(Exception):
    """The browser session of a form has ended. The browser is redirected to /sessions/ to log in again."""


class Pages:
    """Builder of the responses of all pages.

    `web_path` is the prefix of every local path. If the web URL is https, `transport_headers` keep browsers on https,
    also for assets. A web URL of this machine is left out, because browsers apply them to all ports of the host, where
    clients may be.
    """

    def __init__(self, settings: Settings) -> None:
        web = urlsplit(settings.web_url)
        self.web_path = web.path
        self.renderer = Renderer(settings)
        self.transport_headers = _HSTS if web.scheme == "https" and not is_loopback(web.hostname or "") else {}
        self._languages = load_languages()
        self._issuer = settings.base_url
        self._headers = _HEADERS | self.transport_headers

    def get_language(self, request: Request) -> Language:
        """Return the language of the pages for this request.

        It is the one that `use_language` or `choose_language` has set, or else follows from Accept-Language.

        Clauses: RFC 9110 §12.5.4
        """
        tag = request.scope.get(LANGUAGE, "")
        if not tag:
            wish = list_preferred(request, b"accept-language")
            tag = find_language(wish, list(self._languages)) or DEFAULT_LANGUAGE
            request.scope[LANGUAGE] = tag
        return self._languages[tag]

    def choose_language(self, request: Request, ui_locales: str) -> str:
        """Let the pages for this request have the first language of `ui_locales` that there is.

        Returns the language's tag, or an empty text if there is none of these languages.
        """
        tag = find_language(parse_ui_locales(ui_locales), list(self._languages)) or ""
        self.use_language(request, tag)
        return tag

    def use_language(self, request: Request, tag: str) -> None:
        """Let the pages for this request have the language that an earlier request chose. An unknown tag is ignored.

        Another version of the service may have languages that this one lacks.
        """
        if tag in self._languages:
            request.scope[LANGUAGE] = tag

    def offer_way_back(self, request: Request, client: Client, return_address: ReturnAddress) -> None:
        """Let pages of a login and of errors for this request have a link to the client, which is a denial there."""
        denial = AccessDenied("user_denied")
        answer = {"error": denial.error, "error_description": denial.description}
        address = make_location(return_address, self._issuer, answer)
        request.scope[WAY_BACK] = client.client_name or client.client_id, address

    def render(
        self, request: Request, template: str, *, status: int = 200, may_leave: bool = False, **context: Any
    ) -> Response:
        """Return a page in the language of the request.

        `may_leave` is True if a form of the page may lead to a client or to an identity provider. The page then has no
        form-action policy: Chromium checks every redirect that follows a form against it, and these sites redirect on
        to addresses that only they know, such as those of apps. A click would do nothing.

        Pages of a login keep the relation to a window that opened them: the callback page of a client reports to it.
        """
        language = self.get_language(request)
        policy = f"{_POLICY}; script-src 'self'" if template == "sessions.html" else _POLICY
        headers = self._headers | {
            "Content-Language": language.tag,
            "Content-Security-Policy": policy if may_leave else f"{policy}; form-action 'self'",
            "Vary": "Accept-Language",
        }
        if "/authorization/" not in request.scope["path"]:
            headers["Cross-Origin-Opener-Policy"] = "same-origin"
        context["back_to"], context["back_url"] = request.scope.get(WAY_BACK, ("", ""))
        return Response(self.renderer.render(language, template, **context), status, headers, "text/html")

    def redirect(self, path: str) -> Response:
        """Redirect to one of our pages, at an address that does not depend on the Host header."""
        return self.redirect_elsewhere(self.web_path + path)

    def redirect_elsewhere(self, address: str, status: int = 303) -> Response:
        return Response(status_code=status, headers=self._headers | {"Location": address})

    def refuse_client(self, request: Request, return_address: ReturnAddress, error: OAuthError) -> Response:
        """Redirect to the client with an error.

        Clauses: RFC 6749 §4.1.2.1, SPEC §7.3
        """
        request.scope[REASON] = error.reason
        return self.answer_client(return_address, {"error": error.error, "error_description": error.description})

    def answer_client(self, return_address: ReturnAddress, answer: Mapping[str, str]) -> Response:
        """Redirect to the client with the parameters of `answer`.

        Clauses: RFC 6749 §4.1.2, §4.1.2.1, RFC 9207 §2
        """
        return self.redirect_elsewhere(make_location(return_address, self._issuer, answer))

    def guard(self, by_method: Mapping[str, Handler], check: Callable[[], None] | None = None) -> Handler:
        """Return a handler that turns every error of a page into a redirect to the client or a page, never a traceback.

        `check` raises an OAuthError if this instance may not answer the page. A ClientDisconnect is raised again.
        """

        async def guarded(request: Request) -> Response:
            try:
                if check is not None:
                    check()
                return await by_method["GET" if request.method == "HEAD" else request.method](request)
            except AuthorizationRefused as refused:
                return self.refuse_client(request, refused.return_address, refused.error)
            except PageRefusal as refusal:
                return self._refuse(request, refusal.kind, refusal.reason, refusal.status)
            except SessionOver:
                return self.redirect("/sessions/")
            except OAuthError as error:
                return self._refuse_request(request, error)
            except StoreUnavailable as outage:
                return self._refuse_request(request, report_outage(outage))
            except ClientDisconnect:
                raise
            except Exception:
                log.exception("unexpected error on a page")
                return self._refuse(request, "unforeseen", "unforeseen", 500)

        return guarded

    def answer_unknown_path(self, request: Request, error: Exception) -> Response:
        """Return a page to a browser that requests an unknown path, or one that only takes forms, and else JSON."""
        response = answer_http_exception(request, error)
        if request.method not in ("GET", "HEAD") or not _prefers_html(request):
            return response
        page = self._refuse(request, "unknown_path", request.scope[REASON], response.status_code)
        page.headers.update({name: value for name, value in response.headers.items() if name == "allow"})
        return page

    def _refuse_request(self, request: Request, error: OAuthError) -> Response:
        if error.status < 429:
            return self._refuse(request, "unverified", error.reason, error.status, detail=error.description)
        return add_retry_after(self._refuse(request, "busy", error.reason, error.status), error)

    def _refuse(self, request: Request, kind: ErrorKind, reason: str, status: int, *, detail: str = "") -> Response:
        request.scope[REASON] = reason
        is_login = "route" in request.scope and request.scope["route"].name in _LOGIN_ROUTES
        return self.render(request, "refused.html", status=status, kind=kind, detail=detail, is_login=is_login)


def _prefers_html(request: Request) -> bool:
    """Return True if Accept prefers HTML to JSON, as in browsers. Programs accept anything, or name JSON."""
    known = (kind for kind in list_preferred(request, b"accept") if kind in ("text/html", "application/json"))
    return next(known, "") == "text/html"


def add_retry_after(response: Response, error: OAuthError) -> Response:
    if error.retry_after_seconds is not None:
        response.headers["Retry-After"] = str(error.retry_after_seconds)
    return response


def check_is_page(request: Request) -> None:
    """Raise PageRefusal if the browser requests an image or a frame instead of a page.

    A foreign site could otherwise open many such addresses in its visitors' browsers.

    Clauses: RFC 6749 §10.13
    """
    if request.headers.get("sec-fetch-dest", "document") != "document":
        raise PageRefusal("forged", "not_asked_for_as_a_page")


@contextmanager
def redirecting_all_errors_to(return_address: ReturnAddress) -> Iterator[None]:
    """Turn every error of the block, including an outage, into a redirect to the verified client.

    A PageRefusal is still shown as a page.

    Clauses: RFC 6749 §4.1.2.1 (server_error, temporarily_unavailable)
    """
    try:
        with redirecting_oauth_errors_to(return_address):
            yield
    except StoreUnavailable as outage:
        raise AuthorizationRefused(return_address, report_outage(outage)) from None
    except (AuthorizationRefused, PageRefusal):
        raise
    except Exception:
        log.exception("unexpected error in an authorization request")
        raise AuthorizationRefused(return_address, ServerError("unforeseen")) from None
