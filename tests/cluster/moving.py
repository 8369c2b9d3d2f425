"""A slot that moves from one master of a cluster to another in the old way, key by key, as far as a test wants."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from typing import Any

import redis

from tests.cluster.nodes import Cluster
from tests.support.servers import RedisServer
from tests.support.waiting import wait_until

KEYS_AT_ONCE = 100


def every_key(key: str) -> bool:
    return True


@dataclass(frozen=True)
class MovingSlot:
    """`source` has the slot until `finish`; both are plain clients, of one node each."""

    cluster: Cluster
    slot: int
    source: redis.Redis
    target: redis.Redis
    target_server: RedisServer
    nodes: tuple[redis.Redis, ...]

    def begin(self) -> None:
        self._set(self.target, "IMPORTING", _name_of(self.source))
        self._set(self.source, "MIGRATING", _name_of(self.target))

    def move_keys(self, is_wanted: Callable[[str], bool] = every_key) -> int:
        """Return how many keys moved: those of the slot that are wanted."""
        found: Any = self.source.execute_command("CLUSTER", "GETKEYSINSLOT", self.slot, 1_000_000)  # type: ignore[no-untyped-call]
        keys = [str(key) for key in found if is_wanted(str(key))]
        for at in range(0, len(keys), KEYS_AT_ONCE):
            batch = keys[at : at + KEYS_AT_ONCE]
            place = "127.0.0.1", self.target_server.port, "", 0, 10_000
            self.source.execute_command("MIGRATE", *place, "KEYS", *batch)  # type: ignore[no-untyped-call]
        return len(keys)

    def forget_to_give(self) -> None:
        """The source takes the slot for its own, as a replica of Redis 7.0 does that takes the place of the source."""
        self.source.execute_command("CLUSTER", "SETSLOT", self.slot, "STABLE")  # type: ignore[no-untyped-call]

    def finish(self) -> None:
        """The rest of the keys, and all nodes are told. Slots of one cluster are to be finished one after the other.

        A node that was not told yet would win the slot back where it got another one meanwhile, since its epoch is
        higher then.
        """
        self.move_keys()
        for node in (self.target, self.source, *self.nodes):
            self._set(node, "NODE", _name_of(self.target))
        _wait_until_settled(self.cluster, self.target, self.slot)

    def _set(self, node: redis.Redis, state: str, name: str) -> None:
        node.execute_command("CLUSTER", "SETSLOT", self.slot, state, name)  # type: ignore[no-untyped-call]


@contextmanager
def moving_slot(cluster: Cluster, key: str) -> Iterator[MovingSlot]:
    """The slot of this key is moving to the next master, without any key yet; it has moved at the end of the block."""
    slot = int(cluster.client.keyslot(key))  # type: ignore[no-untyped-call]
    with _connected(cluster.nodes) as nodes:
        source, target = _find_ends(nodes, slot)
        moving = MovingSlot(cluster, slot, nodes[source], nodes[target], cluster.nodes[target], nodes)
        moving.begin()
        yield moving
        moving.finish()


def moves_atomically(server: RedisServer) -> bool:
    """Return True if the server has CLUSTER MIGRATESLOTS, as Valkey 9 and later have."""
    with server.connect() as client:
        lines: Any = client.execute_command("CLUSTER", "HELP")
        return any(str(line).startswith("MIGRATESLOTS") for line in lines)


def move_atomically(cluster: Cluster, key: str) -> None:
    """The slot of this key goes to the next master, by the server itself."""
    slot = int(cluster.client.keyslot(key))  # type: ignore[no-untyped-call]
    with _connected(cluster.nodes) as nodes:
        source, target = _find_ends(nodes, slot)
        words = "MIGRATESLOTS", "SLOTSRANGE", slot, slot, "NODE", _name_of(nodes[target])
        nodes[source].execute_command("CLUSTER", *words)  # type: ignore[no-untyped-call]
        _wait_until_settled(cluster, nodes[target], slot)


def find_own_slots(node: redis.Redis) -> set[int]:
    """Return the slots that the node takes for its own."""
    ranges: Any = node.execute_command("CLUSTER", "SLOTS")  # type: ignore[no-untyped-call]
    name = _name_of(node)
    return {slot for first, last, master, *_ in ranges if str(master[2]) == name for slot in range(first, last + 1)}


@contextmanager
def _connected(servers: Sequence[RedisServer]) -> Iterator[tuple[redis.Redis, ...]]:
    """Yield a client of each server."""
    with ExitStack() as stack:
        yield tuple(stack.enter_context(closing(server.connect())) for server in servers)


def _find_ends(nodes: Sequence[redis.Redis], slot: int) -> tuple[int, int]:
    """The number of the master that has the slot, and that of the next one."""
    (source,) = [number for number, node in enumerate(nodes) if slot in find_own_slots(node)]
    return source, (source + 1) % len(nodes)


def _name_of(node: redis.Redis) -> str:
    return str(node.cluster("MYID"))


def _wait_until_settled(cluster: Cluster, owner: redis.Redis, slot: int) -> None:
    """Wait until all masters and replicas, which must be running, agree on the owner of the slot.

    A replica of Redis 7.0 that is promoted before it knows of the move takes the slots that its master had, and the
    moved slot is lost.
    """
    with _connected(cluster.servers) as nodes:

        def is_settled() -> bool:
            views = [_view_of(node) for node in nodes]
            return all(view == views[0] for view in views) and slot in find_own_slots(owner)

        wait_until(is_settled, "masters and replicas to agree on whose slot it is")


def _view_of(node: redis.Redis) -> set[tuple[str, ...]]:
    """The name, epoch and slots of each node that has slots, as this node sees them.

    Of a replica that was a master nodes may know different epochs for ever.
    """
    lines = [line.split() for line in str(node.execute_command("CLUSTER", "NODES")).splitlines()]  # type: ignore[no-untyped-call]
    owned = [(line, [slots for slots in line[8:] if not slots.startswith("[")]) for line in lines]
    return {(line[0], line[6], *slots) for line, slots in owned if slots}
