"""Grounds where a replica takes a master's place: a Redis Cluster, and a master with two replicas under Sentinels."""

import random
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Protocol

from redis.crc import key_slot

from service.protocol.user import identify_user
from service.store.keys import REGISTRY_SHARD
from tests.cluster.failovers import order_switch
from tests.cluster.moving import find_own_slots, move_atomically, moves_atomically, moving_slot
from tests.cluster.nodes import Cluster, Shard, running_cluster, running_sentinel
from tests.faults.deployment import KEEPS_DATA
from tests.faults.soak.checker import WAITS_FOR_REPLICA
from tests.faults.soak.clock import read_clock, rest
from tests.faults.soak.history import Fault
from tests.faults.soak.servers import PEOPLE, Inject, Servers, hang
from tests.support.waiting import wait_until

AWAY_SECONDS = 2.0
"""The longest that a dead master stays away after another took its place."""
SHORTEST_DEAF_SECONDS, LONGEST_DEAF_SECONDS = 0.5, 1.5
"""Bounds of the time without replication before a master dies."""
MIN_LOST = 5
"""The number of requests without a confirmation that are answered before the master dies, if they come in time."""
SLOTS_AT_ONCE = 8
MOVED_SHARE = 0.5
"""The share of a slot's keys that moves before the others."""


class _Nodes(Protocol):
    @property
    def url(self) -> str: ...

    def wait_until_whole(self) -> None: ...


class Replicated(Servers):
    """Shards with one replica or more."""

    def __init__(self, folder: Path, nodes: _Nodes, shards: Sequence[Shard], variables: Mapping[str, str]) -> None:
        super().__init__(folder, (nodes.url, nodes.url), variables)
        self._nodes = nodes
        self._shards = shards

    @property
    def faults(self) -> Mapping[str, Inject]:
        return {
            **super().faults,
            "switch_master": self.switch_master,
            "kill_master": self.kill_master,
            "freeze_master": self.freeze_master,
            "lose_writes": self.lose_writes,
            "kill_replica": self.kill_replica,
        }

    def switch_master(self, rng: random.Random) -> Fault:
        """A planned failover, for which an operator asks."""
        place, started = self._pick_copied_shard(rng)
        shard = self._shards[place]
        order_switch(shard)
        shard.wait_for_promotion()
        return self._failed_over("switch_master", place, started, read_clock())

    def kill_master(self, rng: random.Random) -> Fault:
        """kill -9; its replica takes over, and some time after that it comes back as a replica."""
        place, started = self._pick_copied_shard(rng)
        shard = self._shards[place]
        killed = shard.master
        shard.kill_master()
        shard.wait_for_promotion()
        took_over = read_clock()
        rest(rng, 0, AWAY_SECONDS)
        shard.restart(killed)
        return self._failed_over("kill_master", place, started, took_over)

    def lose_writes(self, rng: random.Random) -> Fault:
        """A master dies that its replica could not follow any more: what came meanwhile is lost."""
        place, started = self._pick_copied_shard(rng)
        shard = self._shards[place]
        killed = shard.master
        with killed.connect() as store:
            # Freezing the replica would not do: what was sent waits for it in its socket.
            store.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
            store.execute_command("CLIENT", "KILL", "TYPE", "replica")
        deaf_since = read_clock()
        rest(rng, SHORTEST_DEAF_SECONDS, LONGEST_DEAF_SECONDS)
        # Sentinel promotes no replica whose link was down nine times as long as a master may be silent.
        wait_until(
            lambda: (
                self.count_answered(WAITS_FOR_REPLICA, deaf_since) >= MIN_LOST
                or read_clock() > deaf_since + LONGEST_DEAF_SECONDS
            ),
            "writes to be lost",
        )
        shard.kill_master()
        shard.wait_for_promotion()
        took_over = read_clock()
        shard.restart(killed)
        return self._failed_over("lose_writes", place, started, took_over)

    def freeze_master(self, rng: random.Random) -> Fault:
        """SIGSTOP until its replica has taken over, and SIGCONT some time after that: it has to give way then."""
        place, started = self._pick_copied_shard(rng)
        shard = self._shards[place]
        with shard.master.frozen():
            shard.wait_for_promotion()
            took_over = read_clock()
            rest(rng, 0, AWAY_SECONDS)
        return self._failed_over("freeze_master", place, started, took_over)

    def _pick_copied_shard(self, rng: random.Random) -> tuple[int, float]:
        """Return its place and a time; what was answered before that time is surely at each of its replicas."""
        place, started = rng.randrange(len(self._shards)), read_clock()
        shard = self._shards[place]
        with shard.master.connect() as master:
            reached = master.info("replication")["master_repl_offset"]
        for server in shard.replicas:
            with server.connect() as replica:
                wait_until(
                    lambda replica=replica: replica.info("replication")["slave_repl_offset"] >= reached,
                    "the replica to have everything",
                )
        return place, started

    def _failed_over(self, name: str, place: int, started: float, took_over: float) -> Fault:
        self._nodes.wait_until_whole()
        users = self._find_people(self._shards[place])
        return Fault(name=name, started=started, ended=read_clock(), took_over=took_over, users=users)

    def _find_people(self, shard: Shard) -> frozenset[str] | None:
        """Return the users whose keys lie there, or None for all."""
        return None

    def kill_replica(self, rng: random.Random) -> Fault:
        """kill -9 and a new start: what waits for a replica has to wait, or is refused."""
        started, shard = read_clock(), rng.choice(self._shards)
        killed = shard.replica
        killed.kill()
        hang(rng)
        shard.restart(killed)
        self._nodes.wait_until_whole()
        return Fault(name="kill_replica", started=started, ended=read_clock())


