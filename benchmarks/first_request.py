"""The longest step of the event loop during the first request of a worker to a provider, in milliseconds.

    python -m benchmarks.first_request

This program prints the number. The first request reads the certificates of the machine and imports modules. Each
measurement therefore needs a new process that has imported the same modules as a worker.
"""

from __future__ import annotations

import asyncio
import sys

import service.app  # noqa: F401 - a worker has imported this, too
from benchmarks.callbacks import measuring_steps
from service.http_client.client import HttpClient

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


async def main() -> None:
    async with await asyncio.start_server(_serve, "127.0.0.1") as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
        http_client = HttpClient()
        with measuring_steps() as steps:
            await asyncio.sleep(0)  # the current step is not measured
            await http_client.get(url, {})
            longest = max(steps)
        await http_client.close()
    sys.stdout.write(f"{longest * 1000}\n")


async def _serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.readuntil(b"\r\n\r\n")
    writer.write(ANSWER)
    await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main())
