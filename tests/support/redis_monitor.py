"""What Redis is asked while a test looks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

_END = "the end of the watch"

ONE_SERVER = pytest.mark.single_server("what Redis is asked can be watched on one server at a time")


@contextmanager
def recording_commands(store: redis.Redis) -> Iterator[list[str]]:
    """Each command that reaches Redis inside, in order, those that scripts run included; filled when the block ends."""
    commands: list[str] = []
    with store.monitor() as monitor:  # type: ignore[no-untyped-call]
        yield commands
        store.echo(_END)
        while _END not in (command := monitor.next_command()["command"]):
            commands.append(command)
