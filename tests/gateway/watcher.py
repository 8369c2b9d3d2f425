"""A gateway as a process of its own: it looks tokens up until it has refused them all.

    python -m tests.gateway.watcher REDIS_URL

Standard input: a line of tokens, which are about to end. Standard output: "ready" once all of them are live and in
memory, and "done" once all of them were refused and stayed so. Then it takes the next line. It ends with an error where
a token is live again.
"""

from __future__ import annotations

import asyncio
import sys

from service.gateway import BearerLookup, StoreUnavailable
from tests.support.waiting import run_loop_once

LOOKS_AFTER_THE_END = 10


async def watch(bearer: BearerLookup, tokens: list[str]) -> None:
    for token in tokens * 2:  # remembered from the second use on
        assert await bearer.lookup(token) is not None
    _say("ready")
    ended: set[str] = set()
    while len(ended) < len(tokens):
        await look(bearer, tokens, ended)
    for _ in range(LOOKS_AFTER_THE_END):
        await look(bearer, tokens, ended)
    _say("done")


async def look(bearer: BearerLookup, tokens: list[str], ended: set[str]) -> None:
    """Look each token up once. An error is no answer."""
    for token in tokens:
        try:
            is_live = await bearer.lookup(token) is not None
        except StoreUnavailable:
            continue
        assert not (is_live and token in ended), "live again"
        if not is_live:
            ended.add(token)
    await run_loop_once()


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main() -> None:
    async with BearerLookup(sys.argv[1]) as bearer:
        while line := await asyncio.to_thread(sys.stdin.readline):
            await watch(bearer, line.split())


if __name__ == "__main__":
    asyncio.run(main())
