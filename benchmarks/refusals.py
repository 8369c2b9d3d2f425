"""Processor time of logins that are refused, as the ratio of the slowest kind to the fastest.

A difference would show a guesser which accounts exist. The kinds are measured in turns, and the least of all rounds
counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx2

from benchmarks.arena import Arena
from benchmarks.inside import logging_to, serving_inside
from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import Rows
from service.crypto.password_hashing import hash_password, verify_dummy_password, verify_password
from tests.support.browser import Browser, authorization_url
from tests.support.clients_and_users import ALICE, PHONE_APP, UserCredentials

REFUSALS = "refused logins, the dearest / the cheapest, processor time"
PASSWORDS = {"a usual password": "wrong", "a very long password": "x" * 2000}


def measure_refusals(arena: Arena, rounds: int) -> Rows:
    with on_core(SERVER_CORE), logging_to(arena.folder / "refusals.log"):
        return {REFUSALS: {"the hash alone": [_measure_hashes(rounds)], **asyncio.run(_measure_logins(arena, rounds))}}


def _measure_hashes(rounds: int) -> float:
    password_hash = hash_password("a password")
    checks: list[Callable[[], object]] = [
        lambda: verify_password("a password", password_hash),
        lambda: verify_password("a wrong one", password_hash),
        lambda: verify_password("x" * 2000, password_hash),
        verify_dummy_password,
    ]
    least = [float("inf")] * len(checks)
    for _ in range(rounds):
        for number, check in enumerate(checks):
            started = time.thread_time()
            check()
            least[number] = min(least[number], time.thread_time() - started)
    return max(least) / min(least)


async def _measure_logins(arena: Arena, rounds: int) -> dict[str, list[float]]:
    async with serving_inside(arena.deployment.environment()) as (_, http):
        measured = {}
        for name, password in PASSWORDS.items():
            persons = replace(ALICE, password=password), UserCredentials("nobody@example.com", password)
            ratio = await _compare(lambda one: PHONE_APP.log_in(http, one), 400, persons, rounds)
            measured[f"password grant, {name}"] = [ratio]
        browser = Browser(http)
        page = await browser.open(authorization_url())
        persons = replace(ALICE, password="wrong"), UserCredentials("nobody@example.com", "wrong")
        measured["login page"] = [await _compare(lambda one: browser.log_in(page, one), 200, persons, rounds)]
        return measured


async def _compare(
    log_in: Callable[[UserCredentials], Awaitable[httpx2.Response]],
    status: int,
    persons: tuple[UserCredentials, ...],
    rounds: int,
) -> float:
    """Return how much dearer the one is; the hash is made in a thread of this process, and counts."""
    least = [float("inf")] * len(persons)
    for _ in range(rounds):
        for number, person in enumerate(persons):
            started = time.process_time()
            response = await log_in(person)
            least[number] = min(least[number], time.process_time() - started)
            if response.status_code != status:
                raise LoadFailed(f"a wrong login is answered {response.status_code}")
    return max(least) / min(least)
