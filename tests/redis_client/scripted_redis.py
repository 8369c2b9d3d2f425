"""A server that says what a test wants it to say: for words and clocks that no real one can be brought to."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import hiredis

from service.redis_client.url import RedisUrl
from tests.support.servers import free_port

INVALIDATE = b">2\r\n$10\r\ninvalidate\r\n*1\r\n$%d\r\n%b\r\n"
STARTED_AT = 2_000_000_000
"""The time of a scripted clock when the time of the event loop is 0."""

held_back: set[tuple[str, int]] = set()
"""The addresses of the clients for whom a scripted server holds back an answer at this moment."""


def read_scripted_clock() -> float:
    """Return the seconds since 1970 by a clock that passes as the time of the event loop does."""
    return STARTED_AT + asyncio.get_running_loop().time()


class ScriptedRedis:
    """Answers CLIENT TRACKING and TIME as Redis would, HELLO by `hello`, all else by `answer`.

    `clock` is its clock. `slice_bytes`: how much of an answer goes out in one piece. `waits_for`: what is to happen
    before it answers this command. `delay`: how many seconds of the event loop it takes for this command.
    `last_words`: what it sends in one piece with the time, to hang up after it.
    """

    def __init__(self) -> None:
        self.port = free_port()
        self.url = RedisUrl(kind="single", nodes=(("127.0.0.1", self.port),))
        self.answer: Callable[[list[bytes]], bytes] = lambda _: b"_\r\n"
        self.clock: Callable[[], float] = read_scripted_clock
        self.hello = b"%1\r\n+role\r\n+master\r\n"
        self.slice_bytes = 1 << 16
        self.waits_for: Callable[[list[bytes]], asyncio.Event | None] = lambda _: None
        self.delay: Callable[[list[bytes]], float] = lambda _: 0
        self.last_words: bytes | None = None
        self.heard: list[list[bytes]] = []
        self.accepted = 0
        self._is_over = asyncio.Event()
        self._writers: list[asyncio.StreamWriter] = []

    @property
    def connected(self) -> int:
        """Return the number of present connections."""
        return len(self._writers)

    def count(self, *command: str) -> int:
        """Return how often a command with these first words came."""
        words = [word.encode() for word in command]
        return sum(heard[: len(words)] == words for heard in self.heard)

    def say(self, data: bytes) -> None:
        """Send the data to every connection, unasked."""
        for writer in self._writers:
            writer.write(data)

    def mute(self) -> None:
        """Answer nothing any more."""
        never = asyncio.Event()
        self.waits_for = lambda _: never

    def hang_up(self) -> None:
        """Close every connection."""
        for writer in self._writers:
            writer.close()

    async def end(self) -> None:
        self._is_over.set()
        while self._writers:
            self.hang_up()
            await asyncio.sleep(0)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        self._writers.append(writer)
        commands = hiredis.Reader()
        with suppress(OSError):
            while data := await reader.read(1 << 16):
                commands.feed(data)
                while command := commands.gets():
                    await self._serve(command, writer)
        self._writers.remove(writer)
        writer.close()

    async def _serve(self, command: list[bytes], writer: asyncio.StreamWriter) -> None:
        self.heard.append(command)
        await self._hold_back(command, writer)
        answer = self._answer(command)
        if command[0] != b"TIME" or self.last_words is None:
            await self._send(writer, answer)
        else:
            await self._send(writer, answer + self.last_words)
            writer.close()

    async def _hold_back(self, command: list[bytes], writer: asyncio.StreamWriter) -> None:
        event, seconds = self.waits_for(command), self.delay(command)
        if event is None and not seconds:
            return
        client = writer.get_extra_info("peername")
        held_back.add(client)
        waits = {asyncio.create_task(each.wait()) for each in (self._is_over, event) if each is not None}
        await asyncio.wait(waits, timeout=seconds or None, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        held_back.discard(client)

    def _answer(self, command: list[bytes]) -> bytes:
        match command[0]:
            case b"HELLO":
                return self.hello
            case b"CLIENT":
                return b"+OK\r\n"
            case b"TIME":
                seconds, microseconds = divmod(int(self.clock() * 1e6), 10**6)
                return b"*2\r\n:%d\r\n:%d\r\n" % (seconds, microseconds)
            case _:
                return self.answer(command)

    async def _send(self, writer: asyncio.StreamWriter, answer: bytes) -> None:
        for start in range(0, len(answer), self.slice_bytes):
            writer.write(answer[start : start + self.slice_bytes])
            await writer.drain()
            await asyncio.sleep(0)


@asynccontextmanager
async def scripted_redis() -> AsyncIterator[ScriptedRedis]:
    scripted = ScriptedRedis()
    server = await asyncio.start_server(scripted.serve, "127.0.0.1", scripted.port)
    try:
        yield scripted
    finally:
        server.close()
        await scripted.end()


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)
