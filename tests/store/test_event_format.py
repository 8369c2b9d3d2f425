"""The streams of security events are those that docs/reference/events-and-logs.md describes to other systems."""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
import redis

from service.observability.audit import GROUPS
from service.protocol.user import identify_user
from service.store.keys import registry_key
from service.worker import Worker
from tests.support.clients_and_users import ALICE, PHONE_APP, revoke_all, tokens_of
from tests.support.redis_users import WITHOUT_RIGHTS, find_allowed, find_refusals, read_rights
from tests.support.servers import CHECKOUT, RedisServer, knows_users, server_binary

GUIDE = (CHECKOUT / "docs" / "reference" / "events-and-logs.md").read_text()
BLOCKS: list[str] = re.findall(r"^ *```\n(.*?)\n *```$", GUIDE, re.MULTILINE | re.DOTALL)
KEYS, ENTRY, READ, _ = BLOCKS

pytestmark = [
    pytest.mark.clause("decided-event-format"),
    pytest.mark.single_server,
    pytest.mark.skipif(not knows_users(server_binary()), reason="Redis 6.2 cannot load the files of all users"),
]


@pytest.fixture
def reader(redis_server: RedisServer, store: redis.Redis) -> Iterator[redis.Redis]:
    """The connection of another system, with the Redis user that the guide gives it."""
    store.acl_log_reset()
    with redis.Redis.from_url(redis_server.url_of("events"), decode_responses=True) as client:
        yield client


def read_example() -> dict[str, str]:
    """Return the fields of the entry in the guide."""
    words: list[str] = [json.loads(word) for word in re.findall(r'\) ("(?:[^"\\]|\\.)*")', ENTRY)]
    return dict(zip(words[1::2], words[2::2], strict=True))


def test_the_guide_has_the_keys_and_names_the_user() -> None:
    assert KEYS.splitlines() == [registry_key("events", group) for group in GROUPS]
    assert "](../../examples/redis-events.acl)" in GUIDE


async def test_entry_of_a_revocation_is_that_of_the_guide(
    http: httpx2.AsyncClient, http_worker: Worker, reader: redis.Redis
) -> None:
    await revoke_all(http, tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"])
    await http_worker.audit_stream.flush()
    answer: Any = reader.execute_command(*READ.split())  # type: ignore[no-untyped-call]
    ((key, [(_, fields)]),) = answer
    example = read_example()
    event = json.loads(fields["event"])

    assert (key, list(fields), fields["version"]) == ("events:{registry}:users", list(example), example["version"])
    assert event == json.loads(example["event"])
    assert event["sub"] == identify_user("main", ALICE.username).digest


def test_reader_of_events_can_only_read_them(store: redis.Redis, reader: redis.Redis) -> None:
    granted = read_rights("events").commands
    allowed = find_allowed(store, "events", KEYS.splitlines()[0])
    assert allowed - WITHOUT_RIGHTS <= granted | {name.partition("|")[0] for name in granted}
    assert granted <= allowed
    for key in KEYS.splitlines():
        assert reader.xrange(key) == []
    assert not find_refusals(store, {"events"})
    for foreign in ("access:{0a3}:x", "user:{0a3}:x", "secret_keys:{registry}", "client:{registry}:x"):
        with pytest.raises(redis.exceptions.NoPermissionError):
            reader.xrange(foreign)
    with pytest.raises(redis.exceptions.NoPermissionError):
        reader.xadd(KEYS.splitlines()[0], {"event": "forged"})
