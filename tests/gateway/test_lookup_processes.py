"""A lookup that a process shares with a child that was forked from it, or with another thread."""

import asyncio
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from service.crypto.keyring import make_access_token
from service.gateway.lookup import BearerLookup
from service.gateway.watch import Reason
from tests.gateway.watching import watch
from tests.support.clients_and_users import access_key_of
from tests.support.redis_monitor import ONE_SERVER
from tests.support.servers import CHECKOUT, RedisServer

PAUSE_MS = 1_000
THREADS = 3
LOOKUPS = 100

PARENT_AND_CHILD = """
import asyncio, multiprocessing, sys
from service.gateway.lookup import BearerLookup
from service.gateway.watch import Reason

lookup = BearerLookup(sys.argv[1])

def ask(text):
    return lookup._router.ask("key", ("ECHO", text), is_read=True)

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
    await lookup._router.ask("key", pause, is_read=True)
    child = multiprocessing.get_context("fork").Process(target=run_child, args=(answers,))
    child.start()
    print(await ask("of the parent"))
    print(await asyncio.to_thread(answers.get))
    child.join()

asyncio.run(main())
"""


@pytest.mark.clause("decided-one-connection-many-answers")
def test_forked_child_opens_its_own_connections(redis_server: RedisServer) -> None:
    command = [sys.executable, "-c", PARENT_AND_CHILD, redis_server.url, str(PAUSE_MS)]
    ran = subprocess.run(command, cwd=CHECKOUT, capture_output=True, text=True, check=False)

    assert ran.stdout.splitlines() == ["b'of the parent'", "b'of the child'"], ran.stderr


@ONE_SERVER
@pytest.mark.clause("decided-one-connection-many-answers")
async def test_threads_cannot_share_a_lookup(redis_server: RedisServer, store: redis.Redis) -> None:
    """Otherwise the threads would take turns at replacing each other's connections, which nobody closes."""
    before = len(store.client_list())
    async with BearerLookup(redis_server.url) as lookup:

        async def look_up_often() -> None:
            for _ in range(LOOKUPS):
                with pytest.raises(RuntimeError, match="each event loop"):
                    async with lookup:
                        await lookup.lookup(make_access_token("0a3").text)

        assert await lookup.lookup(make_access_token("0a3").text) is None
        await asyncio.gather(*(asyncio.to_thread(asyncio.run, look_up_often()) for _ in range(THREADS)))

        assert len(store.client_list()) == before + 1
        assert await lookup.lookup(make_access_token("0a3").text) is None


@pytest.mark.clause("decided-one-connection-many-answers")
def test_a_lookup_serves_one_event_loop_after_another(redis_server: RedisServer) -> None:
    lookup = BearerLookup(redis_server.url)
    token = make_access_token("0a3").text

    with ThreadPoolExecutor(1) as thread:
        for run in (asyncio.run, lambda work: thread.submit(asyncio.run, work).result(), asyncio.run):
            assert run(lookup.lookup(token)) is None


@pytest.mark.clause("decided-one-connection-many-answers", "decided-streams-end")
def test_event_loop_takes_over_no_watch_of_an_earlier_one(redis_server: RedisServer, store: redis.Redis) -> None:
    """The first event loop is closed while its watch is open."""
    lookup, token = BearerLookup(redis_server.url), make_access_token("0a3").text
    record = "2\n0\n32503680000000\nfamily\nphone-app\nsubject\ncarol\nrealm:main role:enduser"
    store.set(access_key_of(token), record)

    async def leave_open() -> asyncio.Future[Reason]:
        return await watch(lookup, token)

    async def end() -> str:
        ended = await watch(lookup, token)
        store.delete(access_key_of(token))
        return await ended

    open_watch = asyncio.run(leave_open())
    assert asyncio.run(end()) == "revoked"
    assert not open_watch.done()
