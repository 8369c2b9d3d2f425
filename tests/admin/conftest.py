"""Fixtures of the console: it runs in this process, on the test's Redis and with the test's clock."""

import asyncio
import json
import logging
import os
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from click.testing import CliRunner

from service.admin.command import console
from service.admin.context import AdminContext, open_context
from service.config.settings import load_settings
from tests.conftest import Clock, environment_of
from tests.support.clients_and_users import GATEWAY
from tests.support.servers import RedisServer


@dataclass(frozen=True)
class Answer:
    """The exit status and the output of a command."""

    status: int
    output: str
    aside: str

    @property
    def json(self) -> Any:
        return json.loads(self.output)

    @property
    def lines(self) -> list[Any]:
        return [json.loads(line) for line in self.output.splitlines()]


Admin = Callable[..., Awaitable[Answer]]


@contextmanager
def logs_as_before() -> Iterator[None]:
    """Restore logging after the console, which configures it for a process of its own."""
    root, store = logging.getLogger(), logging.getLogger("service.redis_client")
    handlers, level, store_level = root.handlers[:], root.level, store.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    store.setLevel(store_level)


def type_in(
    *words: str,
    typed: str | None = None,
    environment: dict[str, str],
    make_context: Callable[[], AdminContext] = open_context,
) -> Answer:
    """Run a command.

    `typed` is its stdin, which is not a terminal. Sweeps do not wait, since no request is under way.
    """

    def make_quick_context() -> AdminContext:
        context = make_context()
        context.pending_revocations.scan_delay_seconds = 0
        return context

    with logs_as_before():
        result = CliRunner(env=environment).invoke(
            console, words, input=typed, prog_name="token-service-admin", obj=make_quick_context
        )
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return Answer(result.exit_code, result.stdout, result.stderr)


@pytest.fixture
def environment(redis_server: RedisServer) -> dict[str, str]:
    return environment_of(redis_server, REDIS_URL=redis_server.url_of("console"))


@pytest.fixture
def admin(environment: dict[str, str], clock: Clock, registry: None) -> Admin:
    """A function that runs a command on a Redis with the clients and users of tests/seed.yaml."""

    def make_context() -> AdminContext:
        return AdminContext(load_settings(os.environ), lambda: clock.offset_ms)

    async def run(*words: str, typed: str | None = None) -> Answer:
        return await asyncio.to_thread(type_in, *words, typed=typed, environment=environment, make_context=make_context)

    return run


async def is_live(http: httpx2.AsyncClient, token: str) -> bool:
    active: bool = (await GATEWAY.introspect(http, token)).json()["active"]
    return active
