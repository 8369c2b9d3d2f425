"""Grounds where a replica takes a dead master's place: a Redis Cluster, and a pair under Sentinels."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from service.protocol.user import identify_user
from tests.cluster.nodes import Cluster, Shard, running_cluster, running_sentinel
from tests.faults.soak.grounds import PEOPLE, Ground, Inject, hang
from tests.faults.soak.history import Fault
from tests.faults.stage import KEEPS_DATA

AWAY_SECONDS = 2.0
"""The longest that a dead master stays away after another took its place."""
SHORTEST_DEAF_SECONDS, LONGEST_DEAF_SECONDS = 0.5, 1.5
"""How long a replica hears nothing before its master dies."""


class _Nodes(Protocol):
    @property
    def url(self) -> str: ...

    def wait_until_whole(self, seconds: float = ...) -> None: ...


class Replicated(Ground):
    """Shards with a replica each. `people_of`: who lies on which; None where there is one shard."""

    def __init__(
        self,
        folder: Path,
        nodes: _Nodes,
        shards: Sequence[Shard],
        variables: Mapping[str, str],
        people_of: Sequence[frozenset[str]] | None = None,
    ) -> None:
        super().__init__(folder, (nodes.url, nodes.url), variables)
        self._nodes = nodes
        self._shards = shards
        self._people_of = people_of

    @property
    def faults(self) -> Mapping[str, Inject]:
        return {
            **super().faults,
            "kill_master": self.kill_master,
            "freeze_master": self.freeze_master,
            "lose_writes": self.lose_writes,
            "kill_replica": self.kill_replica,
            "flush_scripts": self.flush_scripts,
        }

    def kill_master(self, rng: random.Random) -> Fault:
        """kill -9; its replica takes over, and some time after that it comes back as a replica."""
        place, started = rng.randrange(len(self._shards)), time.monotonic()
        shard = self._shards[place]
        killed = shard.master
        shard.kill_master()
        shard.wait_for_promotion()
        took_over = time.monotonic()
        time.sleep(rng.uniform(0, AWAY_SECONDS))
        shard.start_again(killed)
        return self._failed_over("kill_master", place, started, took_over)

    def lose_writes(self, rng: random.Random) -> Fault:
        """A master dies that its replica could not follow any more: what came meanwhile is lost."""
        place, started = rng.randrange(len(self._shards)), time.monotonic()
        shard = self._shards[place]
        killed = shard.master
        with killed.connect() as store:
            # Freezing the replica would not do: what was sent waits for it in its socket.
            store.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
            store.execute_command("CLIENT", "KILL", "TYPE", "replica")
        time.sleep(rng.uniform(SHORTEST_DEAF_SECONDS, LONGEST_DEAF_SECONDS))
        shard.kill_master()
        shard.wait_for_promotion()
        took_over = time.monotonic()
        shard.start_again(killed)
        return self._failed_over("lose_writes", place, started, took_over)

    def freeze_master(self, rng: random.Random) -> Fault:
        """SIGSTOP until its replica has taken over, and SIGCONT some time after that: it has to give way then."""
        place, started = rng.randrange(len(self._shards)), time.monotonic()
        shard = self._shards[place]
        with shard.master.frozen():
            shard.wait_for_promotion()
            took_over = time.monotonic()
            time.sleep(rng.uniform(0, AWAY_SECONDS))
        return self._failed_over("freeze_master", place, started, took_over)

    def _failed_over(self, name: str, place: int, started: float, took_over: float) -> Fault:
        self._nodes.wait_until_whole()
        users = None if self._people_of is None else self._people_of[place]
        return Fault(name=name, started=started, ended=time.monotonic(), took_over=took_over, users=users)

    def kill_replica(self, rng: random.Random) -> Fault:
        """kill -9 and a new start: what waits for a replica has to wait, or is refused."""
        started, shard = time.monotonic(), rng.choice(self._shards)
        killed = shard.replica
        killed.kill()
        hang(rng)
        shard.start_again(killed)
        self._nodes.wait_until_whole()
        return Fault(name="kill_replica", started=started, ended=time.monotonic())

    def flush_scripts(self, rng: random.Random) -> Fault:
        """Every master forgets all scripts."""
        started = time.monotonic()
        for shard in self._shards:
            with shard.master.connect() as store:
                store.script_flush()
            time.sleep(rng.uniform(0, 0.3))
        return Fault(name="flush_scripts", started=started, ended=time.monotonic())


@contextmanager
def running_watched_pair(folder: Path, variables: Mapping[str, str]) -> Iterator[Replicated]:
    """A master and a replica under three Sentinels."""
    with running_sentinel(folder, sentinels=3, options=KEEPS_DATA) as watched:
        ground = Replicated(folder, watched, [watched], variables)
        with ground.running_instances():
            yield ground


@contextmanager
def running_three_and_three(folder: Path, variables: Mapping[str, str]) -> Iterator[Replicated]:
    """A Redis Cluster of three masters with a replica each."""
    with running_cluster(folder, replicas=1, options=KEEPS_DATA) as cluster:
        ground = Replicated(folder, cluster, cluster.shards, variables, _find_people(cluster))
        with ground.running_instances():
            yield ground


def _find_people(cluster: Cluster) -> list[frozenset[str]]:
    def place_of(username: str) -> int:
        return cluster.node_of("{" + identify_user("main", username).shard + "}")

    places = {person.username: place_of(person.username) for person in PEOPLE}
    return [frozenset(name for name, place in places.items() if place == number) for number in range(3)]
