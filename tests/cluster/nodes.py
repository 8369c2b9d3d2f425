"""Real nodes on this machine: a cluster with or without replicas, and a master with replicas and Sentinels.

Who belongs to whom stands in their files before they start, so they need not find it out from one another.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import redis

from service.system.process import __file__ as parent_death
from tests.support.certificates import Authority
from tests.support.servers import PASSWORD, RedisServer, free_port, knows_users, launch_redis, server_binary, with_user
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

SLOTS = 16384
MASTER_NAME = "tokens"
# A node that is silent for as long counts as lost: short where the tests kill, long where a busy machine is no fault.
QUICK_TIMEOUT_MS = 1000
CALM_TIMEOUT_MS = 15_000
OPERATOR = f"user operator on >{PASSWORD} ~* &* +@all"
"""The user of the tests on a Sentinel without a default user."""
BUS_OF_REDIS_6 = 10_000
MIN_BUS_OF_REDIS_6, MIN_SYSTEM_PORT = 30_000, 32_768
"""Bounds of ports that neither `free_port` nor the system gives out."""
AT_ONCE = ("--repl-diskless-sync-delay", "0")


@dataclass
class Shard:
    """A master and those that may follow it. `wait_for_promotion` is where they change their parts."""

    master: RedisServer
    replicas: list[RedisServer]

    @property
    def replica(self) -> RedisServer:
        """The first, where there are several."""
        return self.replicas[0]

    @property
    def servers(self) -> list[RedisServer]:
        return [self.master, *self.replicas]

    def kill_master(self) -> None:
        self.master.kill()

    def wait_for_promotion(self) -> RedisServer:
        """Wait until a replica is the master, and return it. The old master counts as a replica then, dead or alive."""
        wait_until(lambda: any(map(_is_master, self.replicas)), "a replica to be promoted")
        promoted = next(filter(_is_master, self.replicas))
        self.replicas = [self.master, *(replica for replica in self.replicas if replica is not promoted)]
        self.master = promoted
        return promoted

    def restart(self, server: RedisServer, *options: str) -> RedisServer:
        """A server that was killed, back as what the others make of it; who is who must be known by then."""
        started = server.restart(*options)
        if server is self.master:
            self.master = started
        else:
            self.replicas[self.replicas.index(server)] = started
        return started

    def wait_until_copied(self) -> None:
        """Wait until every replica follows the master and has all its data."""
        with self.master.connect() as master:
            for replica in self.replicas:
                wait_until(lambda replica=replica: _has_all(replica, master), "the replica to have everything")


def _is_master(server: RedisServer) -> bool:
    return _replication_of(server).get("role") == "master"


def _has_all(replica: RedisServer, master: redis.Redis) -> bool:
    """Offsets are compared, not sizes: a key that was changed counts as well."""
    is_at = _replication_of(replica)
    if is_at.get("master_link_status") != "up":
        return False
    has = master.info("replication")
    is_same_history: bool = is_at["master_replid"] == has["master_replid"]
    return is_same_history and is_at["slave_repl_offset"] >= has["master_repl_offset"]


def _replication_of(server: RedisServer) -> dict[str, Any]:
    """Return the server's INFO of replication, or nothing if it cannot be reached."""
    try:
        with redis.Redis(
            port=server.port, decode_responses=True, socket_timeout=MAX_WAIT_SECONDS, **server.access
        ) as client:
            return {**client.info("replication")}
    except redis.RedisError:
        return {}


class SharedClient(redis.RedisCluster):
    """A client for the whole life of a cluster. `close` leaves it open, since a new one sends many commands first."""

    def close(self) -> None:
        pass

    def info(self, section: str | None = None, *sections: str, **options: Any) -> Any:
        """Return the INFO of all masters in one. Numbers are added."""
        told = super().info(section, *sections, target_nodes=self.PRIMARIES, **options)
        return _added(list(told.values()))

    def config_set(self, *arguments: Any, **options: Any) -> Any:
        """Set the configuration on all masters."""
        return super().config_set(*arguments, target_nodes=self.PRIMARIES, **options)

    def client_list(self, *arguments: Any, **options: Any) -> Any:
        """Return the clients of all masters. A name can appear once for each."""
        told: Any = super().client_list(*arguments, target_nodes=self.PRIMARIES, **options)
        return [client for clients in told.values() for client in clients]

    def client_kill_filter(self, *arguments: Any, **options: Any) -> Any:
        """Kill the clients on all masters."""
        return super().client_kill_filter(*arguments, target_nodes=self.PRIMARIES, **options)

    def end(self) -> None:
        super().close()


