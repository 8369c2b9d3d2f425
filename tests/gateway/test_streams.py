"""Event streams and websockets that end with their token, behind the middleware and behind FastAPI's dependency."""

import asyncio
import os
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
import uvicorn
from fastapi import FastAPI
from fastapi.responses import EventSourceResponse, StreamingResponse
from sse_starlette import EventSourceResponse as ClassicEventSourceResponse
from starlette.responses import Response
from starlette.websockets import WebSocket
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosedError

from service.gateway.fastapi_guard import BearerGuard
from service.gateway.lookup import BearerLookup
from service.gateway.middleware import ASGIApp, BearerMiddleware
from service.gateway.stream import Message
from service.gateway.testing import FakeLookup, make_grant
from tests.support.left_out import get_program
from tests.support.loop_time import LoopTime
from tests.support.servers import free_port, stop
from tests.support.waiting import result_of, until

PAUSE_SECONDS = 0.001
HEADERS = {"Authorization": "Bearer a"}
CLOSED: Message = {"type": "websocket.close", "code": 1008}

pytestmark = pytest.mark.clause("decided-streams-end")


@pytest.fixture
def ended() -> list[str]:
    """The names of the handlers whose last block has run."""
    return []


@pytest.fixture
def fake() -> FakeLookup:
    fake = FakeLookup({"a": make_grant()})
    real = BearerLookup("redis://unused", stream_types=("application/x-ndjson", "application/jsonL"))
    fake.stream_types = real.stream_types
    return fake


@pytest.fixture(params=["middleware", "guard", "both"])
def app(request: pytest.FixtureRequest, fake: FakeLookup, ended: list[str]) -> ASGIApp:
    api = make_app(fake, ended, is_guarded=request.param != "middleware")
    return api if request.param == "guard" else BearerMiddleware(api, fake)


async def send_events(ended: list[str], name: str) -> AsyncIterator[str]:
    try:
        yield "data: x\n\n"
        await asyncio.Event().wait()
    finally:
        ended.append(name)


def send_blocking_events() -> Iterator[str]:
    while True:
        yield "data: x\n\n"
        threading.Event().wait(PAUSE_SECONDS)


async def send_file(fake: FakeLookup) -> AsyncIterator[bytes]:
    """Send the second part of a file after the end of the token."""
    yield b"x"
    assert await fake.watch("a") == "revoked"
    yield b"y"


class OwnResponse(Response):
    """A response that sends its events itself, with a content type that is allowed and unusual."""

    media_type = " Text/Event-Stream"

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers[1:]})
        for _ in range(100_000):
            await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
            await asyncio.sleep(0)


def stream(content: Any, media_type: str = "text/event-stream") -> StreamingResponse:
    return StreamingResponse(content, media_type=media_type)


async def receive_all(websocket: WebSocket, ended: list[str]) -> None:
    await websocket.accept()
    with suppress(Exception):
        while True:
            await websocket.receive_text()
    ended.append("receiving")


async def send_always(websocket: WebSocket, ended: list[str]) -> None:
    await websocket.accept()
    try:
        while True:
            await websocket.send_text("x")
            await asyncio.sleep(0)
    finally:
        ended.append("sending")


async def accept_late(websocket: WebSocket, ended: list[str]) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        ended.append("late")


WEBSOCKETS = {"/receiving": receive_all, "/sending": send_always, "/late": accept_late}


def make_app(fake: FakeLookup, ended: list[str], *, is_guarded: bool) -> FastAPI:
    guard = BearerGuard(fake, "https://tokens.example")
    api = FastAPI(dependencies=[guard.requires(), guard.requires("role:enduser")] if is_guarded else [])

    @api.get("/events")
    async def events() -> StreamingResponse:
        return stream(send_events(ended, "events"))

    @api.get("/own", response_class=EventSourceResponse)
    async def own() -> AsyncIterator[str]:
        async for event in send_events(ended, "own"):
            yield event

    @api.get("/classic")
    async def classic() -> Response:
        return ClassicEventSourceResponse(send_events(ended, "classic"))

    @api.get("/lines")
    async def lines() -> StreamingResponse:
        return stream(send_events(ended, "lines"), "Application/X-NDJSON ; x=y")

    @api.get("/items")
    async def items() -> AsyncIterator[str]:
        """FastAPI sends these as application/jsonl."""
        async for event in send_events(ended, "items"):
            yield event

    @api.get("/blocking")
    def blocking() -> StreamingResponse:
        return stream(send_blocking_events())

    @api.get("/sends")
    async def sends() -> OwnResponse:
        return OwnResponse()

    @api.get("/file")
    async def file() -> StreamingResponse:
        return stream(send_file(fake), "application/octet-stream")

    def add_websocket(path: str, handler: Callable[[WebSocket, list[str]], Any]) -> None:
        @api.websocket(path)
        async def handle(websocket: WebSocket) -> None:
            await handler(websocket, ended)

    for path, handler in WEBSOCKETS.items():
        add_websocket(path, handler)
    return api


