"""The memory that requests without a login can occupy in Redis, at all limits together: 64 MiB for a hundred addresses.

Each kind of request is sent a few times. Its steady memory is the size of a key, times the key's lifetime, times the
limit of such requests per address. The two streams of security events are added at full length.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import count
from typing import Final

import pytest
import redis

from service.store.events import MAX_EVENTS
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.realms.login_steps import ASK_CEP, log_in_at_provider, log_in_with_password, start_login
from tests.support.browser import Browser, authorization_url
from tests.support.clients_and_users import ALICE, PHONE_APP, TOKEN, OAuthClient, UserCredentials, basic

ADDRESSES: Final = 100
MOST_BYTES: Final = 64 * 1024 * 1024
TIMES: Final = 5
TABLE_BYTES: Final = 48
"""Redis' overhead of a key beyond MEMORY USAGE: its entries in two tables, and its expiry."""

LONG_STATE: Final = "s" * 8_000

numbers = count()
Request = Callable[[Browser], Awaitable[object]]


async def open_login_page(browser: Browser) -> None:
    await browser.open(authorization_url(state=LONG_STATE))


async def leave_for_provider(browser: Browser) -> None:
    await start_login(browser, f"{ASK_CEP}&state={LONG_STATE}")


async def come_back_from_provider(browser: Browser) -> None:
    """Open the callback with a code that the provider never issued."""
    path = await log_in_at_provider(await start_login(browser))
    await browser.open(path.replace("code=", "code=x"))


async def guess_password(browser: Browser) -> None:
    await PHONE_APP.log_in(browser.http, UserCredentials(f"made-up-{next(numbers)}@example.com", "wrong"))


async def guess_password_on_page(browser: Browser) -> None:
    await browser.log_in(
        await browser.open(authorization_url()), UserCredentials(f"made-up-{next(numbers)}@example.com", "wrong")
    )


async def guess_password_at_provider(browser: Browser) -> None:
    await log_in_with_password(browser.http, f"made-up-{next(numbers)}@example.com", "wrong")


async def guess_secret(browser: Browser) -> None:
    headers = basic(f"made-up-{next(numbers)}", "wrong")
    await browser.http.post(TOKEN, data={"grant_type": "password"}, headers=headers)


async def revoke_nothing(browser: Browser) -> None:
    await OAuthClient("phone-app").revoke(browser.http, f"tsat1_000{next(numbers):044}")


LIMIT_PER_MINUTE: Final[dict[Request, int]] = {
    open_login_page: 300,
    leave_for_provider: 300,
    come_back_from_provider: 300,
    guess_password: 100,
    guess_password_on_page: 100,
    guess_password_at_provider: 100,
    guess_secret: 90,
    revoke_nothing: 1,
}
"""The number of requests of each kind that one address may send in a minute."""


def measure_byte_seconds(store: redis.Redis) -> float:
    """Return the sum over all keys that expire, each its bytes times its lifetime in seconds."""
    total = 0.0
    for key in store.scan_iter(count=1000):
        left_ms = int(store.pttl(key))
        if left_ms > 0 and not key.startswith(("events:", "lock:", "probe:")):
            total += (int(store.memory_usage(key, samples=0) or 0) + TABLE_BYTES) * left_ms / 1000
    return total


async def measure_full_event_streams(worker: Worker, store: redis.Redis) -> int:
    """Return the bytes of both streams when each is full of its longest entry so far."""
    entries = await worker.event_stream.read()
    longest = [max((entry.text for entry in entries if entry.stream == stream), key=len) for stream in (0, 1)]
    batches = [[text] * 1000 for text in longest]
    for _ in range(MAX_EVENTS // 1000 + 1):
        await worker.event_stream.append(*batches)
    keys = [*store.scan_iter("events:*", count=1000)]
    assert [store.xlen(key) >= MAX_EVENTS for key in keys] == [True, True]
    return sum(int(store.memory_usage(key, samples=0) or 0) for key in keys)


@pytest.mark.clause("decided-nothing-kept-for-strangers", "decided-throttle-lifetimes")
async def test_a_hundred_addresses_at_all_limits_take_64_mib_at_most(
    make_settings: MakeSettings, clock: Clock, registry: None, cep: None, worker: Worker, store: redis.Redis
) -> None:
    taken: dict[str, float] = {}
    async with serving(make_settings(), clock, address="2001:db8::1") as http:
        await PHONE_APP.log_in(http, UserCredentials(ALICE.username, "wrong"))
        for request, a_minute in LIMIT_PER_MINUTE.items():
            clock.advance(24 * 3600)
            before = measure_byte_seconds(store)
            for _ in range(TIMES):
                await request(Browser(http))
            taken[request.__name__] = ADDRESSES * (measure_byte_seconds(store) - before) / TIMES * a_minute / 60

    taken["events"] = await measure_full_event_streams(worker, store)
    assert sum(taken.values()) <= MOST_BYTES, taken
    assert taken["come_back_from_provider"] > taken["leave_for_provider"] > 0
