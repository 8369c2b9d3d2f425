"""A network that can be cut: a TCP proxy in front of a Redis, in a thread of its own."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from tests.servers import free_port

PAUSE_SECONDS = 0.005
SLICE = 1 << 16


class Proxy:
    """Forwards, until told otherwise; what is told counts from the next piece of data on.

    `held`: nothing passes in either direction, and connections stay open, as in a network that is gone.
    `hold_at`: when a request holds this text for the so manieth time, `held` becomes true before it passes.
    `cut_after`: of the next request that holds this text the answer is awaited from Redis and then thrown away, with
    the connection: Redis has done it, and nobody knows.
    `delay`: how long the answer to a request is kept back.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self.target_port = target_port
        self._links: set[_Link] = set()
        self.heal()

    def heal(self) -> None:
        """Everything passes at once."""
        self.held = False
        self.hold_at: tuple[bytes, int] | None = None
        self.cut_after: bytes | None = None
        self.delay: Callable[[bytes], float] = lambda _: 0

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    async def serve(self, started: threading.Event, stopped: asyncio.Event) -> None:
        self._loop = asyncio.get_running_loop()
        server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        started.set()
        await stopped.wait()
        server.close()
        for link in tuple(self._links):
            link.abort()

    async def _connect(self, client: asyncio.StreamReader, to_client: asyncio.StreamWriter) -> None:
        try:
            redis, to_redis = await asyncio.open_connection("127.0.0.1", self.target_port)
        except (OSError, asyncio.CancelledError):
            to_client.transport.abort()
            return
        link = _Link(self, to_client, to_redis)
        self._links.add(link)
        with suppress(OSError, asyncio.CancelledError):
            await asyncio.gather(link.forward_requests(client), link.forward_answers(redis))
        self._links.discard(link)
        link.close()

    def cut(self) -> None:
        """Every connection that there is breaks; what Redis was sent before it does all the same."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for link in tuple(self._links):
            link.close()

    async def while_held(self) -> None:
        while self.held:  # noqa: ASYNC110 - another thread sets it
            await asyncio.sleep(PAUSE_SECONDS)

    def notice(self, request: bytes) -> bool:
        """Whether the answer to this request is to be thrown away."""
        if self.hold_at is not None and self.hold_at[0] in request:
            text, times = self.hold_at
            self.hold_at = (text, times - 1) if times > 1 else None
            self.held = times == 1
        if self.cut_after is not None and self.cut_after in request:
            self.cut_after = None
            return True
        return False


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, to_client: asyncio.StreamWriter, to_redis: asyncio.StreamWriter) -> None:
        self._proxy = proxy
        self._to_client = to_client
        self._to_redis = to_redis
        self._is_doomed = False
        self._request = b""

    async def forward_requests(self, client: asyncio.StreamReader) -> None:
        while data := await client.read(SLICE):
            self._request = data
            self._is_doomed = self._proxy.notice(data) or self._is_doomed
            await self._proxy.while_held()
            self._to_redis.write(data)
        self.close()

    async def forward_answers(self, redis: asyncio.StreamReader) -> None:
        answers: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()
        delivering = asyncio.ensure_future(self._deliver(answers))
        try:
            while data := await redis.read(SLICE):
                await self._proxy.while_held()
                if self._is_doomed:
                    break
                answers.put_nowait((time.monotonic() + self._proxy.delay(self._request), data))
            else:
                await answers.join()
        finally:
            delivering.cancel()
            self.close()

    async def _deliver(self, answers: asyncio.Queue[tuple[float, bytes]]) -> None:
        """What comes meanwhile is kept back for as long, and not for longer."""
        while True:
            due, data = await answers.get()
            if due > time.monotonic():
                await asyncio.sleep(due - time.monotonic())
            self._to_client.write(data)
            answers.task_done()

    def close(self) -> None:
        self._to_client.close()
        self._to_redis.close()

    def abort(self) -> None:
        """Also where a peer takes nothing any more, and what was written would wait for it."""
        self._to_client.transport.abort()
        self._to_redis.transport.abort()


@contextmanager
def running_proxy(target_port: int) -> Iterator[Proxy]:
    proxy = Proxy(target_port)
    started = threading.Event()
    loop = asyncio.new_event_loop()
    stopped = asyncio.Event()
    thread = threading.Thread(target=_run, args=(loop, proxy.serve(started, stopped)))
    thread.start()
    assert started.wait(10)
    try:
        yield proxy
    finally:
        proxy.heal()
        loop.call_soon_threadsafe(stopped.set)
        thread.join(10)


def _run(loop: asyncio.AbstractEventLoop, work: object) -> None:
    assert asyncio.iscoroutine(work)
    loop.run_until_complete(work)
    for task in asyncio.all_tasks(loop):
        task.cancel()
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
