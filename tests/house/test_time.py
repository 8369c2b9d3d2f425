"""No test depends on speed: clocks are read in the named helpers only, and no test sleeps."""

import ast
from collections.abc import Iterator

from tests.support.servers import CHECKOUT

TESTS = CHECKOUT / "tests"

CLOCKS = {
    "clock", "clock_gettime", "clock_gettime_ns", "getrusage", "monotonic", "monotonic_ns", "perf_counter",
    "perf_counter_ns", "process_time", "process_time_ns", "thread_time", "thread_time_ns", "time", "time_ns", "times",
    "sleep",
}  # fmt: skip
READERS = {
    "support/waiting.py": "bounds how long a hang is waited for, and makes the only pauses",
    "support/fake_provider.py": "writes the time into its tokens",
    "faults/soak/clock.py": "orders what the soak sees",
    "invariants/wrong_clock/sitecustomize.py": "is a wrong clock, for other processes",
}
"""The files that may read a clock or sleep, each with its reason."""


def find_measuring_calls(text: str) -> Iterator[str]:
    """Yield each clock that a text names, and each sleep that is not one of 0 seconds, with its line."""
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.ImportFrom(module=("os" | "resource" | "time") as module, names=names):
                yield from (f"{node.lineno}: {module}.{each.name}" for each in names if each.name in CLOCKS)
            case ast.Attribute(value=ast.Name(id=("os" | "resource" | "time") as module), attr=name):
                if name in CLOCKS:
                    yield f"{node.lineno}: {module}.{name}"
            case ast.Attribute(value=ast.Name(id="datetime"), attr=("now" | "utcnow") as name):
                yield f"{node.lineno}: datetime.{name}"
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[seconds, *_]) if ast.unparse(seconds) != "0":
                yield f"{node.lineno}: {ast.unparse(node)}"


def test_tests_read_no_clock_and_do_not_sleep() -> None:
    found = {
        path.relative_to(TESTS).as_posix(): calls
        for path in TESTS.rglob("*.py")
        if "node_modules" not in path.parts and (calls := list(find_measuring_calls(path.read_text())))
    }

    assert {name: calls for name, calls in found.items() if name not in READERS} == {}
    assert READERS.keys() <= found.keys()
