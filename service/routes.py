"""The paths that are served, and their handlers. docs/openapi.yaml describes all but the pages."""

from __future__ import annotations

from dataclasses import fields
from typing import Any
from urllib.parse import urlsplit

from starlette.routing import Route

from service.config.settings import Settings
from service.protocol.logout_token import LOGOUT_PATH
from service.protocol.metadata import metadata_paths
from service.web.api.backchannel_logout import BackchannelLogoutEndpoint
from service.web.api.global_token_revocation import GlobalTokenRevocationEndpoint
from service.web.api.introspect import IntrospectionEndpoint
from service.web.api.metadata import MetadataEndpoint, OpenApiEndpoint
from service.web.api.metrics import MetricsEndpoint
from service.web.api.revoke import RevocationEndpoint, RevokeAllEndpoint
from service.web.api.token import AuthorizationCodeGrant, PasswordGrant, RefreshTokenGrant, TokenEndpoint
from service.web.api.userinfo import UserInfoEndpoint
from service.web.api.users import UsersEndpoint
from service.web.api.verify import VerifyEndpoint
from service.web.pages.authorization import AuthorizationPages, CallbackPage
from service.web.pages.consent import ConsentPages
from service.web.pages.cookies import BrowserCookies
from service.web.pages.languages import load_languages
from service.web.pages.page import Handler, Pages
from service.web.pages.sessions import SessionsPages
from service.web.pages.start import StartEndpoint
from service.web.pages.steps import PageSteps
from service.worker import Worker

STATIC_ROUTES = frozenset({"verify", "introspect", "token", "revoke", "revokeAll"})
"""The names of the routes that StaticRoutes finds without the router."""


def list_prefixes(settings: Settings) -> list[str]:
    """Return the path of the base URL and the empty path, since a proxy may remove the path of the base URL."""
    return sorted({"", urlsplit(settings.base_url).path})


def make_routes(worker: Worker) -> list[Route]:
    """Return all routes that are served. docs/openapi.yaml describes all but the pages."""
    base_path = urlsplit(worker.settings.base_url).path
    prefixes = list_prefixes(worker.settings)
    api = [route for prefix in prefixes for route in _make_api_routes(worker, prefix)]
    metadata = MetadataEndpoint(worker.logins, worker.settings, load_languages())
    paths = sorted(metadata_paths(base_path))
    described = [Route(path, metadata.get, methods=["GET"], name="metadata") for path in paths]
    return api + described + _make_page_routes(worker)


def _make_api_routes(worker: Worker, prefix: str) -> list[Route]:
    grants = (
        AuthorizationCodeGrant(worker.codes, worker.families, worker.keyring),
        PasswordGrant(worker.clients, worker.users, worker.logins, worker.families, worker.keyring),
        RefreshTokenGrant(worker.families, worker.keyring),
    )
    authenticator, issuer = worker.authenticator, worker.settings.base_url
    posts = {
        "token": TokenEndpoint(authenticator, worker.keyring, {grant.grant_type: grant for grant in grants}).post,
        "revoke": RevocationEndpoint(authenticator, worker.access_tokens, worker.families, worker.keyring).post,
        "revokeAll": RevokeAllEndpoint(worker.access_tokens, worker.revocations).post,
        "introspect": IntrospectionEndpoint(
            authenticator, worker.bearer, worker.bearer_counts, worker.families, worker.keyring, issuer
        ).post,
        "global-token-revocation": GlobalTokenRevocationEndpoint(
            authenticator, worker.logins, worker.users, worker.registry.ids, worker.revocations, issuer
        ).post,
    }
    userinfo = UserInfoEndpoint(worker.bearer, worker.bearer_counts, worker.logins)
    logout = BackchannelLogoutEndpoint(worker.logins, worker.single_use, worker.revocations)
    least = worker.settings.min_password_characters
    users = UsersEndpoint(
        authenticator, worker.registry, worker.pending_revocations, worker.passwords, least, worker.seed_keeper
    )
    routes = [
        Route(f"{prefix}/oauth2/v1/verify", VerifyEndpoint(worker.bearer, worker.bearer_counts), name="verify"),
        *(Route(f"{prefix}/oauth2/v1/{name}", post, methods=["POST"], name=name) for name, post in posts.items()),
        Route(f"{prefix}/oauth2/v1/userinfo", userinfo.answer, methods=["GET", "POST"], name="userinfo"),
        Route(f"{prefix}{LOGOUT_PATH}{{realm}}", logout.post, methods=["POST"], name="backchannel-logout"),
        Route(f"{prefix}/oauth2/v1/users/{{username:path}}", users.answer, methods=["PUT", "DELETE"], name="users"),
        Route(f"{prefix}/openapi.json", OpenApiEndpoint(issuer).get, methods=["GET"], name="openapi"),
        Route(f"{prefix}/healthz", worker.health.live, methods=["GET"], name="healthz"),
        Route(f"{prefix}/readyz", worker.health.ready, methods=["GET"], name="readyz"),
    ]
    if worker.settings.metrics_address is None:
        base_host = urlsplit(issuer).hostname or ""
        routes.append(Route(f"{prefix}/metrics", MetricsEndpoint(base_host), name="metrics"))
    return routes


def _make_page_routes(worker: Worker) -> list[Route]:
    """Return the routes of the pages, with and without the path of the web URL, since a proxy may remove that path."""
    pages = Pages(worker.settings)
    start = StartEndpoint(pages, worker.settings)
    logins = _make_login_handlers(worker, pages, BrowserCookies(worker.keyring, worker.settings.web_url))
    handlers: dict[str, dict[str, Handler]] = {
        "/": {"GET": start.get},
        "/authorization/assets/page.css": {"GET": start.stylesheet},
        "/authorization/assets/page.js": {"GET": start.script},
        "/authorization/assets/logo": {"GET": start.logo},
        "/favicon.ico": {"GET": start.logo},
        "/.well-known/change-password": {"GET": start.redirect_to_password},
        **logins,
    }
    return [
        Route(
            prefix + path,
            pages.guard(by_method, worker.keyring.check_in_use if path in logins else None),
            methods=list(by_method),
            name=path.strip("/") or "start",
        )
        for prefix in sorted({"", pages.web_path})
        for path, by_method in handlers.items()
    ]


def _make_login_handlers(worker: Worker, pages: Pages, browsers: BrowserCookies) -> dict[str, dict[str, Handler]]:
    """Return the handlers of the pages that belong to a login or need one, by path and method."""
    parts: dict[str, Any] = {"pages": pages, "browsers": browsers}
    parts |= {field.name: getattr(worker, field.name) for field in fields(PageSteps) if field.name not in parts}
    consent = ConsentPages(**parts)
    authorization = AuthorizationPages(**parts, consent=consent)
    sessions = SessionsPages(**parts, authorization=authorization)
    return {
        "/authorization": {"GET": authorization.redirect_with_slash},
        "/authorization/": {"GET": authorization.get},
        "/authorization/login": {"GET": authorization.get_login, "POST": authorization.log_in},
        "/authorization/callback": {"GET": CallbackPage(**parts).get},
        "/authorization/consent": {"GET": consent.get, "POST": consent.post},
        "/authorization/switch": {"POST": consent.switch},
        "/sessions": {"GET": sessions.redirect_with_slash},
        "/sessions/": {"GET": sessions.get},
        "/sessions/end": {"POST": sessions.end},
        "/sessions/end-browser": {"POST": sessions.end_browser},
        "/sessions/password": {"POST": sessions.change_password},
        "/sessions/end-all": {"POST": sessions.end_all},
        "/sessions/sign-out": {"POST": sessions.sign_out},
    }
