"""The cast's service with a realm cep, whose organisation each test may bend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest
import yaml

from service.registry.seed_file.reader import parse_seed
from service.worker import Worker
from tests.support.browser import Browser
from tests.support.fake_provider import FakeProvider, realm_of, running_organisation
from tests.support.invalidations import heard
from tests.support.loop_time import STEP_SECONDS, LoopTime
from tests.support.waiting import take_turn

Enlist = Callable[..., Awaitable[None]]


@pytest.fixture
async def organisation() -> AsyncIterator[FakeProvider]:
    async with running_organisation() as organisation:
        yield organisation


@pytest.fixture
async def giving_up(organisation: FakeProvider, held_time: LoopTime) -> AsyncIterator[None]:
    """Time passes for as long as the organisation keeps a call waiting, and not otherwise."""

    async def pass_time() -> None:
        while True:
            if organisation.waiting > 0:
                held_time.advance(STEP_SECONDS)
            await take_turn()

    passing = asyncio.create_task(pass_time())
    yield
    passing.cancel()
    await asyncio.wait({passing})


@pytest.fixture
def enlist(parts: Worker, organisation: FakeProvider) -> Enlist:
    """Registers the organisation as realm cep, with what a test has to change in its entry, and users of the test's."""

    async def enlist(*users: dict[str, object], **changes: object) -> None:
        entry = {"realms": {"cep": realm_of(organisation, **changes)}, "users": list(users)}
        await parts.seeding.apply(parse_seed(yaml.safe_dump(entry).encode()))
        await heard(parts)

    return enlist


@pytest.fixture
async def cep(enlist: Enlist) -> None:
    """Realm cep as it stands in most seed files: by its issuer."""
    await enlist()


@pytest.fixture
def browser(http: httpx2.AsyncClient) -> Browser:
    return Browser(http)
