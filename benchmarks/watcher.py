"""A gateway as a process of its own, which looks tokens up all the time and prints until when each was live.

    python -m benchmarks.watcher REDIS_URL

Standard input: a line with a number and tokens, in the order in which they will end. That many of the tokens which have
not ended are looked up in each turn. Standard output: "ready" once all of them are live and in memory; then for each
token its number and two monotonic times, of the last live answer and of the first refusal; "done" after the last. Then
the next line is read.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time

from service.gateway import BearerLookup

CALLS_OF_OTHERS = 50
PAUSE_SECONDS = 0.0005
GIVE_UP_SECONDS = 60


async def watch(bearer: BearerLookup, window: int, tokens: list[str]) -> None:
    """Watch tokens until all have ended. Raises RuntimeError if one is not live at first, is live again, or does not
    end.
    """
    for token in tokens * 2:  # remembered from the second use on
        if await bearer.lookup(token) is None:
            raise RuntimeError("a token is not live")
    _say("ready")
    last_live = [time.monotonic()] * len(tokens)
    ended, deadline = 0, time.monotonic() + GIVE_UP_SECONDS
    while ended < len(tokens):
        for number in range(ended, min(ended + window, len(tokens))):
            asked = time.monotonic()
            if await bearer.lookup(tokens[number]) is not None:
                last_live[number] = asked
            elif number == ended:
                ended += 1
                _say(f"{number} {last_live[number]} {time.monotonic()}")
        for number in random.choices(range(len(tokens)), k=CALLS_OF_OTHERS):
            if await bearer.lookup(tokens[number]) is not None and number < ended:
                raise RuntimeError("a token is live again")
        await asyncio.sleep(PAUSE_SECONDS)
        if time.monotonic() > deadline:
            raise RuntimeError(f"{len(tokens) - ended} tokens are live, though all were revoked")
    _say("done")


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
