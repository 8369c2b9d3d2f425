"""A table of the fixed API paths, in place of Starlette's router, which matches one pattern after another.

Without the table a refresh takes 1.03 to 1.08 times the processor time, and a verification from memory 1.16 times.
tests/process/test_static_routes.py holds its responses to errors equal to those of the router.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

Answer = Callable[[Request], Awaitable[Response]]
ErrorHandler = Callable[[Request, Exception], Response]
ErrorHandlers = Mapping[type[Exception], ErrorHandler]


class StaticRoutes:
    """Middleware that serves a request to a fixed path of `routes` with an allowed method. `app` serves all others.

    `routes` and `error_handlers` must be those of `app`, so that both give the same responses.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[Route], error_handlers: ErrorHandlers) -> None:
        self._app = app
        self._routes = {route.path: (route, _get_answer(route)) for route in routes}
        self._error_handlers = error_handlers

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        found = self._routes.get(scope["path"])
        if found is None:
            return self._app(scope, receive, send)
        route, answer = found
        if route.methods is not None and scope["method"] not in route.methods:
            return self._app(scope, receive, send)
        scope["route"] = route
        return self._serve(answer, scope, receive, send)

    async def _serve(self, answer: Answer, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        try:
            try:
                response = await answer(request)
            except Exception as error:
                response = self._answer_foreseen(request, error)
        except Exception as error:
            await self._error_handlers[Exception](request, error)(scope, receive, send)
            raise  # the server logs the traceback
        await response(scope, receive, send)

    def _answer_foreseen(self, request: Request, error: Exception) -> Response:
        """Return the response to an expected error. Raises an unexpected error again."""
        kind = next(kind for kind in type(error).__mro__ if kind in self._error_handlers)
        if kind is Exception:
            raise error
        return self._error_handlers[kind](request, error)


def _get_answer(route: Route) -> Answer:
    """Return the coroutine function that answers a request to the route.

    A route for all methods has an ASGI application as its endpoint. The method `answer` of that application is used.
    """
    endpoint: Any = route.endpoint
    answer: Answer = endpoint if route.methods is not None else endpoint.answer
    return answer
