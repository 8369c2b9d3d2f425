"""One of every operation of the service that writes to Redis."""

from collections.abc import AsyncIterator
from typing import get_args

import httpx2
import msgspec
import pytest

from service.config.settings import make_redis_url
from service.observability.audit import GROUPS
from service.protocol.user import identify_user
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.url import Durability
from service.registry.seed_file.read import parse_seed
from service.store import keys
from service.store.attempts import Counter
from service.store.client import StoreClient
from service.store.registry.store import LongWork
from service.store.reports.readiness import find_obstacle
from service.store.sessions.families import UserEnding
from service.store.sessions.revocations import Revocations
from service.store.single_use import make_state_key, make_token_key
from service.worker import Worker
from tests.conftest import MakeSettings, make_code
from tests.store.interruptions import BreakingConnection
from tests.support.browser import Browser, authorization_url
from tests.support.clients_and_users import ALICE, PHONE_APP, PHONE_CALLBACK, WEB_SHOP, tokens_of

REALM = b"""
realms:
  cep: {client_id: us, client_secret: secret-at-the-organisation, issuer: "https://login.example.org"}
"""


async def every_kind_of_key(
    worker: Worker, http: httpx2.AsyncClient, make_settings: MakeSettings
) -> AsyncIterator[str]:
    """Run one of every operation. The store may be examined after each."""
    broken = BreakingConnection(make_settings(), calls=1)
    durable = StoreClient(make_redis_url(make_settings()), durability=Durability("disk"))
    await worker.seeding.apply(parse_seed(REALM))
    yield "a seed"
    registry = worker.registry
    seed, scan, everybody = (registry.make_lock_for(work) for work in get_args(LongWork))
    async with registry.make_lock(), seed, scan, everybody:
        yield "a seed under way"
    client = await worker.registry.clients.find("web-shop")
    assert client is not None
    await worker.registry.clients.put(client, msgspec.structs.replace(client, scope=f"{client.scope} role:admin"))
    yield "a narrowed client"
    await worker.registry.realms.put("cep", None, ends_sessions=True)
    yield "a narrowed realm"
    await worker.registry.add_pending_users([UserEnding.of(identify_user("main", ALICE.username), "password_set")])
    yield "a changed user"
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    await make_code(worker)
    yield "a login and a code"
    for _ in range(2):
        await PHONE_APP.refresh(http, tokens["refresh_token"])
    yield "a refresh and its retry"
    await PHONE_APP.revoke(http, tokens["refresh_token"])
    await PHONE_APP.log_in(http, ALICE)
    yield "a session revoked"
    await Browser(http).open_consent_page(authorization_url())
    yield "a consent page"
    await worker.single_use.take(make_state_key("state"), 600_000)
    yield "a login that came back from an organisation"
    await worker.single_use.note(make_token_key(identify_user("cep", "zoe"), "a token"))
    yield "a logout at an organisation"
    tokens_of(await PHONE_APP.exchange(http, await make_code(worker), PHONE_CALLBACK))
    yield "an exchanged code"
    await http.post("/oauth2/v1/token", data={"grant_type": "password"}, auth=(WEB_SHOP.client_id, "wrong"))
    await PHONE_APP.log_in(http, ALICE.__class__(ALICE.username, "wrong"))
    yield "failed checks"
    await worker.attempts.reserve([Counter(keys.address_key("login", "192.0.2.1"), 10, 60_000)])
    yield "a check under way"
    await find_obstacle(worker.redis)
    yield "a probe"
    await worker.event_stream.append(*[[b"{}"]] * len(GROUPS))
    yield "security events"
    with pytest.raises(StoreUnavailable):
        async with durable.durable("0a3") as scripts:
            await scripts.leave_fence()
    yield "a confirmation that nobody gives"
    identity = identify_user("main", ALICE.username)
    with pytest.raises(StoreUnavailable):
        await Revocations(broken, max_keys=0).revoke_all(identity.shard, identity.digest)
    yield "a revokeAll that was cut short"
    await broken.close()
    await durable.close()