class Divided(Replicated):
    """A cluster, whose slots may move as well."""

    def __init__(self, folder: Path, cluster: Cluster, variables: Mapping[str, str]) -> None:
        super().__init__(folder, cluster, cluster.shards, variables)
        self._cluster = cluster

    @property
    def faults(self) -> Mapping[str, Inject]:
        faults = {**super().faults, "move_slot": self.move_slot}
        if moves_atomically(self._cluster.nodes[0]):
            faults["move_slot_atomically"] = self.move_slot_atomically
        return faults

    def move_slot(self, rng: random.Random) -> Fault:
        """Several key by key, each to the next master: some keys at once, the others some time after."""
        started, tags = read_clock(), self._pick_tags(rng)
        with ExitStack() as stack:
            for tag in tags:
                stack.enter_context(moving_slot(self._cluster, tag)).move_keys(lambda _: rng.random() < MOVED_SHARE)
            hang(rng)
        return self._moved("move_slot", tags, started)

    def move_slot_atomically(self, rng: random.Random) -> Fault:
        """Several, each by the server itself: the next master has all of its keys, or none."""
        started, tags = read_clock(), self._pick_tags(rng)
        for tag in tags:
            move_atomically(self._cluster, tag)
        return self._moved("move_slot_atomically", tags, started)

    def _pick_tags(self, rng: random.Random) -> list[str]:
        """Return tags of users, sometimes also that of the registry, which has a slot of its own.

        Each slot comes once.
        """
        tags = [_REGISTRY_TAG, *(_tag_of(credentials.username) for credentials in PEOPLE)]
        by_slot = {key_slot(tag.encode()): tag for tag in tags}
        return rng.sample(sorted(by_slot.values()), SLOTS_AT_ONCE)

    def _moved(self, name: str, tags: Sequence[str], started: float) -> Fault:
        self._nodes.wait_until_whole()
        names = frozenset(credentials.username for credentials in PEOPLE if _tag_of(credentials.username) in tags)
        return Fault(name=name, started=started, ended=read_clock(), users=None if _REGISTRY_TAG in tags else names)

    def _find_people(self, shard: Shard) -> frozenset[str]:
        with shard.master.connect() as master:
            slots = find_own_slots(master)
            return frozenset(
                credentials.username
                for credentials in PEOPLE
                if key_slot(_tag_of(credentials.username).encode()) in slots
            )


_REGISTRY_TAG = "{" + REGISTRY_SHARD + "}"


def _tag_of(username: str) -> str:
    return "{" + identify_user("main", username).shard + "}"


@contextmanager
def running_watched_servers(
    folder: Path, variables: Mapping[str, str], *, min_replicas: int = 1
) -> Iterator[Replicated]:
    """A master under three Sentinels, with one replica more than must confirm.

    So enough are left after a failover. Each of them that could be promoted must confirm.
    """
    with running_sentinel(folder, replicas=min_replicas + 1, sentinels=3, options=KEEPS_DATA) as watched:
        servers = Replicated(folder, watched, [watched], variables)
        with servers.running_instances():
            yield servers


@contextmanager
def running_three_and_three(folder: Path, variables: Mapping[str, str], *, min_replicas: int = 1) -> Iterator[Divided]:
    """A Redis Cluster of three masters, each with as many replicas as must confirm.

    One more could be promoted without what the others confirmed. So revocations are refused while a replica is down.
    """
    with running_cluster(folder, replicas=min_replicas, options=KEEPS_DATA) as cluster:
        servers = Divided(folder, cluster, variables)
        with servers.running_instances():
            yield servers
