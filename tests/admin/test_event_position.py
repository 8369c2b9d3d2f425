"""`events --follow --position`, which a log shipper runs as the Redis user that can only read events."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from service.worker import Worker
from tests.admin.conftest import Admin
from tests.conftest import AnyRedis, environment_of
from tests.support.waiting import result_of, until

pytestmark = pytest.mark.clause("decided-event-position")


@asynccontextmanager
async def running_reader(redis_server: AnyRedis, position: Path) -> AsyncIterator[Process]:
    """Run the command, and kill it at the end. It has another secret key than the service."""
    key = "a foreign secret key which it never uses"
    environment = environment_of(redis_server, REDIS_URL=redis_server.url_of("events"), TOKEN_SERVICE_SECRET_KEY=key)
    words = (sys.executable, "-m", "service.admin", "events", "--follow", "--json", "--position", str(position))
    reader = await asyncio.create_subprocess_exec(*words, env=os.environ | environment, stdout=PIPE)
    try:
        yield reader
    finally:
        if reader.returncode is None:
            reader.kill()
        await reader.communicate()


async def read_lines(reader: Process, count: int) -> list[str]:
    assert reader.stdout is not None
    return [json.loads(await result_of(reader.stdout.readline()))["event"] for _ in range(count)]


@pytest.mark.long
async def test_reader_goes_on_after_its_position(redis_server: AnyRedis, worker: Worker, tmp_path: Path) -> None:
    position = tmp_path / "position"
    await worker.event_stream.append([b'{"event":"1"}'], [], [b'{"event":"2"}'] * 30)
    async with running_reader(redis_server, position) as reader:
        assert await read_lines(reader, 31) == ["1"] + ["2"] * 30
        await until(position.exists)
        await worker.event_stream.append([], [b'{"event":"3"}'])
        assert await read_lines(reader, 1) == ["3"]
        await until(lambda: " 0 " not in position.read_text())
    await worker.event_stream.append([b'{"event":"4"}'], [b'{"event":"5"}'])
    async with running_reader(redis_server, position) as reader:
        assert await read_lines(reader, 2) == ["4", "5"]


@pytest.mark.long
async def test_events_that_nobody_took_are_read_again(redis_server: AnyRedis, worker: Worker, tmp_path: Path) -> None:
    position = tmp_path / "position"
    await worker.event_stream.append([b'{"event":"1"}'])
    async with running_reader(redis_server, position) as reader:
        await read_lines(reader, 1)
        await until(position.exists)
        reader._transport.get_pipe_transport(1).close()  # type: ignore[attr-defined]
        await worker.event_stream.append([b'{"event":"2"}'])
        await result_of(reader.wait())
    async with running_reader(redis_server, position) as reader:
        assert await read_lines(reader, 1) == ["2"]


@pytest.mark.parametrize("text", ["", "1 2", "1 2 x", "1 2 3 4"])
async def test_position_of_another_kind_is_refused(admin: Admin, tmp_path: Path, text: str) -> None:
    position = tmp_path / "position"
    position.write_text(text)
    answer = await admin("events", "--follow", "--position", str(position))

    assert (answer.status, "expected 3 ids" in answer.aside) == (2, True)
    assert position.read_text() == text


async def test_position_that_cannot_be_kept_is_refused(admin: Admin, worker: Worker, tmp_path: Path) -> None:
    await worker.event_stream.append([b'{"event":"1"}'])
    answer = await admin("events", "--follow", "--position", str(tmp_path / "missing" / "position"))

    assert (answer.status, "position cannot be written: No such file" in answer.aside) == (2, True)
