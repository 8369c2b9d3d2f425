"""Addresses that are found without the router: their errors equal those of the router."""

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.web.middleware.static_routes import ErrorHandlers, StaticRoutes


async def fail(request: Request) -> Response:
    raise {"foreseen": LookupError, "unforeseen": OSError, "worse": HTTPException}[request.query_params["how"]](404)


def fail_in_handler(request: Request, error: Exception) -> Response:
    raise RuntimeError("in the handler itself")


HANDLERS: ErrorHandlers = {
    LookupError: lambda _, error: PlainTextResponse("foreseen", 400),
    HTTPException: fail_in_handler,
    Exception: lambda _, error: PlainTextResponse("unforeseen", 500),
}
ROUTE = Route("/fail", fail, methods=["POST"])


@pytest.fixture
def http() -> httpx2.AsyncClient:
    app = StaticRoutes(Starlette(routes=[ROUTE]), [ROUTE], HANDLERS)
    transport = httpx2.ASGITransport(app=app, raise_app_exceptions=False)
    return httpx2.AsyncClient(transport=transport, base_url="http://here")


@pytest.mark.parametrize(
    ("failure", "status", "text"),
    [("foreseen", 400, "foreseen"), ("unforeseen", 500, "unforeseen"), ("worse", 500, "unforeseen")],
)
async def test_every_error_has_its_answer(http: httpx2.AsyncClient, failure: str, status: int, text: str) -> None:
    response = await http.post("/fail", params={"how": failure})
    assert (response.status_code, response.text) == (status, text)


@pytest.mark.parametrize(
    ("method", "path", "status"), [("GET", "/fail", 405), ("POST", "/fail/", 307), ("POST", "/x", 404)]
)
async def test_computed_paths_use_the_router(http: httpx2.AsyncClient, method: str, path: str, status: int) -> None:
    assert (await http.request(method, path)).status_code == status
