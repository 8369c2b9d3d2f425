"""An answer that is sent before its request has arrived whole: the last of its connection, at every path."""

from collections.abc import Iterator

import pytest

from service.app import build_app
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.serving.conftest import RunningServer, running_server
from tests.support.clients_and_users import REVOKE_ALL, TOKEN, VERIFY
from tests.support.hostile_requests import FORM_TYPE, get

pytestmark = pytest.mark.clause("decided-early-answer-is-the-last")

EARLY = {
    "no token": (401, get(VERIFY, "Content-Length: 30", method="POST")),
    "no session": (401, get(REVOKE_ALL, "Content-Length: 30", method="POST")),
    "too long": (413, get(TOKEN, "Content-Length: 100000", FORM_TYPE, method="POST")),
    "no form": (400, get(TOKEN, "Content-Length: 30", "Content-Type: text/plain", method="POST")),
    "encoded form": (415, get(TOKEN, "Content-Length: 30", FORM_TYPE, "Content-Encoding: gzip", method="POST")),
    "chunked": (401, get(VERIFY, "Transfer-Encoding: chunked", method="POST")),
    "no path": (404, get("/nowhere", "Content-Length: 30", method="POST")),
    "no method": (405, get("/healthz", "Content-Length: 30", method="DELETE")),
    "success": (200, get("/healthz", "Content-Length: 30")),
}


@pytest.fixture
def server(make_settings: MakeSettings, registry: None) -> Iterator[RunningServer]:
    with running_server(build_app(Worker(make_settings())), lifespan="on") as server:
        yield server


@pytest.mark.parametrize("expects", [False, True], ids=["", "100-continue"])
@pytest.mark.parametrize(("status", "head"), EARLY.values(), ids=EARLY)
def test_an_early_answer_closes(server: RunningServer, status: int, head: bytes, expects: bool) -> None:
    peer = server.connect()
    peer.send(head[:-2] + b"Expect: 100-continue\r\n\r\n" if expects else head)
    answer = peer.read_all()
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert b"connection: close\r\n" in answer


def test_an_answer_to_a_whole_request_does_not_close(server: RunningServer) -> None:
    peer = server.connect()
    for _ in range(2):
        peer.send(EARLY["no token"][1] + b"a" * 30)
        answer = peer.read()
        assert answer.startswith(b"HTTP/1.1 401 ")
        assert b"connection: close" not in answer
