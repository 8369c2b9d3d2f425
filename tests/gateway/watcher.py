"""A gateway as a process of its own: it looks tokens up all the time, and says when each was refused first.

    python -m tests.gateway.watcher REDIS_URL

Standard input: a line of tokens to watch, in the order in which they will end. Standard output: "ready" once all of
them are live and in memory; then for each token the monotonic time of its first refusal; "done" after the last. Then
it takes the next line.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from service.gateway import BearerLookup

WINDOW = 500
CALLS_OF_OTHERS = 200
PAUSE_SECONDS = 0.0005


async def watch(bearer: BearerLookup, tokens: list[str]) -> None:
    for token in tokens:
        assert await bearer.lookup(token) is not None
    _say("ready")
    waiting = list(tokens)
    refused: set[str] = set()
    while waiting:
        for token in waiting[:WINDOW]:
            if await bearer.lookup(token) is None:
                _say(f"{tokens.index(token)} {time.monotonic()}")
                refused.add(token)
        waiting = [token for token in waiting if token not in refused]
        for token in random.choices(tokens, k=CALLS_OF_OTHERS):
            is_live = await bearer.lookup(token) is not None
            assert not (is_live and token in refused), "live again"
        await asyncio.sleep(PAUSE_SECONDS)
    _say("done")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main() -> None:
    bearer = BearerLookup(sys.argv[1])
    while line := await asyncio.to_thread(sys.stdin.readline):
        await watch(bearer, line.split())
    await bearer.close()


if __name__ == "__main__":
    asyncio.run(main())
