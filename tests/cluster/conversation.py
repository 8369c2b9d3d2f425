"""Runs the service, its console and a gateway at the REDIS_URL of the environment.

    python -m tests.cluster.conversation

prints a JSON object. It has the results of a probe, of a login, and of a look-up by the gateway and by the console. It
also has the message of the outage on each way to Redis.
"""

import asyncio
import json
import os
from collections.abc import Awaitable

import httpx2

from service.app import build_app
from service.config.settings import Settings, load_settings
from service.crypto.keyring import make_access_token
from service.gateway import BearerLookup
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.url import parse_redis_url
from service.store.client import StoreClient
from service.worker import Worker
from tests.admin.conftest import type_in
from tests.conftest import http_client_for, running_lifespan
from tests.support.clients_and_users import ALICE, PHONE_APP
from tests.support.waiting import until_true


async def converse(settings: Settings) -> dict[str, object]:
    url = os.environ["REDIS_URL"]
    bearer = BearerLookup(os.environ.get("GATEWAY_REDIS_URL", url))
    app = build_app(Worker(settings, lambda: 0))
    async with running_lifespan(app), http_client_for(app) as http:
        await until_true(lambda: _is_seeded(http), "the seed is in force, or Redis is away")
        said: dict[str, object] = {"ready": (await http.get("/readyz")).status_code}
        login = await PHONE_APP.log_in(http, ALICE)
        said["login"] = login.status_code
        token = login.json().get("access_token", make_access_token("0a3").text)
        found = await _try(bearer.lookup(token))
        said["gateway"] = getattr(found, "username", found)
    store = StoreClient(parse_redis_url(url))
    said["service"] = await _try(store.read("EXISTS", "user:{0a3}:x"))
    console = {"REDIS_URL": os.environ.get("CONSOLE_REDIS_URL", url)}
    stats = await asyncio.to_thread(type_in, "stats", "--json", environment=console)
    said["console"] = stats.json["sessions"] if stats.status == 0 else stats.aside
    await bearer.close()
    await store.close()
    return said


async def _is_seeded(http: httpx2.AsyncClient) -> bool:
    return "of" not in (await http.get("/readyz")).json()


async def _try(work: Awaitable[object]) -> object:
    try:
        return await work
    except StoreUnavailable as outage:
        return str(outage)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(converse(load_settings(os.environ)))))  # noqa: T201 - the answer