def _added(values: list[Any]) -> Any:
    """Numbers as their sum, tables entry by entry, and of all else the first."""
    if isinstance(values[0], dict):
        names = dict.fromkeys(name for table in values for name in table)
        return {name: _added([table[name] for table in values if name in table]) for name in names}
    return sum(values) if isinstance(values[0], int | float) else values[0]


@dataclass(frozen=True)
class Cluster:
    """Shards that have the slots among them, in order, and a plain client to look into all of them."""

    shards: Sequence[Shard]
    client: redis.RedisCluster
    url: str

    @property
    def nodes(self) -> Sequence[RedisServer]:
        """The masters."""
        return [shard.master for shard in self.shards]

    @property
    def servers(self) -> Sequence[RedisServer]:
        """Masters and replicas."""
        return [server for shard in self.shards for server in shard.servers]

    def url_of(self, user: str) -> str:
        """Return the URL for one of the users that every server of the tests has."""
        return with_user(self.url, user) if self.nodes[0].has_users else self.url

    def connect(self) -> redis.Redis:
        """The client, which has the same methods but for few."""
        return cast("redis.Redis", self.client)

    def node_of(self, key: str) -> int:
        """The number of the node that keeps it."""
        slot: int = self.client.keyslot(key)  # type: ignore[no-untyped-call]
        return slot * len(self.shards) // SLOTS

    def wait_until_whole(self) -> None:
        """Wait until all servers agree on the masters and all replicas follow theirs. All must be running."""
        _wait_until_whole(self.shards)


@contextmanager
def running_cluster(
    folder: Path,
    size: int = 3,
    *,
    replicas: int = 0,
    timeout_ms: int = QUICK_TIMEOUT_MS,
    options: Sequence[str] = (),
    authority: Authority | None = None,
    binary: str | None = None,
) -> Iterator[Cluster]:
    """`size` masters with as many `replicas` each; `options` are those of a server's command line."""
    if authority is not None:
        options = (*options, *_tls_options(authority), "--tls-cluster", "yes")
    authority_file = authority.file if authority else None
    shards = _launch_shards(folder, size, replicas, timeout_ms, options, authority_file, binary or server_binary())
    try:
        _wait_until_whole(shards)
        servers = [*(shard.master for shard in shards), *(replica for shard in shards for replica in shard.replicas)]
        scheme = "rediss+cluster" if authority else "redis+cluster"
        url = f"{scheme}://" + ",".join(f"127.0.0.1:{server.port}" for server in servers)
        client = SharedClient(host="127.0.0.1", port=servers[0].port, decode_responses=True, **servers[0].access)
        try:
            yield Cluster(shards, client, url)
        finally:
            client.end()
    finally:
        _stop_all([server for shard in shards for server in shard.servers])


def _free_ports(binary: str) -> tuple[int, int]:
    """Return ports for a node and its bus.

    With Redis 6.2 the bus is 10,000 above the node, outside of the tests' ports.
    """
    port = free_port()
    if knows_users(binary):
        return port, free_port()
    while not MIN_BUS_OF_REDIS_6 <= port + BUS_OF_REDIS_6 < MIN_SYSTEM_PORT:
        port = free_port()
    return port, port + BUS_OF_REDIS_6


def _node_options(bus: int, timeout_ms: int, binary: str) -> tuple[str, ...]:
    about_cluster = {
        "enabled": "yes",
        **({"port": str(bus)} if knows_users(binary) else {}),
        "node-timeout": str(timeout_ms),
        "require-full-coverage": "no",
        "replica-validity-factor": "0",
        # A replica must not leave for a promoted one, which seems to have no replicas until they announce themselves.
        "migration-barrier": "100",
    }
    return (*AT_ONCE, *(word for name, value in about_cluster.items() for word in (f"--cluster-{name}", value)))


def _tls_options(authority: Authority) -> tuple[str, ...]:
    return tuple(word for name, value in authority.options().items() for word in (f"--{name}", value))


@dataclass(frozen=True)
class _Place:
    """An entry of `nodes.conf`. `master` is the place of the node that it follows."""

    name: str
    port: int
    bus: int
    number: int
    master: _Place | None

    def line(self, size: int, is_own: bool) -> str:
        flags = ("myself," if is_own else "") + ("slave" if self.master else "master")
        master = self.master.name if self.master else "-"
        slots = f" {SLOTS * self.number // size}-{SLOTS * (self.number + 1) // size - 1}" if not self.master else ""
        return f"{self.name} 127.0.0.1:{self.port}@{self.bus} {flags} {master} 0 0 {self.number + 1} connected{slots}\n"


