"""The rule of sending a command again: a read may be, and a change only if it did not run."""

from __future__ import annotations

import pytest

from service.redis_client.deadline import StoreUnavailable
from service.redis_client.options import ConnectionOptions
from service.redis_client.router import Router
from tests.redis_client.scripted_redis import ScriptedRedis, scripted_redis


def cut_first(scripted: ScriptedRedis, word: bytes) -> None:
    """Let the server close all connections once when it gets a command with this word, before it answers."""
    rest = [True]

    def answer(command: list[bytes]) -> bytes:
        if command[0] == word and rest:
            rest.clear()
            scripted.hang_up()
        return b"+done\r\n"

    scripted.answer = answer


@pytest.mark.clause("decided-i10-own-retry")
@pytest.mark.parametrize("together", [False, True], ids=["alone", "together"])
@pytest.mark.parametrize("is_connected", [False, True], ids=["at first", "later"])
async def test_a_lost_read_is_sent_again_and_a_lost_change_is_not(*, is_connected: bool, together: bool) -> None:
    async with scripted_redis() as scripted:
        router = Router(ConnectionOptions(scripted.url, "requests"))

        async def send(word: str, *, is_read: bool) -> object:
            if together:
                return (await router.ask_many([(word, "key")], is_read=is_read))[0]
            return await router.ask("key", (word, "key"), is_read=is_read)

        if is_connected:
            await send("EXISTS", is_read=True)
            await send("APPEND", is_read=False)
        cut_first(scripted, b"GET")
        assert await send("GET", is_read=True) == b"done"
        cut_first(scripted, b"SET")
        with pytest.raises(StoreUnavailable):
            await send("SET", is_read=False)

        assert (scripted.count("GET"), scripted.count("SET")) == (2, 1)
        await router.close()
