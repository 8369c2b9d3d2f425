"""The service in this process, for measurements without a server or of callbacks of the event loop."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import httpx2
from starlette.types import ASGIApp

from service.app import build_app
from service.config.settings import load_settings
from service.observability.logs import configure_logging
from service.worker import Worker
from tests.conftest import http_client_for, running_lifespan


@asynccontextmanager
async def running_in_process(environment: Mapping[str, str]) -> AsyncIterator[tuple[ASGIApp, httpx2.AsyncClient]]:
    """Start the application without a server. Yields it and an HTTP client for it."""
    app = build_app(Worker(load_settings(environment), lambda: 0))
    async with running_lifespan(app), http_client_for(app) as http:
        yield app, http


@contextmanager
def logging_to(file: Path) -> Iterator[None]:
    """Write the warnings of the service in this process to a file, in the format of a worker's log."""
    with file.open("wb") as log:
        configure_logging("warning", "json", log.write)
        yield
        logging.getLogger().handlers.clear()