def _launch_shards(
    folder: Path, size: int, replicas: int, timeout_ms: int, options: Sequence[str], authority: Path | None, binary: str
) -> list[Shard]:
    def place(number: int, master: _Place | None = None) -> _Place:
        return _Place(secrets.token_hex(20), *_free_ports(binary), number, master)

    masters = [place(number) for number in range(size)]
    places = masters + [place(master.number, master) for master in masters for _ in range(replicas)]

    def launch(own: _Place) -> RedisServer:
        home = folder / str(places.index(own))
        home.mkdir()
        lines = [each.line(size, each is own) for each in places]
        (home / "nodes.conf").write_text("".join(lines) + f"vars currentEpoch {size} lastVoteEpoch 0\n")
        own_options = (*_node_options(own.bus, timeout_ms, binary), *options)
        return launch_redis(home, *own_options, port=own.port, binary=binary, authority=authority)

    servers = {own.name: launch(own) for own in places}
    return [
        Shard(servers[master.name], [servers[each.name] for each in places if each.master is master])
        for master in masters
    ]


def _wait_until_whole(shards: Sequence[Shard]) -> None:
    """A node that has just started refuses its slots for two seconds, so nothing here is quicker than that."""
    servers = [server for shard in shards for server in shard.servers]
    for server in servers:
        server.await_start()
    worker = {server.port: "master" for server in servers}
    worker |= {replica.port: "slave" for shard in shards for replica in shard.replicas}
    for server in servers:
        with server.connect() as client:
            wait_until(lambda client=client: _is_whole(client, worker), "the cluster")
    for shard in shards:
        shard.wait_until_copied()


def _is_whole(client: redis.Redis, worker: dict[int, str]) -> bool:
    """Return True if a node sees all slots served, and every port with the role that it should have."""
    seen = {}
    for address, node in client.cluster("NODES").items():
        flags = node["flags"].removeprefix("myself,")
        seen[int(address.rpartition(":")[2])] = flags if node["connected"] else "away"
    return client.cluster("INFO")["cluster_state"] == "ok" and seen == worker


@dataclass
class Watched(Shard):
    """A master and its replicas under the eyes of Sentinels."""

    sentinels: Sequence[RedisServer]

    @property
    def sentinel_port(self) -> int:
        """Return the port of the first Sentinel."""
        return self.sentinels[0].port

    @property
    def url(self) -> str:
        addresses = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        scheme = "rediss+sentinel" if self.master.authority else "redis+sentinel"
        return f"{scheme}://{addresses}/{MASTER_NAME}"

    def url_of(self, user: str) -> str:
        """Return the URL for one of the users that every server of the tests has."""
        return with_user(self.url, user) if self.master.has_users else self.url

    def connect(self) -> redis.Redis:
        """A plain client to look into the master."""
        return self.master.connect()

    def restart(self, server: RedisServer, *options: str) -> RedisServer:
        """An operator tells it whom to follow; the Sentinels would, but only after long looking at it."""
        follow = () if server is self.master else ("--replicaof", "127.0.0.1", str(self.master.port))
        return super().restart(server, *follow, *options)

    def wait_until_named(self) -> None:
        """Wait until all Sentinels name this master. A Sentinel hears of a promotion when it next asks for the role."""
        for sentinel in self.sentinels:
            with sentinel.connect() as client:
                wait_until(lambda client=client: self._is_named_by(client), "the Sentinels to name the master")

    def _is_named_by(self, client: redis.Redis) -> bool:
        return client.sentinel_get_master_addr_by_name(MASTER_NAME) == ("127.0.0.1", self.master.port)

    def wait_until_whole(self) -> None:
        """Wait until all Sentinels name this master and see all servers."""
        self.wait_until_copied()
        for sentinel in self.sentinels:
            with sentinel.connect() as client:
                wait_until(lambda client=client: self._is_seen_by(client), "the Sentinels")

    def _is_seen_by(self, client: redis.Redis) -> bool:
        try:
            master = cast("dict[str, Any]", client.sentinel_master(MASTER_NAME))
            replicas = client.sentinel_slaves(MASTER_NAME)
        except redis.RedisError:
            return False
        follow = {each["port"] for each in replicas if each["master-link-status"] == "ok" and not each["is_sdown"]}
        return (
            (master["ip"], master["port"], master["flags"]) == ("127.0.0.1", self.master.port, "master")
            and master["num-other-sentinels"] == len(self.sentinels) - 1
            and {server.port for server in self.replicas} <= follow
        )


