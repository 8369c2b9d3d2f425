"""Fixtures: the service of tests/seed.yaml with a realm `cep`, whose identity provider each test may change."""

import asyncio
import io
from collections.abc import AsyncIterator, Iterator

import pytest
import redis
import yaml

from service.registry.seed_file.read import parse_seed
from service.worker import Worker
from tests.realms.failing_logins import (
    AssertFault,
    Fault,
    assert_healthy,
    assert_login_failed,
    logged_faults,
    try_to_log_in,
)
from tests.realms.login_steps import RegisterRealm
from tests.support.at_rest import read_everything
from tests.support.browser import Browser
from tests.support.fake_provider import CLIENT_SECRET, INTROSPECT, USERINFO, FakeProvider, realm_of, running_provider
from tests.support.invalidations import await_invalidations
from tests.support.loop_time import STEP_SECONDS, LoopTime
from tests.support.waiting import run_loop_once


@pytest.fixture
async def provider() -> AsyncIterator[FakeProvider]:
    async with running_provider() as provider:
        yield provider


@pytest.fixture
async def time_passes_while_waiting(provider: FakeProvider, held_time: LoopTime) -> AsyncIterator[None]:
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
def register_realm(worker: Worker, provider: FakeProvider) -> RegisterRealm:
    """Return a function that registers the provider as realm `cep`, with changed entries and users of the test."""

    async def register_realm(*users: dict[str, object], **changes: object) -> None:
        entry = {"realms": {"cep": realm_of(provider, **changes)}, "users": list(users)}
        await worker.seeding.apply(parse_seed(yaml.safe_dump(entry).encode()))
        await await_invalidations(worker)

    return register_realm


@pytest.fixture
async def cep(register_realm: RegisterRealm) -> None:
    """Register realm `cep` with its issuer only, as most seed files do."""
    await register_realm()


@pytest.fixture
def no_secret_leaks(
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
def assert_fault(
    provider: FakeProvider, browser: Browser, register_realm: RegisterRealm, json_logs: io.StringIO
) -> AssertFault:
    """Check that a login with this fault fails for the logged reason, and that the next login succeeds."""

    async def assert_fault(fault: Fault) -> None:
        places = {"userinfo_endpoint": USERINFO, "introspection_endpoint": INTROSPECT}
        entry = {key: provider.url + places[key] if key in places else value for key, value in fault.entry.items()}
        await register_realm(**entry)
        fault.change_provider(provider)
        assert_login_failed(await try_to_log_in(browser, provider), browser, fault.error)

        assert fault.logged in logged_faults(json_logs)
        assert bool(logged_faults(json_logs)) is (fault.error == "temporarily_unavailable")
        await provider.await_idle()
        await assert_healthy(register_realm, provider, browser)

    return assert_fault
