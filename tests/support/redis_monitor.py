"""Records the commands that reach a Redis server."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import redis

_LAST_COMMAND = "the end of the watch"

ONE_SERVER = pytest.mark.single_server("what Redis is asked can be watched on one server at a time")


@contextmanager
def recording_commands(store: redis.Redis) -> Iterator[list[str]]:
    """Record each command that reaches Redis in the block, those of scripts included.

    The list is filled at the end of the block.
    """
    commands: list[str] = []
    with store.monitor() as monitor:  # type: ignore[no-untyped-call]
        yield commands
        store.echo(_LAST_COMMAND)
        while _LAST_COMMAND not in (command := monitor.next_command()["command"]):
            commands.append(command)
