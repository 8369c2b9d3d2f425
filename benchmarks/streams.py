"""The time from the response to revokeAll until the user's last open stream ends, in a process with many streams.

The streams are those of an ASGI application behind the gateway's middleware, without sockets.
"""

from __future__ import annotations

import asyncio
import http.client
import math
import time
import tracemalloc
from collections.abc import Sequence

from benchmarks.load import LoadFailed
from benchmarks.results import WHOLE, Rows
from benchmarks.testbed import Testbed
from service.gateway import BearerLookup
from service.gateway.middleware import ASGIScope, BearerMiddleware
from service.gateway.stream import Message, Receive, Send
from tests.support.clients_and_users import REVOKE_ALL, bearer
from tests.support.servers import ServiceProcess

P99 = "10,000 open streams, those of a user end after revokeAll, p99"
WATCH_BYTES = "an idle watch of the gateway's library"
USERS, STREAMS_OF_ONE, LOGOUTS = 1_000, 10, 20
SETTLED_SECONDS = 5
"""The time after which Redis tracks all keys."""


class _User:
    """A user with an access token, and the times at which the streams of that token ended."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.ends: list[float] = []
        self.is_out = asyncio.Event()

    async def open_stream(self, api: BearerMiddleware) -> None:
        async def send(message: Message) -> None:
            if message["type"] == "http.response.body" and not message.get("more_body"):
                self.ends.append(time.monotonic())
                if len(self.ends) == STREAMS_OF_ONE:
                    self.is_out.set()

        async def receive() -> Message:
            return {"type": "http.request"}

        await api({"type": "http", "headers": [(b"authorization", f"Bearer {self.token}".encode())]}, receive, send)


def measure_streams(testbed: Testbed, rounds: int) -> Rows:
    """Return milliseconds and bytes. The processes have both cores."""
    lags: list[float] = []
    sizes: list[float] = []
    with testbed.running(on_all_cores=True) as service:
        for _ in range(rounds):
            tokens = [token for token, _ in testbed.start_sessions(USERS)]
            lag, size = asyncio.run(_measure(tokens, testbed.deployment.redis.url, service))
            lags.append(lag * 1000)
            sizes.append(size)
    return {P99: {WHOLE: lags}, WATCH_BYTES: {WHOLE: sizes}}


async def _measure(tokens: Sequence[str], redis_url: str, service: ServiceProcess) -> tuple[float, float]:
    """Return the seconds until a stream's end, as the 99th percentile, and the bytes of a watch."""
    users = [_User(token) for token in tokens]
    async with BearerLookup(redis_url) as lookup:
        size = await _measure_watches(lookup, tokens)
        api = BearerMiddleware(_send_events, lookup)
        streams: list[asyncio.Task[None]] = []
        for user in users:
            streams += [asyncio.create_task(user.open_stream(api)) for _ in range(STREAMS_OF_ONE)]
            await asyncio.sleep(0)
        await asyncio.sleep(SETTLED_SECONDS)
        lags: list[float] = []
        for user in users[:LOGOUTS]:
            answered_at = await asyncio.to_thread(revoke_all_of, service.port, user.token)
            await user.is_out.wait()
            lags += [end - answered_at for end in user.ends]
        if any(user.ends for user in users[LOGOUTS:]):
            raise LoadFailed("streams of other users have ended")
        for task in streams:
            task.cancel()
        await asyncio.wait(streams)
    return sorted(lags)[math.ceil(len(lags) * 0.99) - 1], size


async def _measure_watches(lookup: BearerLookup, tokens: Sequence[str]) -> float:
    """Return the bytes of a watch, once Redis tracks its key."""
    await lookup.lookup(tokens[0])
    tracemalloc.start()
    ended = [lookup.watch(token) for token in tokens]
    await asyncio.sleep(SETTLED_SECONDS)
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    for each in ended:
        each.cancel()
    return size / len(ended)


async def _send_events(scope: ASGIScope, receive: Receive, send: Send) -> None:
    headers = [(b"content-type", b"text/event-stream")]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": b"data: x\n\n", "more_body": True})
    await asyncio.Event().wait()


def revoke_all_of(port: int, token: str) -> float:
    """Send revokeAll. Returns the time of the response."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("POST", REVOKE_ALL, headers=bearer(token))
    response = connection.getresponse()
    answered_at = time.monotonic()
    if (response.status, response.read()) != (200, b""):
        raise LoadFailed(f"revokeAll is answered {response.status}")
    connection.close()
    return answered_at