Serving = Callable[..., AbstractAsyncContextManager[httpx2.AsyncClient]]


@pytest.fixture
def serving(loop_time: LoopTime) -> Serving:
    """Serve an application with uvicorn. It checks for its end ten times a second, so its last seconds are moved."""

    @asynccontextmanager
    async def serve(app: ASGIApp, http: Literal["auto", "h11"] = "auto") -> AsyncIterator[httpx2.AsyncClient]:
        server = uvicorn.Server(uvicorn.Config(app, port=free_port(), log_config=None, lifespan="off", http=http))
        task = asyncio.create_task(server._serve())
        await until(lambda: server.started, "the server")
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{server.config.port}", headers=HEADERS) as client:
            yield client
        server.should_exit = True
        await loop_time.advance_until_done(task)

    return serve


def revoke(fake: FakeLookup) -> None:
    del fake.grants["a"]


def expire(fake: FakeLookup) -> None:
    fake.grants["a"] = make_grant(expires_at_ms=fake.now_ms())


def lose_redis(fake: FakeLookup) -> None:
    fake.is_available = False


PLAIN_NGINX = """daemon off; pid nginx.pid; events {{}}
http {{ access_log off; server {{ listen 127.0.0.1:{port}; location / {{ proxy_pass {api}; }} }} }}"""


@pytest.mark.parametrize("path", ["/events", "/own"])
async def test_a_plain_nginx_passes_on_each_event_at_once(
    serving: Serving, app: ASGIApp, fake: FakeLookup, tmp_path: Path, path: str
) -> None:
    program, port = get_program("nginx"), free_port()
    # nginx sends HTTP/1.0. It collects a response without chunks, as h11 then sends it.
    async with serving(app, "h11") as client, httpx2.AsyncClient(headers=HEADERS, timeout=None) as behind:
        (tmp_path / "nginx.conf").write_text(PLAIN_NGINX.format(port=port, api=client.base_url))
        as_root = ("-g", "user root;") if os.geteuid() == 0 else ()
        arguments = ("-e", "stderr", "-p", ".", "-c", "nginx.conf", *as_root)
        process = await asyncio.to_thread(subprocess.Popen, [program, *arguments], cwd=tmp_path)
        try:
            await until(lambda: (tmp_path / "nginx.pid").exists(), "nginx")
            # The second event never comes, so a proxy that waits for it would never send the first one.
            body = await result_of(read_to_the_end(behind, f"http://127.0.0.1:{port}{path}", fake))
            response = await behind.get(f"http://127.0.0.1:{port}{path}")
        finally:
            await asyncio.to_thread(stop, process)
    assert body
    assert response.status_code == 401


ENDINGS = pytest.mark.parametrize("end", [revoke, expire, lose_redis])


async def read_to_the_end(client: httpx2.AsyncClient, path: str, fake: FakeLookup) -> str:
    """Return the whole body. The token is revoked after its first part."""
    async with client.stream("GET", path) as response:
        parts = response.aiter_text()
        first = await anext(parts)
        revoke(fake)
        return first + "".join([part async for part in parts])


def assert_events(body: str) -> None:
    assert set(body.split("\n\n")) <= {"data: x", 'data: "data: x\\n\\n"', ""}


@ENDINGS
@pytest.mark.parametrize("name", ["events", "classic", "lines", "items"])
async def test_event_stream_ends_cleanly_with_its_token(
    serving: Serving,
    app: ASGIApp,
    fake: FakeLookup,
    ended: list[str],
    caplog: pytest.LogCaptureFixture,
    name: str,
    end: Callable[[FakeLookup], None],
) -> None:
    """The client reads a complete body, the last block of the handler has run, and the server logs no error."""
    async with serving(app) as client, client.stream("GET", f"/{name}") as response:
        parts = response.aiter_text()
        await anext(parts)

        end(fake)
        assert "".join([part async for part in parts]) == ""

    assert ended == [name]
    assert not [line for line in caplog.records if line.levelname == "ERROR"]


