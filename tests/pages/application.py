"""A web application that redirects users to the service and receives the callback, on its own port."""

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qsl, urlsplit

from playwright.async_api import Error, Page

from tests.support.waiting import MAX_WAIT_SECONDS

WELCOME = """<!doctype html>
<html lang="en"><head><title>Example Shop</title><link rel="icon" href="data:,"></head>
<body><main><h1>Back at the Example Shop</h1></main></body></html>
"""


@dataclass(frozen=True)
class Visit:
    """A request to the application. Header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: str

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        """Return the parameters. Fails if one is repeated."""
        pairs = parse_qsl(urlsplit(self.target).query, keep_blank_values=True)
        parameters = dict(pairs)
        assert len(parameters) == len(pairs), self.target
        return parameters


class Application:
    """A server that records every request, and answers with a welcome page by default."""

    def __init__(self, port: int) -> None:
        self.port = port
        self.url = f"http://127.0.0.1:{port}"
        self.other_site = f"http://localhost:{port}"
        """The address of the same server under a host name that browsers take for another site."""
        self.callback = f"{self.url}/callback"
        self.visits: list[Visit] = []
        self._pages: dict[str, str] = {}
        self._redirects: dict[str, str] = {}
        self._gates: dict[str, threading.Event] = {}

    def serve(self, path: str, html: str) -> None:
        """Serve a page of the test at this path, until the end of the test."""
        self._pages[path] = html

    def redirect(self, path: str, target: str) -> None:
        """Redirect requests for this path."""
        self._redirects[path] = target

    def delay(self, path: str) -> threading.Event:
        """Delay requests for this path until the event is set."""
        return self._gates.setdefault(path, threading.Event())

    def forget(self) -> None:
        for gate in self._gates.values():
            gate.set()
        for records in (self.visits, self._pages, self._redirects, self._gates):
            records.clear()

    def answer(self, visit: Visit) -> tuple[str, str | None]:
        """Send a page, and a redirect if one is given."""
        self.visits.append(visit)
        gate = self._gates.get(visit.path)
        assert gate is None or gate.wait(MAX_WAIT_SECONDS), visit
        return self._pages.get(visit.path, WELCOME), self._redirects.get(visit.path)

    async def await_callback(self, page: Page) -> Visit:
        """Wait for a callback in the page. Returns its visit.

        A second click cancels the navigation of the first one, and starts the same one again.
        """
        callback = re.compile(re.escape(self.callback) + r"(\?|#|$)")
        try:
            await page.wait_for_url(callback)
        except Error as error:
            if "ERR_ABORTED" not in error.message:
                raise
            await page.wait_for_url(callback)
        return next(visit for visit in reversed(self.visits) if visit.path == "/callback")


@contextmanager
def running_application() -> Iterator[Application]:
    server = _Server(("127.0.0.1", 0), _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield server.application
    server.shutdown()
    thread.join()
    server.server_close()


class _Server(ThreadingHTTPServer):
    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(address, handler)
        self.application = Application(self.server_port)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def log_message(self, format: str, *arguments: object) -> None:
        """Log nothing."""

    def _answer(self) -> None:
        assert isinstance(self.server, _Server)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", "0"))).decode()
        page, redirect_target = self.server.application.answer(Visit(self.command, self.path, headers, body))
        html = page.encode()
        self.send_response(302 if redirect_target else 200)
        if redirect_target:
            self.send_header("Location", redirect_target)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(html)))
        self.end_headers()
        self.wfile.write(html)
