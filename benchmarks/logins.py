"""Logins with a password, compared with argon2id alone, and the latency of refreshes during many logins."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlencode

from benchmarks.load import Round, Target, run_wrk
from benchmarks.operations import make_refresh
from benchmarks.processes import SERVER_CORE, await_idle, on_core
from benchmarks.testbed import CLIENT, Testbed
from service.crypto.password_hashing import hash_password, verify_password
from tests.support.clients_and_users import ALICE, TOKEN, login_form

ARGON2ID, PASSWORD = "argon2id alone", "password grant"
QUIET, STORM = "refresh, paced", "refresh, paced, in a storm of logins"

LOGINS_AT_ONCE = 4
"""Twice as many as the service hashes at once. Requests of more connections would time out in the queue."""
PACED_CONNECTIONS, PAUSE_MS = 8, 20
"""About 400 refreshes per second. On a saturated core the latency would depend on the queue alone."""


def measure_logins(testbed: Testbed, rounds: int, seconds: int) -> dict[str, list[Round]]:
    """Measure the password grant, its hash alone, and paced refreshes without and with a storm of logins.

    The service has one core.
    """
    series: dict[str, list[Round]] = {name: [] for name in (ARGON2ID, PASSWORD, QUIET, STORM)}
    with testbed.running() as service:
        form = urlencode(CLIENT.credentials | login_form(ALICE))
        login = Target(
            PASSWORD,
            service.url + TOKEN,
            service.process.pid,
            testbed.redis_pid,
            prepare=lambda _: [testbed.write_lines([""]), form],
            connections=LOGINS_AT_ONCE,
        )
        login.measure(1)
        await_idle(service.process.pid)
        refresh = make_refresh(QUIET, testbed, service, connections=PACED_CONNECTIONS, pause_ms=PAUSE_MS)
        for _ in range(rounds):
            series[ARGON2ID].append(_measure_hash(seconds))
            series[PASSWORD].append(login.measure(seconds))
            await_idle(service.process.pid)
            series[QUIET].append(refresh.measure(seconds))
            series[STORM].append(_measure_in_storm(refresh, login, seconds))
            await_idle(service.process.pid)
    return series


def _measure_hash(seconds: int) -> Round:
    """Check a password again and again on the core of the servers, as each login must."""
    password_hash = hash_password(ALICE.password)
    times: list[float] = []
    with on_core(SERVER_CORE):
        processor, started = time.process_time(), time.perf_counter()
        while sum(times) < seconds:
            check_started = time.perf_counter()
            assert verify_password(ALICE.password, password_hash)[0]
            times.append(time.perf_counter() - check_started)
        elapsed, processor_seconds = time.perf_counter() - started, time.process_time() - processor
    return Round(
        len(times), elapsed, processor_seconds, 0.0, 0.0, _percentile_ms(times, 0.5), _percentile_ms(times, 0.99)
    )


def _measure_in_storm(refresh: Target, login: Target, seconds: int) -> Round:
    """Measure the refreshes. The storm begins before them and ends after them."""
    arguments = login.prepare(seconds)
    with ThreadPoolExecutor(1) as other:
        storm = other.submit(run_wrk, login.url, login.script, arguments, LOGINS_AT_ONCE, seconds + 2)
        time.sleep(0.5)
        measured = refresh.measure(seconds)
        storm.result()
    return measured


def _percentile_ms(times: Sequence[float], share: float) -> float:
    return sorted(times)[int(share * (len(times) - 1))] * 1000
