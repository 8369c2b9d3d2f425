"""A cluster that says what a test wants it to say: maps that change at once, are wrong, or are none."""

import functools
from base64 import urlsafe_b64encode
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Final

from redis.crc import key_slot

from service.crypto.keyring import make_access_token
from service.protocol.token_form import SHARD
from tests.redis_client.scripted_redis import ScriptedRedis, bulk, read_scripted_clock, scripted_redis
from tests.support.clients_and_users import access_key_of

SLOTS: Final = 16384
HOST: Final = b"127.0.0.1"
NONE: Final = b"_\r\n"

Range = tuple[int, int, ScriptedRedis]


class ScriptedCluster:
    """Nodes with one map and one set of records. Each redirects commands for keys of another node.

    `say_map` and `say_record` return a node's answers to CLUSTER SLOTS and GET. The nodes in `lost` report that they
    are cut off from the others. `epochs` has the current epoch that a node knows of, by default 0.
    """

    def __init__(self, nodes: list[ScriptedRedis]) -> None:
        self.nodes = nodes
        self.ranges: list[Range] = []
        self.records: dict[bytes, bytes] = {}
        self.lost: set[ScriptedRedis] = set()
        self.epochs: dict[ScriptedRedis, int] = {}
        self.say_map: Callable[[ScriptedRedis], bytes] = lambda _: render_map(self.ranges)
        self.say_record: Callable[[ScriptedRedis, bytes], bytes] = self.find_record
        self.share(*nodes)
        for node in nodes:
            node.answer = functools.partial(self._answer, node)

    @property
    def url(self) -> str:
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def share(self, *masters: ScriptedRedis) -> None:
        """All slots among these, in their order."""
        bounds = [SLOTS * number // len(masters) for number in range(len(masters) + 1)]
        self.ranges = [
            (first, end - 1, node) for first, end, node in zip(bounds, bounds[1:], masters, strict=False) if first < end
        ]

    def make_token(self, node: ScriptedRedis, *, live: bool = True) -> str:
        """An access token that lies on this node by the map of now."""
        shards = (f"{number:03x}" for number in range(4096))
        token = next(text for shard in shards if self.find_owner(key_of(text := make_access_token(shard).text)) is node)
        if live:
            self.records[key_of(token)] = record(token[SHARD])
        return token

    def find_record(self, node: ScriptedRedis, key: bytes) -> bytes:
        owner = self.find_owner(key)
        return self.records.get(key, NONE) if owner is node else moved(key, owner)

    def find_owner(self, key: bytes) -> ScriptedRedis:
        return next(node for first, last, node in self.ranges if first <= key_slot(key) <= last)

    def _answer(self, node: ScriptedRedis, command: list[bytes]) -> bytes:
        match command:
            case [b"CLUSTER", b"SLOTS"]:
                return self.say_map(node)
            case [b"CLUSTER", b"INFO"]:
                state = b"fail" if node in self.lost else b"ok"
                return bulk(b"cluster_state:%b\r\ncluster_current_epoch:%d\r\n" % (state, self.epochs.get(node, 0)))
            case [b"GET", key]:
                return self.say_record(node, key)
            case _:
                return b"+OK\r\n"


@asynccontextmanager
async def scripted_cluster(size: int) -> AsyncIterator[ScriptedCluster]:
    async with AsyncExitStack() as stack:
        yield ScriptedCluster([await stack.enter_async_context(scripted_redis()) for _ in range(size)])


def array(*parts: bytes) -> bytes:
    return b"*%d\r\n%b" % (len(parts), b"".join(parts))


def number(value: int) -> bytes:
    return b":%d\r\n" % value


def render_map(ranges: list[Range], host: bytes = HOST) -> bytes:
    """The answer to CLUSTER SLOTS."""
    return array(
        *(
            array(number(first), number(last), array(bulk(host), number(node.port), bulk(b"%040x" % node.port)))
            for first, last, node in ranges
        )
    )


def moved(key: bytes, node: ScriptedRedis, word: bytes = b"MOVED", host: bytes = HOST) -> bytes:
    return b"-%b %d %b:%d\r\n" % (word, key_slot(key), host, node.port)


def key_of(token: str) -> bytes:
    return access_key_of(token).encode()


def record(shard: str, now_ms: int | None = None) -> bytes:
    """Return the record of a token of this shard that lives for ten minutes, by default by the scripted clock."""
    if now_ms is None:
        now_ms = int(read_scripted_clock() * 1000)
    subject = urlsafe_b64encode(bytes.fromhex(f"{shard}0")).decode()[:2].ljust(22, "x")
    return bulk(
        f"2\n{now_ms}\n{now_ms + 600_000}\nfamily\nphone-app\n{subject}\ncarol\nrealm:main role:enduser".encode()
    )


def is_probe(key: bytes) -> bool:
    return b"probe-" in key
