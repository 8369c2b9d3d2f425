"""Processor time of logins that are refused, as the ratio of the slowest kind to the fastest.

A difference would show an attacker which accounts exist. The kinds take turns, and the least time of all rounds counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

import httpx2

from benchmarks.in_process import logging_to, running_in_process
from benchmarks.load import LoadFailed
from benchmarks.processes import SERVER_CORE, on_core
from benchmarks.results import Rows
from benchmarks.testbed import Testbed
from service.crypto.password_hashing import hash_password, verify_dummy_password, verify_password
from tests.support.browser import Browser, authorization_url
from tests.support.clients_and_users import ALICE, PHONE_APP, UserCredentials

REFUSALS = "refused logins, the dearest / the cheapest, processor time"
PASSWORDS = {"a usual password": "wrong", "a very long password": "x" * 2000}


def measure_refusals(testbed: Testbed, rounds: int) -> Rows:
    with on_core(SERVER_CORE), logging_to(testbed.folder / "refusals.log"):
        return {
            REFUSALS: {"the hash alone": [_measure_hashes(rounds)], **asyncio.run(_measure_logins(testbed, rounds))}
        }


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


async def _measure_logins(testbed: Testbed, rounds: int) -> dict[str, list[float]]:
    async with running_in_process(testbed.deployment.environment()) as (_, http):
        measured = {}
        for name, password in PASSWORDS.items():
            both_users = replace(ALICE, password=password), UserCredentials("nobody@example.com", password)
            ratio = await _compare(lambda one: PHONE_APP.log_in(http, one), 400, both_users, rounds)
            measured[f"password grant, {name}"] = [ratio]
        browser = Browser(http)
        page = await browser.open(authorization_url())
        both_users = replace(ALICE, password="wrong"), UserCredentials("nobody@example.com", "wrong")
        measured["login page"] = [await _compare(lambda one: browser.log_in(page, one), 200, both_users, rounds)]
        return measured


async def _compare(
    log_in: Callable[[UserCredentials], Awaitable[httpx2.Response]],
    status: int,
    both_users: tuple[UserCredentials, ...],
    rounds: int,
) -> float:
    """Return the ratio of the slowest login to the fastest.

    The processor time includes the hash, which a thread of this process computes.
    """
    least = [float("inf")] * len(both_users)
    for _ in range(rounds):
        for number, credentials in enumerate(both_users):
            started = time.process_time()
            response = await log_in(credentials)
            least[number] = min(least[number], time.process_time() - started)
            if response.status_code != status:
                raise LoadFailed(f"a login with a wrong password is answered {response.status_code}")
    return max(least) / min(least)