@pytest.mark.parametrize("path", ["/blocking", "/sends", "/own"])
async def test_stream_of_another_kind_ends_cleanly(
    serving: Serving, app: ASGIApp, fake: FakeLookup, ended: list[str], caplog: pytest.LogCaptureFixture, path: str
) -> None:
    """A blocking generator, and the event streams of FastAPI itself."""
    async with serving(app) as client:
        assert_events(await read_to_the_end(client, path, fake))

    assert ended == (["own"] if path == "/own" else [])
    assert not [line for line in caplog.records if line.levelname == "ERROR"]


async def test_stream_ends_while_its_generator_waits_in_a_thread(serving: Serving, fake: FakeLookup) -> None:
    released = threading.Event()

    def wait() -> Iterator[str]:
        yield "data: x\n\n"
        released.wait()

    api = FastAPI()

    @api.get("/")
    async def events() -> StreamingResponse:
        return stream(wait())

    async with serving(BearerMiddleware(api, fake)) as client:
        try:
            assert_events(await read_to_the_end(client, "/", fake))
        finally:
            released.set()


async def test_download_is_not_cut_at_the_end_of_its_token(serving: Serving, app: ASGIApp, fake: FakeLookup) -> None:
    async with serving(app) as client:
        assert await read_to_the_end(client, "/file", fake) == "xy"


class Websocket:
    """A client's side of a websocket at a server of the tests."""

    def __init__(self, app: ASGIApp, path: str) -> None:
        self.sent: list[Message] = []
        self._incoming: asyncio.Queue[Message] = asyncio.Queue()
        self._incoming.put_nowait({"type": "websocket.connect"})
        headers = [(b"authorization", b"Bearer a")]
        scope = {"type": "websocket", "path": path, "query_string": b"", "headers": headers, "subprotocols": []}
        self.task = asyncio.ensure_future(app(scope, self._incoming.get, self._send))

    async def _send(self, message: Message) -> None:
        self.sent.append(message)

    def hang_up(self) -> None:
        self._incoming.put_nowait({"type": "websocket.disconnect", "code": 1001})


@ENDINGS
@pytest.mark.parametrize(("path", "name"), [("/receiving", "receiving"), ("/sending", "sending")])
async def test_websocket_is_closed_with_its_token(
    app: ASGIApp, fake: FakeLookup, ended: list[str], path: str, name: str, end: Callable[[FakeLookup], None]
) -> None:
    websocket = Websocket(app, path)
    await until(lambda: websocket.sent, "the acceptance")

    end(fake)
    await result_of(websocket.task)

    assert websocket.sent[0]["type"] == "websocket.accept"
    assert {message["type"] for message in websocket.sent[1:-1]} <= {"websocket.send"}
    assert websocket.sent[-1] == CLOSED
    assert ended == [name]


@pytest.mark.parametrize("name", ["receiving", "sending"])
async def test_websocket_of_a_server_has_the_close_code(
    serving: Serving, app: ASGIApp, fake: FakeLookup, ended: list[str], name: str
) -> None:
    async with serving(app) as client:
        address = f"ws://127.0.0.1:{client.base_url.port}/{name}"
        async with connect(address, additional_headers=HEADERS) as websocket:
            revoke(fake)
            with pytest.raises(ConnectionClosedError):
                _ = [message async for message in websocket]

    assert (websocket.close_code, ended) == (CLOSED["code"], [name])


async def test_websocket_that_is_not_accepted_yet_is_refused(app: ASGIApp, fake: FakeLookup, ended: list[str]) -> None:
    websocket = Websocket(app, "/late")
    await until(lambda: fake._watches._by_key, "the watch")

    revoke(fake)
    await result_of(websocket.task)

    assert (websocket.sent, ended) == ([CLOSED], ["late"])


async def test_websocket_that_was_hung_up_is_not_closed(app: ASGIApp, fake: FakeLookup, ended: list[str]) -> None:
    websocket = Websocket(app, "/receiving")
    await until(lambda: websocket.sent, "the acceptance")

    websocket.hang_up()
    await result_of(websocket.task)

    assert ([message["type"] for message in websocket.sent], ended) == (["websocket.accept"], ["receiving"])
    await until(lambda: not fake._watches._by_key, "the end of the watch")
