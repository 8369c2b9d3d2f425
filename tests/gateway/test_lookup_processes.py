"""A lookup that a process shares with a child that was forked from it, or with another thread.

Each of them must get its own answers, even if both ask while Redis answers nobody.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading

import pytest
import redis

from service.gateway.lookup import BearerLookup
from tests.support.servers import CHECKOUT, RedisServer

PAUSE_MS = 1_000

PARENT_AND_CHILD = """
import asyncio, multiprocessing, sys
from service.gateway.lookup import BearerLookup

lookup = BearerLookup(sys.argv[1])

def ask(text):
    return lookup._router.get().ask("key", ("ECHO", text), is_read=True)

def run_child(answers):
    async def go():
        return await ask("of the child")
    try:
        answers.put(asyncio.run(go()))
    except BaseException as error:
        answers.put(repr(error))

async def main():
    await ask("warm")
    answers = multiprocessing.get_context("fork").Queue()
    pause = ("CLIENT", "PAUSE", sys.argv[2], "ALL")
    await lookup._router.get().ask("key", pause, is_read=True)
    child = multiprocessing.get_context("fork").Process(target=run_child, args=(answers,))
    child.start()
    print(await ask("of the parent"))
    print(await asyncio.to_thread(answers.get))
    child.join()

asyncio.run(main())
"""


@pytest.mark.clause("decided-one-connection-many-answers")
def test_a_forked_child_gets_its_own_answers_and_leaves_those_of_its_parent(redis_server: RedisServer) -> None:
    command = [sys.executable, "-c", PARENT_AND_CHILD, redis_server.url, str(PAUSE_MS)]
    ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert ran.stdout.splitlines() == ["b'of the parent'", "b'of the child'"], ran.stderr


@pytest.mark.clause("decided-one-connection-many-answers")
async def test_another_thread_uses_no_connection_of_this_one(redis_server: RedisServer, store: redis.Redis) -> None:
    answers: dict[str, object] = {}
    async with BearerLookup(redis_server.url) as lookup:

        async def ask(name: str) -> None:
            answers[name] = await lookup._router.get().ask("key", ("ECHO", name), is_read=True)

        await ask("here")
        first = lookup._router.get()
        other = threading.Thread(target=lambda: asyncio.run(ask("there")))
        other.start()
        await asyncio.to_thread(other.join)
        await ask("here again")

    assert answers == {name: name.encode() for name in ("here", "there", "here again")}
    assert lookup._router.get() is not first
