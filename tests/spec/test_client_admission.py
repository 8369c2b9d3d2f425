"""A busy client's secret is asked room for again and again; nobody stands in line for that."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import httpx2
import pytest

from service.store.attempts import Attempts, Counter
from service.web.request import client_authentication
from tests.support.actors import GATEWAY

CONTENDERS = 50


async def test_one_asks_for_room_again_while_the_others_pass(
    http: httpx2.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await GATEWAY.introspect(http, "nothing")).status_code == 200
    assert (await GATEWAY.introspect(http, "nothing")).status_code == 200
    gate, asked = asyncio.Event(), 0
    admit = Attempts.admit

    async def admit_behind_gate(attempts: Attempts, counters: Sequence[Counter]) -> None:
        nonlocal asked
        asked += 1
        await gate.wait()
        await admit(attempts, counters)

    monkeypatch.setattr(Attempts, "admit", admit_behind_gate)
    # So the time to ask again has come, and the time until which others may pass has not.
    monkeypatch.setattr(client_authentication, "RENEWED_SECONDS", 3600)
    answers = [asyncio.create_task(GATEWAY.introspect(http, "nothing")) for _ in range(CONTENDERS)]
    await asyncio.wait(answers, return_when=asyncio.FIRST_COMPLETED)
    while sum(answer.done() for answer in answers) < CONTENDERS - 1:
        await asyncio.wait([answer for answer in answers if not answer.done()], return_when=asyncio.FIRST_COMPLETED)
    assert asked == 1
    gate.set()
    assert {(await answer).status_code for answer in answers} == {200}
    assert asked == 1
