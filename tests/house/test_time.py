"""No test depends on speed: clocks are read in the named helpers only, and no test sleeps."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.servers import CHECKOUT

TESTS = CHECKOUT / "tests"

CLOCKS = {
    "clock",
    "clock_gettime",
    "clock_gettime_ns",
    "getrusage",
    "monotonic",
    "monotonic_ns",
    "perf_counter",
    "perf_counter_ns",
    "process_time",
    "process_time_ns",
    "thread_time",
    "thread_time_ns",
    "time",
    "time_ns",
    "times",
}
READERS = {
    "support/waiting.py": "bounds how long a hang is waited for, and makes the only pauses",
    "support/fake_provider.py": "writes the time into its tokens, and answers slowly by the time of the event loop",
    "faults/soak/clock.py": "orders what the soak sees",
    "invariants/wrong_clock/sitecustomize.py": "is a wrong clock, for other processes",
}
"""The files that may read a clock or sleep, each with its reason."""


def measuring_calls(text: str) -> Iterator[str]:
    """Yield each clock that a text names, and each sleep that is not one of 0 seconds, with its line."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=("os" | "resource" | "time") as module, names=names):
                yield from (f"{node.lineno}: {module}.{each.name}" for each in names if each.name in CLOCKS | {"sleep"})
            case ast.Attribute(value=ast.Name(id=("os" | "resource" | "time") as module), attr=name):
                if name in CLOCKS | {"sleep"}:
                    yield f"{node.lineno}: {module}.{name}"
            case ast.Attribute(value=ast.Name(id="datetime"), attr=("now" | "utcnow") as name):
                yield f"{node.lineno}: datetime.{name}"
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[seconds, *_]) if ast.unparse(seconds) != "0":
                yield f"{node.lineno}: {ast.unparse(node)}"


def files() -> list[Path]:
    return [path for path in sorted(TESTS.rglob("*.py")) if "node_modules" not in path.parts]


@pytest.mark.parametrize(
    "text",
    [
        "import time\nstarted = time.monotonic()",
        "from time import perf_counter",
        "import resource\nresource.getrusage(0)",
        "import time\nread = time.process_time",
        "import asyncio\nawait_ = asyncio.sleep(0.1)",
        "from time import sleep",
        "import time\ntime.sleep(0)",
        "import anyio\nanyio.sleep(1)",
        "from datetime import datetime\ndatetime.now()",
    ],
)
def test_the_reader_of_clocks_sees_every_form(text: str) -> None:
    assert list(measuring_calls(text)) != []


def test_a_turn_of_the_event_loop_is_no_sleep() -> None:
    assert list(measuring_calls("import asyncio\nturn = asyncio.sleep(0)")) == []


@pytest.mark.parametrize("path", files(), ids=lambda path: path.relative_to(TESTS).as_posix())
def test_a_test_reads_no_clock_and_does_not_sleep(path: Path) -> None:
    found = list(measuring_calls(path.read_text()))
    name = path.relative_to(TESTS).as_posix()

    assert (found != []) == (name in READERS), found
