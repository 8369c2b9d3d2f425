"""Fixtures: the service of tests/seed.yaml with a realm `cep`, whose identity provider each test may change."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Iterator

import httpx2
import pytest
import redis
import yaml

from service.registry.seed_file.reader import parse_seed
from service.worker import Worker
from tests.realms.failing_logins import (
    AssertTrouble,
    Trouble,
    assert_came_to_nothing,
    assert_healthy,
    troubles_of,
    try_to_log_in,
)
from tests.realms.journey import Enlist
from tests.support.at_rest import read_everything
from tests.support.browser import Browser
from tests.support.fake_provider import (
    CLIENT_SECRET,
    INTROSPECT,
    USERINFO,
    FakeProvider,
    realm_of,
    running_provider,
)
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import STEP_SECONDS, LoopTime
from tests.support.waiting import run_loop_once


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with running_provider() as provider:
        yield provider


@pytest.fixture
async def giving_up(provider: FakeProvider, held_time: LoopTime) -> AsyncIterator[None]:
    """Let time pass while the provider delays a call, and only then."""

    async def pass_time() -> None:
        while True:
            if provider.waiting > 0:
                held_time.advance(STEP_SECONDS)
            await run_loop_once()

    passing = asyncio.create_task(pass_time())
    yield
    passing.cancel()
    await asyncio.wait({passing})


@pytest.fixture
def enlist(worker: Worker, provider: FakeProvider) -> Enlist:
    """Return a function that registers the provider as realm `cep`, with changed entries and users of the test."""

    async def enlist(*users: dict[str, object], **changes: object) -> None:
        entry = {"realms": {"cep": realm_of(provider, **changes)}, "users": list(users)}
        await worker.seeding.apply(parse_seed(yaml.safe_dump(entry).encode()))
        await await_invalidations(worker)

    return enlist


@pytest.fixture
async def cep(enlist: Enlist) -> None:
    """Register realm `cep` with its issuer only, as most seed files do."""
    await enlist()


@pytest.fixture
def browser(http: httpx2.AsyncClient) -> Browser:
    return Browser(http)


@pytest.fixture
def no_secret_is_told(
    provider: FakeProvider, browser: Browser, store: redis.Redis, json_logs: io.StringIO
) -> Iterator[None]:
    """Check that neither Redis nor the log at level debug holds a secret of ours or of the provider."""
    yield
    # The HTTP client of this test also logs.
    lines = [line for line in json_logs.getvalue().splitlines() if '"logger":"httpx2"' not in line]
    secrets = {CLIENT_SECRET, *provider.issued, *browser.cookie_values.values()}
    for request in provider.requests:
        secrets |= {request.query[name] for name in ("state", "nonce") if name in request.query}
        secrets |= {request.form[name] for name in ("code", "code_verifier", "token") if name in request.form}
        secrets |= {request.headers["authorization"].partition(" ")[2]} if "authorization" in request.headers else set()
    everything = "\n".join([*lines, *read_everything(store)])

    assert '"logger":"service.access"' in everything
    assert [secret for secret in secrets if secret and secret in everything] == []


@pytest.fixture
def assert_trouble(
    provider: FakeProvider,
    browser: Browser,
    enlist: Enlist,
    json_logs: io.StringIO,
) -> AssertTrouble:
    """Check that a login with this fault fails for the logged reason, and that the next login succeeds."""

    async def assert_trouble(trouble: Trouble) -> None:
        places = {"userinfo_endpoint": USERINFO, "introspection_endpoint": INTROSPECT}
        entry = {key: provider.url + places[key] if key in places else value for key, value in trouble.entry.items()}
        await enlist(**entry)
        trouble.bend(provider)
        assert_came_to_nothing(await try_to_log_in(browser, provider), browser, trouble.error)

        assert trouble.told in troubles_of(json_logs)
        assert bool(troubles_of(json_logs)) is (trouble.error == "temporarily_unavailable")
        await provider.await_idle()
        await assert_healthy(enlist, provider, browser)

    return assert_trouble
