"""A network that can be cut: a TCP proxy in front of a Redis."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress

from tests.support.servers import free_port
from tests.support.waiting import MAX_WAIT_SECONDS

SLICE = 1 << 16


class Proxy:
    """A proxy in front of Redis. Its attributes take effect with the next piece of data.

    `held`: nothing passes in either direction, and connections stay open, as if the network was gone.
    `hold_at`: a text and a number n. `held` becomes true before the n-th request with the text passes.
    `cut_after`: a text. Redis' answer to the next request that contains it is dropped, together with the connection.
    `keep_back`: a text. From the next request that contains it on, the answers on its connection wait for `deliver`.
    """

    def __init__(self, target_port: int) -> None:
        self.port = free_port()
        self.target_port = target_port
        self._links: set[_Link] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self.heal()

    def heal(self) -> None:
        """Everything passes at once."""
        self.held = False
        self.hold_at: tuple[bytes, int] | None = None
        self.cut_after: bytes | None = None
        self.keep_back: bytes | None = None
        self.deliver()

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}/0"

    @property
    def held(self) -> bool:
        return self._is_held

    @held.setter
    def held(self, is_held: bool) -> None:
        self._is_held = is_held
        self.tell(self._tell_change)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """Listen in this event loop until the block ends."""
        self._loop, self._changed = asyncio.get_running_loop(), asyncio.Event()
        server = await asyncio.start_server(self._connect, "127.0.0.1", self.port)
        try:
            yield
        finally:
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
        self.tell(self._cut)

    def deliver(self) -> None:
        """Let all answers pass that were kept back."""
        self.tell(self._deliver)

    def tell(self, work: Callable[[], None]) -> None:
        """Do it in the event loop of the proxy, which may run in another thread."""
        if self._loop is not None:
            self._loop.call_soon_threadsafe(work)

    def _cut(self) -> None:
        for link in tuple(self._links):
            link.close()

    def _deliver(self) -> None:
        for link in self._links:
            link.is_kept_back = False
        self._tell_change()

    def _tell_change(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_while(self, is_so: Callable[[], bool]) -> None:
        while is_so():
            await self._changed.wait()

    def notice(self, request: bytes, link: _Link) -> None:
        """Check whether this request was announced."""
        if self.hold_at is not None and self.hold_at[0] in request:
            text, times = self.hold_at
            self.hold_at = (text, times - 1) if times > 1 else None
            self._is_held = times == 1
        if self.cut_after is not None and self.cut_after in request:
            self.cut_after = None
            link.is_doomed = True
        if self.keep_back is not None and self.keep_back in request:
            self.keep_back = None
            link.is_kept_back = True


class _Link:
    """A connection through the proxy."""

    def __init__(self, proxy: Proxy, to_client: asyncio.StreamWriter, to_redis: asyncio.StreamWriter) -> None:
        self.is_doomed = False
        self.is_kept_back = False
        self._proxy = proxy
        self._to_client = to_client
        self._to_redis = to_redis

    async def forward_requests(self, client: asyncio.StreamReader) -> None:
        while data := await client.read(SLICE):
            self._proxy.notice(data, self)
            await self._proxy.wait_while(lambda: self._proxy.held)
            self._to_redis.write(data)
        self.close()

    async def forward_answers(self, redis: asyncio.StreamReader) -> None:
        try:
            while data := await redis.read(SLICE):
                await self._proxy.wait_while(lambda: self._proxy.held or self.is_kept_back)
                if self.is_doomed:
                    break
                self._to_client.write(data)
        finally:
            self.close()

    def close(self) -> None:
        self._to_client.close()
        self._to_redis.close()

    def abort(self) -> None:
        """Abort both connections, also if a peer takes nothing any more and written data would wait for it."""
        self._to_client.transport.abort()
        self._to_redis.transport.abort()


@contextmanager
def running_proxy(target_port: int) -> Iterator[Proxy]:
    """Run a proxy in a thread of its own until the block ends."""
    proxy = Proxy(target_port)
    started, stopped = threading.Event(), asyncio.Event()

    async def serve() -> None:
        async with proxy.serving():
            started.set()
            await stopped.wait()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert started.wait(MAX_WAIT_SECONDS)
    try:
        yield proxy
    finally:
        proxy.heal()
        proxy.tell(stopped.set)
        thread.join(MAX_WAIT_SECONDS)
