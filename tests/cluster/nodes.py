"""Real nodes on this machine: a cluster of masters, and a master with a replica and a Sentinel."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis

from service.lifeline import __file__ as lifeline
from tests.certificates import Authority
from tests.servers import PASSWORD, RedisServer, free_port, server_binary, start_redis, stop, wait_until

SLOTS = 16384
MASTER_NAME = "tokens"
OPERATOR = f"user operator on >{PASSWORD} ~* &* +@all"
"""Of a Sentinel that knows only users: who looks into it for the tests."""


@dataclass(frozen=True)
class Cluster:
    """Masters that share the slots among them, and a plain client to look into them."""

    nodes: Sequence[RedisServer]
    client: redis.RedisCluster

    @property
    def url(self) -> str:
        scheme = "rediss+cluster" if self.nodes[0].authority else "redis+cluster"
        return f"{scheme}://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes)

    def url_of(self, user: str) -> str:
        """For one of the users that every server of the tests has."""
        return self.url.replace("//", f"//{user}:{PASSWORD}@") if self.nodes[0].has_users else self.url

    def node_of(self, key: str) -> int:
        """The number of the node that keeps it."""
        slot: int = self.client.keyslot(key)  # type: ignore[no-untyped-call]
        return slot * len(self.nodes) // SLOTS


@contextmanager
def running_cluster(folder: Path, size: int = 3, authority: Authority | None = None) -> Iterator[Cluster]:
    nodes: list[RedisServer] = []
    try:
        for number in range(size):
            nodes.append(start_node(folder / str(number), authority))
        _join(nodes)
        with redis.RedisCluster("127.0.0.1", nodes[0].port, decode_responses=True, **nodes[0].tls) as client:
            yield Cluster(nodes, client)
    finally:
        for node in nodes:
            stop(node.process)


def start_node(folder: Path, authority: Authority | None = None) -> RedisServer:
    folder.mkdir()
    bus = ("--cluster-port", str(free_port()))
    options: tuple[str, ...] = (
        "--cluster-enabled",
        "yes",
        "--cluster-node-timeout",
        "1000",
        "--cluster-require-full-coverage",
        "no",
    )
    if authority is not None:
        options += (*_tls_of(authority), "--tls-cluster", "yes")
    return start_redis(folder, *options, *bus, authority=authority.file if authority else None)


def _tls_of(authority: Authority) -> tuple[str, ...]:
    return tuple(word for name, value in authority.options().items() for word in (f"--{name}", value))


def _join(nodes: Sequence[RedisServer]) -> None:
    clients = [node.connect() for node in nodes]
    for number, client in enumerate(clients):
        first, last = SLOTS * number // len(nodes), SLOTS * (number + 1) // len(nodes) - 1
        client.execute_command("CLUSTER", "SET-CONFIG-EPOCH", number + 1)  # type: ignore[no-untyped-call]
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", first, last)  # type: ignore[no-untyped-call]
    for node in nodes[1:]:
        bus = node.connect().config_get("cluster-port")["cluster-port"]
        clients[0].execute_command("CLUSTER", "MEET", "127.0.0.1", node.port, bus)  # type: ignore[no-untyped-call]
    for client in clients:
        wait_until(lambda client=client: _is_whole(client, len(nodes)), "the cluster")
        client.close()


def _is_whole(client: redis.Redis, size: int) -> bool:
    information = client.cluster("INFO")
    return (information["cluster_state"], information["cluster_size"]) == ("ok", str(size))


@dataclass
class Watched:
    """A master and its replica under the eyes of one Sentinel."""

    master: RedisServer
    replica: RedisServer
    sentinel_port: int

    @property
    def url(self) -> str:
        scheme = "rediss+sentinel" if self.master.authority else "redis+sentinel"
        return f"{scheme}://127.0.0.1:{self.sentinel_port}/{MASTER_NAME}"

    def url_of(self, user: str) -> str:
        """For one of the users that every server of the tests has; the Sentinel asks for no password."""
        return self.url.replace("//", f"//{user}:{PASSWORD}@") if self.master.has_users else self.url


@contextmanager
def running_sentinel(
    folder: Path, authority: Authority | None = None, options: Sequence[str] = (), watching: Sequence[str] = ()
) -> Iterator[Watched]:
    """Options are those of both servers, and `watching` are lines of the Sentinel's configuration."""
    folders = [folder / name for name in ("master", "replica", "sentinel")]
    for each in folders:
        each.mkdir()
    options = (*options, *(_tls_of(authority) if authority else ()))
    file = authority.file if authority else None
    master = start_redis(folders[0], "--repl-diskless-sync-delay", "0", *options, authority=file)
    replica = start_redis(folders[1], "--replicaof", "127.0.0.1", str(master.port), *options, authority=file)
    if authority is not None:
        watching = (*watching, *(f"{name} {value}" for name, value in authority.options().items()))
    sentinel, port = _start_sentinel(folders[2], master, watching)
    try:
        with replica.connect() as client:
            wait_until(lambda: client.info("replication")["master_link_status"] == "up", "the replica")
        operator: dict[str, Any] = {"username": "operator", "password": PASSWORD} if OPERATOR in watching else {}
        with redis.Redis("127.0.0.1", port, decode_responses=True, **operator, **master.tls) as client:
            wait_until(lambda: _knows_replica(client), "the Sentinel")
        yield Watched(master, replica, port)
    finally:
        for process in (sentinel, replica.process, master.process):
            stop(process)


def _knows_replica(client: redis.Redis) -> bool:
    try:
        replicas = client.sentinel_slaves(MASTER_NAME)
    except redis.RedisError:
        return False
    return bool(replicas) and not replicas[0]["is_disconnected"] and replicas[0]["master-link-status"] == "ok"


def _start_sentinel(folder: Path, master: RedisServer, lines: Sequence[str]) -> tuple[subprocess.Popen[bytes], int]:
    port = free_port()
    configuration = folder / "sentinel.conf"
    configuration.write_text(
        f"{f'port 0{chr(10)}tls-port' if master.authority else 'port'} {port}\nbind 127.0.0.1\ndir {folder}\n"
        f"sentinel monitor {MASTER_NAME} 127.0.0.1 {master.port} 1\n"
        f"sentinel down-after-milliseconds {MASTER_NAME} 1000\n"
        f"sentinel failover-timeout {MASTER_NAME} 3000\n" + "".join(f"{line}\n" for line in lines)
    )
    command = [server_binary(), str(configuration), "--sentinel"]
    with (folder / "sentinel.log").open("wb") as log:
        process = subprocess.Popen([sys.executable, lifeline, str(os.getpid()), *command], stdout=log, stderr=log)
    return process, port
