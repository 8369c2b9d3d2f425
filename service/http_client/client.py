"""HTTP to organisations, with nothing of a browser about it.

No redirect is followed, no cookie kept, no proxy or password file of the machine used, nothing unpacked, and no more
read than an answer may be long. Names are looked up in threads of its own: a name server that hangs must not take the
event loop's few threads away from connections to Redis.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any, Final, NamedTuple

import anyio
import httpcore2

from service.protocol.provider_responses import InvalidProviderResponse

MAX_ANSWER_BYTES: Final = 256 * 1024
MAX_WIRE_BYTES: Final = 2 * MAX_ANSWER_BYTES
"""The answer with its heads, and with what separates its chunks."""
READ_BYTES: Final = 4096
CONNECT_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 2.0
"""Shorter than any usual server keeps an idle connection, so that none is used just as it goes away."""
LOOKUPS: Final = 4

_USUAL: Final = (("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "token-service"))
_TROUBLES: Final = (
    httpcore2.NetworkError,
    httpcore2.TimeoutException,
    httpcore2.ProtocolError,
    httpcore2.UnsupportedProtocol,
    OSError,
)


class HttpResponse(NamedTuple):
    status: int
    body: bytes


class HttpClient:
    """One pool of connections for all organisations; how many are under way at once is their gates' affair."""

    def __init__(self) -> None:
        self._lookups = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="organisation-names")
        self._pool: httpcore2.AsyncConnectionPool | None = None

    async def get(self, address: str, headers: Mapping[str, str]) -> HttpResponse:
        return await self._send("GET", address, headers)

    async def post(self, address: str, headers: Mapping[str, str], form: bytes) -> HttpResponse:
        content_type = {"Content-Type": "application/x-www-form-urlencoded"}
        return await self._send("POST", address, {**headers, **content_type}, form)

    async def close(self) -> None:
        self._lookups.shutdown(wait=False, cancel_futures=True)
        if self._pool is not None:
            await self._pool.aclose()

    async def _open_pool(self) -> httpcore2.AsyncConnectionPool:
        """Return the pool, made when first needed: most workers need none.

        What that takes is done in a thread: it takes longer than the event loop may be held.
        """
        certificates = await asyncio.get_running_loop().run_in_executor(self._lookups, _prepare)
        if self._pool is None:
            self._pool = httpcore2.AsyncConnectionPool(
                ssl_context=certificates,
                max_connections=None,
                keepalive_expiry=IDLE_SECONDS,
                network_backend=_Network(self._lookups),
            )
        return self._pool

    async def _send(self, method: str, address: str, headers: Mapping[str, str], content: bytes = b"") -> HttpResponse:
        """Raises Misanswer; the caller sets the time limit."""
        try:
            pool = self._pool or await self._open_pool()
            asking = pool.stream(method, address, headers=[*_USUAL, *headers.items()], content=content)
            async with asking as response:
                return HttpResponse(response.status, await _read_body(response))
        except _TROUBLES as error:
            raise InvalidProviderResponse(f"{_describe(error)}, at {_drop_query(address)}") from error


@cache
def load_certificates() -> ssl.SSLContext:
    """Those of the machine, once for the process: they take memory, and some 40 ms to read."""
    return ssl.create_default_context()


def _prepare() -> ssl.SSLContext:
    """Return the certificates, with the modules imported that the first request would import."""
    anyio.run(anyio.sleep, 0)
    return load_certificates()


class _Network(httpcore2.AsyncNetworkBackend):
    """As the library's own, but for how a name is looked up."""

    def __init__(self, lookups: ThreadPoolExecutor) -> None:
        self._lookups = lookups
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        problem: Exception = OSError(f"{host} has no address")
        for address in await self._resolve_addresses(host, port):
            try:
                return _Stream(
                    await self._network.connect_tcp(address, port, CONNECT_SECONDS, local_address, socket_options)
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem

    async def _resolve_addresses(self, host: str, port: int) -> list[str]:
        try:
            return [str(ipaddress.ip_address(host))]
        except ValueError:
            pass
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(self._lookups, _look_up, host, port)
        return list(dict.fromkeys(found))


class _Stream(httpcore2.AsyncNetworkStream):
    """Reads a little at a time, with a turn for others in between, and no more than an answer may take.

    In heads or chunks of a few bytes it costs far more to take apart than to read: the event loop would stand still.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._read_bytes = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - likewise
        await asyncio.sleep(0)
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._read_bytes += len(data)
        if self._read_bytes > MAX_WIRE_BYTES:
            raise InvalidProviderResponse(
                f"its answer takes more than {MAX_WIRE_BYTES // 1024} KiB with all that it is wrapped in"
            )
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - likewise
        """Of a request; what comes after it is one answer."""
        self._read_bytes = 0
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - likewise
    ) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _look_up(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # an empty label, say, or one of more than 63 characters
        raise OSError(f"{host} is no name of a host") from None
    return [str(entry[4][0]) for entry in found]


async def _read_body(response: httpcore2.Response) -> bytes:
    if any(name.lower() == b"content-encoding" and value != b"identity" for name, value in response.headers):
        raise InvalidProviderResponse("it packs its answer, which it was not asked for")
    body = bytearray()
    async for chunk in response.aiter_stream():
        body += chunk
        if len(body) > MAX_ANSWER_BYTES:
            raise InvalidProviderResponse(f"its answer is longer than {MAX_ANSWER_BYTES // 1024} KiB")
    return bytes(body)


def _drop_query(address: str) -> str:
    return address.partition("?")[0]


def _describe(error: Exception) -> str:
    """What went wrong with a connection may be told; what went wrong in an answer might quote it."""
    if isinstance(error, httpcore2.ConnectTimeout):
        return f"it cannot be reached: no connection within {CONNECT_SECONDS:g} s"
    if not isinstance(error, httpcore2.ConnectError | OSError):
        return f"the connection broke off ({type(error).__name__})"
    cause: BaseException = error
    while isinstance(inner := cause.__cause__ or cause.__context__, httpcore2.ConnectError | OSError):
        cause = inner
    return f"it cannot be reached: {cause}"
