"""A gateway as a process of its own: it looks tokens up all the time, and says until when each was live.

    python -m tests.gateway.watcher REDIS_URL

Standard input: a line with a number and tokens, in the order in which they will end; so many of those that have not
ended are looked up in each turn. Standard output: "ready" once all of them are live and in memory; then for each token
its number and two monotonic times, of the last live answer and of the first refusal; after the last "done" and how many
seconds 99 % of the turns did not exceed. Then it takes the next line.
"""

from __future__ import annotations

import asyncio
import math
import random
import sys
import time

from service.gateway import BearerLookup

CALLS_OF_OTHERS = 50
PAUSE_SECONDS = 0.0005


async def watch(bearer: BearerLookup, window: int, tokens: list[str]) -> None:
    for token in tokens * 2:  # remembered from the second use on
        assert await bearer.lookup(token) is not None
    _say("ready")
    last_live = [time.monotonic()] * len(tokens)
    ended = 0
    turns: list[float] = []
    while ended < len(tokens):
        began = time.monotonic()
        for number in range(ended, min(ended + window, len(tokens))):
            asked = time.monotonic()
            if await bearer.lookup(tokens[number]) is not None:
                last_live[number] = asked
            elif number == ended:
                ended += 1
                _say(f"{number} {last_live[number]} {time.monotonic()}")
        for number in random.choices(range(len(tokens)), k=CALLS_OF_OTHERS):
            is_live = await bearer.lookup(tokens[number]) is not None
            assert not (is_live and number < ended), "live again"
        await asyncio.sleep(PAUSE_SECONDS)
        turns.append(time.monotonic() - began)
    _say(f"done {percentile(turns, 99)}")


def percentile(values: list[float], percent: float) -> float:
    return sorted(values)[math.ceil(len(values) * percent / 100) - 1]


def _say(text: str) -> None:
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
