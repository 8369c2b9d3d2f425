"""The cast's service with a realm cep, whose organisation each test may bend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import httpx2
import pytest
import yaml

from service.app import Parts
from service.registry.seed import parse_seed
from tests.browser import Browser
from tests.hearing import heard
from tests.organisation import ScriptedOrganisation, realm_of, running_organisation

Enlist = Callable[..., Awaitable[None]]


@pytest.fixture
async def organisation() -> AsyncIterator[ScriptedOrganisation]:
    async with running_organisation() as organisation:
        yield organisation


@pytest.fixture
def enlist(parts: Parts, organisation: ScriptedOrganisation) -> Enlist:
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
