"""The addresses that programs call, found by a table: the router would try one pattern after the other.

Clauses: none of the standards; SPEC is silent.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

Answer = Callable[[Request], Awaitable[Response]]
ErrorHandlers = Mapping[type[Exception], Callable[[Request, Exception], Response]]


class StaticRoutes:
    """Serves `routes` where nothing needs to be reckoned: a fixed path, and the right method. All else is for `app`.

    `routes` and `error_handlers` are those that `app` has, so an answer is the same whoever gives it.
    """

    def __init__(self, app: ASGIApp, routes: Iterable[Route], error_handlers: ErrorHandlers) -> None:
        self._app = app
        self._routes = {route.path: (route, _get_answer(route)) for route in routes}
        self._error_handlers = error_handlers

    def __call__(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        found = self._routes.get(scope["path"]) if scope["type"] == "http" and not scope.get("root_path") else None
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
            raise  # the server writes its trace
        await response(scope, receive, send)

    def _answer_foreseen(self, request: Request, error: Exception) -> Response:
        """Raises the error where nobody foresaw it, and whatever else goes wrong."""
        kind = next(kind for kind in type(error).__mro__ if kind in self._error_handlers)
        if kind is Exception:
            raise error
        return self._error_handlers[kind](request, error)


def _get_answer(route: Route) -> Answer:
    """An endpoint for every method is an application, for the router, which has an `answer` beside."""
    endpoint: Any = route.endpoint
    answer: Answer = endpoint if route.methods is not None else endpoint.answer
    return answer
