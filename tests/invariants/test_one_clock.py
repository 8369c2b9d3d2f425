"""I9: the clock of Redis decides; that of a worker may be wrong, and nothing from outside moves either."""

import ast
import time
from collections.abc import Iterator
from dataclasses import fields

import pytest

from service.config.settings import Settings
from tests.conftest import Clock, read_server_ms
from tests.store.sessions import Sessions
from tests.support.servers import CHECKOUT

HOUR_SECONDS = 3_600
WALL_CLOCKS = (
    *("time.time", "time.time_ns", "time.localtime", "time.gmtime", "time.strftime", "datetime.now", "datetime.utcnow"),
    *("datetime.today", "date.today", "email.utils.formatdate", "email.utils.localtime"),
)


def syntax_of_service() -> Iterator[tuple[str, ast.AST]]:
    for path in sorted((CHECKOUT / "service").rglob("*.py")):
        name = path.relative_to(CHECKOUT / "service").as_posix()
        yield from ((name, node) for node in ast.walk(ast.parse(path.read_text())))


async def live_through(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch, wrong_by: float
) -> list[object]:
    """A session whose worker's clock is wrong by so many seconds, each time in the other direction."""
    seen: list[object] = []
    direction = iter((1, -1) * 10)

    def worsen() -> None:
        wrong = read_server_ms(sessions.store) / 1000 + wrong_by * next(direction)
        monkeypatch.setattr(time, "time", lambda: wrong)

    worsen()
    session = await sessions.start()
    for advance, generation in ((0, 1), (240, 1), (0, 2), (200, 2), (0, 3), (601, 3)):
        clock.advance(advance)
        worsen()
        outcome = await sessions.spend(session, generation)
        seen += [outcome, sessions.live(session)]
    code = await sessions.issue_code()
    clock.advance(30)
    worsen()
    seen += [(await sessions.redeem(code))[0]]
    late = await sessions.issue_code()
    clock.advance(61)
    worsen()
    seen += [(await sessions.redeem(late))[0]]
    return seen


@pytest.mark.clause("decided-i9-one-clock")
@pytest.mark.parametrize("hours", [1, 5, 1_000])
async def test_wrong_clock_of_a_worker_changes_no_lifetime(
    sessions: Sessions, clock: Clock, monkeypatch: pytest.MonkeyPatch, hours: int
) -> None:
    right = await live_through(sessions, clock, monkeypatch, 0)
    wrong = await live_through(sessions, clock, monkeypatch, hours * HOUR_SECONDS)

    assert wrong == right
    assert right[-2:] == [600_000, "unknown"]


@pytest.mark.clause("decided-i9-no-offset-from-outside")
def test_no_setting_and_no_command_names_the_clock() -> None:
    assert not [field.name for field in fields(Settings) if "clock" in field.name or "offset" in field.name]
    assert not [
        (name, node.value)
        for name, node in syntax_of_service()
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and node.value.isupper()
        and ("CLOCK" in node.value or "OFFSET" in node.value)
    ]


@pytest.mark.clause("decided-i9-no-offset-from-outside")
def test_the_service_itself_never_moves_the_clock() -> None:
    """An offset is passed by tests only. The application is made without one and passes it on unchanged."""
    passed = {
        (name, ast.unparse(keyword.value))
        for name, node in syntax_of_service()
        if isinstance(node, ast.Call)
        for keyword in node.keywords
        if keyword.arg == "clock_offset_ms"
    }
    made = [ast.unparse(node) for _, node in syntax_of_service() if isinstance(node, ast.Call) and makes_parts(node)]

    assert passed <= {
        ("worker.py", "clock_offset_ms"),
        ("components.py", "clock_offset_ms"),
        ("store/client.py", "clock_offset_ms"),
    }
    assert made == ["Worker(settings)"]


def makes_parts(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Name) and call.func.id == "Worker"


@pytest.mark.clause("decided-i9-one-clock")
def test_the_service_asks_no_wall_clock() -> None:
    """`time.monotonic` measures how long; what time it is, only Redis says."""
    asked = [
        (name, ast.unparse(node))
        for name, node in syntax_of_service()
        if isinstance(node, ast.Attribute) and ast.unparse(node) in WALL_CLOCKS
    ]

    # A line of the log says when it was written, and a warning how long a certificate lasts. No answer depends on them.
    # The lookup for tests has no Redis.
    assert set(asked) == {
        ("gateway/testing.py", "time.time_ns"),
        ("observability/logs.py", "time.time_ns"),
        ("crypto/certificates.py", "datetime.now"),
    }
