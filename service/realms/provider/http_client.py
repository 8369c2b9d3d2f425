"""The HTTP client for identity providers, without the features of a browser.

The client follows no redirect and keeps no cookie. It uses no proxy and no password file of the machine. It
decompresses nothing, and reads no more than the size limit of a response. It resolves host names in its own threads: a
name server that hangs must not occupy the event loop's few threads, which connections to Redis need.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, NamedTuple

import httpcore2

from service.protocol.provider_responses import InvalidProviderResponse

MAX_ANSWER_BYTES: Final = 256 * 1024
"""The limit of a response as received, with its headers and the framing of its chunks."""
READ_BYTES: Final = 4096
CONNECT_SECONDS: Final = 2.0
IDLE_SECONDS: Final = 2.0
"""The time that an idle connection is kept.

Usual servers keep it longer, so that no connection is reused at the moment when the server closes it.
"""
LOOKUPS: Final = 4

_USUAL: Final = (("Accept", "application/json"), ("Accept-Encoding", "identity"), ("User-Agent", "token-service"))
_TROUBLES: Final = (httpcore2.NetworkError, httpcore2.TimeoutException, httpcore2.ProtocolError, OSError)


class HttpResponse(NamedTuple):
    status: int
    body: bytes


class HttpClient:
    """The connection pool for all identity providers. Their circuit breakers limit the number of concurrent calls."""

    def __init__(self) -> None:
        self._lookups = ThreadPoolExecutor(LOOKUPS, thread_name_prefix="provider-names")
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
        """Return the pool, which is created when first needed, because most workers need none.

        A thread reads the machine's certificates, because this takes longer than the event loop may be blocked.
        """
        certificates = await asyncio.get_running_loop().run_in_executor(self._lookups, ssl.create_default_context)
        if self._pool is None:
            self._pool = httpcore2.AsyncConnectionPool(
                ssl_context=certificates,
                max_connections=None,
                keepalive_expiry=IDLE_SECONDS,
                network_backend=_Network(self._lookups),
            )
        return self._pool

    async def _send(self, method: str, address: str, headers: Mapping[str, str], content: bytes = b"") -> HttpResponse:
        """Send a request and return the response. The caller limits the time.

        Raises InvalidProviderResponse if the request fails or the response is not acceptable.
        """
        try:
            pool = self._pool or await self._open_pool()
            sent = [*_USUAL, *headers.items()]
            async with pool.stream(method, address, headers=sent, content=content) as response:
                return HttpResponse(response.status, await response.aread())
        except _TROUBLES as error:
            raise InvalidProviderResponse(f"{_describe(error)}, at {address.partition('?')[0]}") from error


class _Network(httpcore2.AsyncNetworkBackend):
    """The library's own backend, except that host names are resolved in our threads."""

    def __init__(self, lookups: ThreadPoolExecutor) -> None:
        self._lookups = lookups
        self._network = httpcore2.AnyIOBackend()

    async def connect_tcp(self, host: str, port: int, *_: Any, **__: Any) -> httpcore2.AsyncNetworkStream:
        """Connect within CONNECT_SECONDS. The pool sets no other option."""
        problem: Exception = OSError(f"{host} has no IP address")
        loop = asyncio.get_running_loop()
        for address in await loop.run_in_executor(self._lookups, _look_up_addresses, host, port):
            try:
                return _Stream(await self._network.connect_tcp(address, port, CONNECT_SECONDS))
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                problem = error
        raise problem


def _look_up_addresses(host: str, port: int) -> list[str]:
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except UnicodeError:  # for example an empty label, or a label of more than 63 characters
        raise OSError(f"{host} is not a valid host name") from None
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


class _Stream(httpcore2.AsyncNetworkStream):
    """A stream that reads small parts, lets other tasks run between them, and limits the size of a response.

    Headers or chunks of a few bytes cost far more to parse than to read, and would block the event loop.
    """

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream
        self._read_bytes = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - library's signature
        await asyncio.sleep(0)
        data = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._read_bytes += len(data)
        if self._read_bytes > MAX_ANSWER_BYTES:
            raise InvalidProviderResponse(f"its response is longer than {MAX_ANSWER_BYTES // 1024} KiB")
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - library's signature
        """Write a part of a request and reset the count of bytes read, because one response follows."""
        self._read_bytes = 0
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(self, *arguments: Any, **named: Any) -> httpcore2.AsyncNetworkStream:
        return _Stream(await self._stream.start_tls(*arguments, **named))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


def _describe(error: Exception) -> str:
    """Return a description of the error for the log.

    A failure to connect is described in full. Another error is named by its type only, because its text could quote the
    response.
    """
    if isinstance(error, httpcore2.ConnectTimeout):
        return f"it cannot be reached: no connection within {CONNECT_SECONDS:g} s"
    if not isinstance(error, httpcore2.ConnectError | OSError):
        return f"the connection was closed unexpectedly ({type(error).__name__})"
    cause: BaseException = error
    while isinstance(inner := cause.__cause__ or cause.__context__, httpcore2.ConnectError | OSError):
        cause = inner
    return f"it cannot be reached: {cause}"
