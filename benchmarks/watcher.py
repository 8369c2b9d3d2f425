"""A gateway in a separate process, which looks up tokens and prints until when each was live.

    python -m benchmarks.watcher REDIS_URL

Standard input: lines of a window size and tokens, in the order in which they will be revoked. In each turn the first
tokens that are still live, as many as the window, are looked up. Standard output: "ready" when all tokens are live and
in the cache. Then a line for each token that was refused: its number, and the monotonic times of its last live lookup
and of its first refusal. "done" and the lookups per second end the output for a line of input.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from service.gateway import BearerLookup

EXTRA_LOOKUPS = 50
PAUSE_SECONDS = 0.0005
MAX_WAIT_SECONDS = 60


async def watch(bearer: BearerLookup, window: int, tokens: list[str]) -> None:
    """Look up the tokens until all are refused.

    Raises RuntimeError if a token is not live at first, is live again, or stays live.
    """
    for token in tokens * 2:  # a token is in the cache from its second use on
        if await bearer.lookup(token) is None:
            raise RuntimeError("a token is not live")
    _print("ready")
    last_live = [time.monotonic()] * len(tokens)
    ended, lookups, began = 0, 0, time.monotonic()
    while ended < len(tokens):
        lookups += min(window, len(tokens) - ended) + EXTRA_LOOKUPS
        for number in range(ended, min(ended + window, len(tokens))):
            started = time.monotonic()
            if await bearer.lookup(tokens[number]) is not None:
                last_live[number] = started
            elif number == ended:
                ended += 1
                _print(f"{number} {last_live[number]} {time.monotonic()}")
        for number in random.choices(range(len(tokens)), k=EXTRA_LOOKUPS):
            if await bearer.lookup(tokens[number]) is not None and number < ended:
                raise RuntimeError("a token is live again")
        await asyncio.sleep(PAUSE_SECONDS)
        if time.monotonic() > began + MAX_WAIT_SECONDS:
            raise RuntimeError(f"{len(tokens) - ended} tokens are still live after {MAX_WAIT_SECONDS} s")
    _print(f"done {lookups / (time.monotonic() - began)}")


def _print(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


async def main() -> None:
    bearer = BearerLookup(sys.argv[1])
    while line := await asyncio.to_thread(sys.stdin.readline):
        window, *tokens = line.split()
        await watch(bearer, int(window), tokens)
    await bearer.close()


if __name__ == "__main__":
    asyncio.run(main())
