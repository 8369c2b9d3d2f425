"""The ASGI application: its middleware in order, and one table from exceptions to responses."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from service.config.settings import load_settings
from service.observability.logs import configure_logging
from service.protocol.errors import BearerMissing, OAuthError
from service.protocol.metadata import metadata_paths
from service.redis_client.deadline import StoreUnavailable
from service.routes import STATIC_ROUTES, list_prefixes, make_routes
from service.system.process import die_with_supervisor
from service.web import responses
from service.web.middleware.access_log import AccessLog
from service.web.middleware.cors import CrossOrigin
from service.web.middleware.request_context import HeadLimit, RequestContext
from service.web.middleware.static_routes import ErrorHandler, ErrorHandlers, StaticRoutes
from service.web.pages.page import Pages
from service.web.request.client_address import TrustedProxies
from service.worker import Worker

ERROR_HANDLERS: ErrorHandlers = {
    OAuthError: responses.answer_oauth_error,
    BearerMissing: responses.answer_bearer_missing,
    StoreUnavailable: responses.answer_outage,
    HTTPException: responses.answer_http_exception,
    ClientDisconnect: responses.answer_client_gone,
    Exception: responses.answer_unforeseen,
}


def create_app() -> ASGIApp:
    """Return the application of one worker, configured from the environment."""
    settings = load_settings(os.environ)
    configure_logging(settings.log_level, settings.log_format)
    die_with_supervisor()
    return build_app(Worker(settings))


def build_app(worker: Worker, more_routes: Sequence[Route] = ()) -> ASGIApp:
    """Return the application that a worker serves, with more routes than its own if there are any."""

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with worker.running():
            yield

    routes = [*make_routes(worker), *more_routes]
    handlers: ErrorHandlers = {**ERROR_HANDLERS, HTTPException: Pages(worker.settings).answer_unknown_path}
    coroutines = {kind: _make_coroutine(handler) for kind, handler in handlers.items()}
    app = Starlette(routes=routes, exception_handlers=coroutines, lifespan=lifespan)
    # A redirect would turn a POST into another method, or make the client send its body twice.
    app.router.redirect_slashes = False
    static = [route for route in routes if route.name in STATIC_ROUTES]
    return _wrap(StaticRoutes(app, static, ERROR_HANDLERS), app, worker)


def _make_coroutine(handler: ErrorHandler) -> Callable[[Request, Exception], Awaitable[Response]]:
    """Return the handler as a coroutine function. Starlette runs any other in a thread, for which a response waits."""

    async def answer(request: Request, error: Exception) -> Response:
        return handler(request, error)

    return answer


def _wrap(app: StaticRoutes, lifespan: ASGIApp, worker: Worker) -> ASGIApp:
    """Return the application with its middleware, the outermost last.

    The middleware wraps Starlette instead of being its middleware: Starlette's ServerErrorMiddleware is outermost
    there, and the 500 that it makes must be logged and counted as well.
    """
    prefixes = list_prefixes(worker.settings)
    called_by_pages = {"token": "POST", "revoke": "POST", "revokeAll": "POST", "userinfo": "GET, POST"}
    methods = {f"{prefix}/oauth2/v1/{name}": method for prefix in prefixes for name, method in called_by_pages.items()}
    methods |= dict.fromkeys(metadata_paths(urlsplit(worker.settings.base_url).path), "GET")
    allowed = CrossOrigin(app, worker.caches.origins, methods)
    limited = HeadLimit(allowed, {f"{prefix}/oauth2/v1/verify" for prefix in prefixes})
    proxied = TrustedProxies(AccessLog(limited), worker.settings.trusted_proxies)
    return RequestContext(proxied, lifespan, worker.audit_stream)
