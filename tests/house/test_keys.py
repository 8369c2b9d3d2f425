"""The table of keys in service/store/keys.py is what Redis really holds."""

from collections.abc import AsyncIterator

import httpx2
import msgspec
import pytest
import redis

from service.config.settings import make_redis_url
from service.protocol.user import identify_user
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.url import DISK
from service.registry.seed_file.read import parse_seed
from service.store import keys
from service.store.attempts import Counter
from service.store.client import StoreClient
from service.store.reports.readiness import find_obstacle
from service.store.sessions.families import UserEnding
from service.store.sessions.revocations import Revocations
from service.store.single_use import make_state_key, make_token_key
from service.worker import Worker
from tests.conftest import MakeSettings, make_code
from tests.house.key_table import Row, read_table
from tests.store.interruptions import BreakingConnection
from tests.support.browser import Browser, authorization_url
from tests.support.clients_and_users import ALICE, PHONE_APP, PHONE_CALLBACK, WEB_SHOP, tokens_of

REALM = b"""
realms:
  cep: {client_id: us, client_secret: secret-at-the-organisation, issuer: "https://login.example.org"}
"""

PERSISTENT = ("for good", "while a ")


async def every_kind_of_key(
    worker: Worker, http: httpx2.AsyncClient, broken: StoreClient, durable: StoreClient
) -> AsyncIterator[str]:
    """Run one of every operation. The store may be examined after each."""
    await worker.seeding.apply(parse_seed(REALM))
    yield "a seed"
    registry = worker.registry
    async with registry.make_lock(), registry.make_seed_lock(), registry.make_scan_lock():
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
    await worker.event_stream.append([b"{}"], [b"{}"], [b"{}"])
    yield "security events"
    with pytest.raises(StoreUnavailable):
        async with durable.durable("0a3") as scripts:
            await scripts.leave_fence()
    yield "a confirmation that nobody gives"
    identity = identify_user("main", ALICE.username)
    with pytest.raises(StoreUnavailable):
        await Revocations(broken, max_keys=0).revoke_all(identity.shard, identity.subject)
    yield "a revokeAll that was cut short"


def look_at_every_key(store: redis.Redis) -> list[tuple[str, str, int]]:
    """Each key with its type and what is left of its life; `none` where it ended between the list and the look."""
    found = [str(key) for key in store.scan_iter(count=1000)]
    pipeline = store.pipeline(transaction=False)
    for key in found:
        pipeline.type(key)
        pipeline.pttl(key)
    answers = pipeline.execute()
    looks = zip(found, answers[::2], answers[1::2], strict=True)
    return [(key, "none" if left_ms == -2 else kind, left_ms) for key, kind, left_ms in looks]


async def test_key_table_matches_the_code(
    worker: Worker, http: httpx2.AsyncClient, store: redis.Redis, make_settings: MakeSettings
) -> None:
    table = read_table()
    seen = set[Row]()
    broken = BreakingConnection(make_settings(), calls=1)
    durable = StoreClient(make_redis_url(make_settings()), durability=DISK)
    async for operation in every_kind_of_key(worker, http, broken, durable):
        for key, found_type, left_ms in look_at_every_key(store):
            rows = [row for row in table if row.fits(key)]

            assert len(rows) == 1, (operation, key)
            if found_type == "none" and not rows[0].lives.startswith(PERSISTENT):
                continue
            seen.update(rows)
            assert rows[0].type == found_type, (operation, key)
            assert rows[0].lives.startswith(PERSISTENT) == (left_ms == -1), (operation, key)
    await broken.close()
    await durable.close()

    assert set(table) == seen