@contextmanager
def running_sentinel(
    folder: Path,
    *,
    replicas: int = 1,
    sentinels: int = 1,
    down_after_ms: int = 1000,
    options: Sequence[str] = (),
    watching: Sequence[str] = (),
    authority: Authority | None = None,
) -> Iterator[Watched]:
    """More than half of the `sentinels` must find the master silent for so long; `options` are for the others.

    `watching` are lines of the Sentinels' configuration.
    """
    file = authority.file if authority else None
    if authority is not None:
        options = (*options, *_tls_options(authority))
        watching = (*watching, *(f"{name} {value}" for name, value in authority.options().items()))
    own = (*AT_ONCE, *options)
    watched = Watched(launch_redis(_made(folder / "master"), *own, authority=file), [], [])
    follow = ("--replicaof", "127.0.0.1", str(watched.master.port))
    try:
        for number in range(replicas):
            replica = launch_redis(_made(folder / f"replica-{number}"), *own, *follow, authority=file)
            watched.replicas.append(replace(replica, options=own))
        watched.sentinels = _launch_sentinels(folder, watched, sentinels, down_after_ms, watching)
        for server in (*watched.servers, *watched.sentinels):
            server.await_start()
        for sentinel in watched.sentinels:
            _hurry(sentinel)
        watched.wait_until_whole()
        yield watched
    finally:
        _stop_all((*watched.sentinels, *watched.servers))


def running_calm_cluster(folder: Path) -> AbstractContextManager[Cluster]:
    """Three masters with a replica each, for tests that mean no harm: a busy machine makes no replica a master."""
    return running_cluster(folder, replicas=1, timeout_ms=CALM_TIMEOUT_MS)


def running_calm_sentinel(folder: Path) -> AbstractContextManager[Watched]:
    """A master with a replica, as little shaken as the cluster."""
    return running_sentinel(folder, down_after_ms=CALM_TIMEOUT_MS)


def _launch_sentinels(
    folder: Path, watched: Shard, count: int, down_after_ms: int, watching: Sequence[str]
) -> list[RedisServer]:
    about = f"{MASTER_NAME} 127.0.0.1"
    names = [(secrets.token_hex(20), free_port()) for _ in range(count)]

    def launch(number: int) -> RedisServer:
        name, port = names[number]
        home = _made(folder / f"sentinel-{number}")
        configuration = home / "sentinel.conf"
        lines = [
            *(("port 0", f"tls-port {port}") if watched.master.authority else (f"port {port}",)),
            "bind 127.0.0.1",
            f"dir {home}",
            f"sentinel myid {name}",
            f"sentinel monitor {about} {watched.master.port} {count // 2 + 1}",
            f"sentinel down-after-milliseconds {MASTER_NAME} {down_after_ms}",
            f"sentinel failover-timeout {MASTER_NAME} 3000",
            *(f"sentinel known-replica {about} {replica.port}" for replica in watched.replicas),
            *(f"sentinel known-sentinel {about} {other} {its}" for its, other in names if its != name),
            *watching,
        ]
        configuration.write_text("\n".join(lines) + "\n")
        command = [sys.executable, parent_death, str(os.getpid()), server_binary(), str(configuration), "--sentinel"]
        with (home / "redis.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log)
        authority = watched.master.authority
        return RedisServer(process, home, port, authority=authority, has_operator=OPERATOR in watching)

    return [launch(number) for number in range(count)]


def _hurry(sentinel: RedisServer) -> None:
    """Shorten the periods in which a Sentinel asks its servers.

    A returning master then learns within seconds, not half a minute, that another took its place. By default Sentinel
    pings a new master only after the second of silence that counts as death here. A period of PING must not be too
    short either: Sentinel promotes no replica that was silent for five of them.
    """
    with sentinel.connect() as client:
        periods = ("INFO-PERIOD", 500, "PUBLISH-PERIOD", 250, "PING-PERIOD", 500)
        client.execute_command("SENTINEL", "DEBUG", *periods)


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


def _stop_all(servers: Sequence[RedisServer]) -> None:
    """The frozen ones too."""
    for server in servers:
        if server.process.poll() is None:
            server.process.kill()
    for server in servers:
        server.process.wait()
