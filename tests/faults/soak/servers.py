"""The servers of a run: instances of the service on a Redis, and the faults that can happen to them.

Each fault is a method that does it and returns when everything works again. It returns its time and its victim. Faults
need no special rights: a full disk, for example, is a limit of the process on the size of its files.
"""

import random
import resource
import signal
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import yaml

from service.crypto.password_hashing import hash_password
from tests.conftest import SECRET_KEY, SEED
from tests.faults.deployment import PLENTY, Deployment
from tests.faults.proxy import running_proxy
from tests.faults.soak.clock import read_clock, rest
from tests.faults.soak.history import WRITES, Fault, History
from tests.faults.soak.instances import Instance
from tests.support.clients_and_users import UserCredentials
from tests.support.waiting import wait_until

PASSWORD = "the password of all of them"
PEOPLE = tuple(UserCredentials(f"user-{number}@example.com", PASSWORD) for number in range(48))
SHORTEST_SECONDS, MAX_SECONDS = 0.3, 2.6
"""Bounds of the duration of a hang: from hardly noticed to well past the deadline of a request."""
AHEAD_SECONDS = (600.0, -600.0)

Inject = Callable[[random.Random], Fault]


class Servers:
    """The servers of one round. `redis_urls` has one address for each instance; the last instance has a single worker.

    `history` is that of the present round. Some faults last until the history shows their effect.
    """

    history: History

    def __init__(self, folder: Path, redis_urls: Sequence[str], variables: Mapping[str, str]) -> None:
        seed = _write_seed(folder / "seed.yaml")
        self.instances = [
            Instance(number, folder, {**_environment(url, seed), **variables}, 1 if number else 2)
            for number, url in enumerate(redis_urls)
        ]

    @property
    def faults(self) -> Mapping[str, Inject]:
        return {
            "kill_worker": self.kill_worker,
            "freeze_worker": self.freeze_worker,
            "kill_instance": self.kill_instance,
            "wrong_clock": self.wrong_clock,
        }

    @contextmanager
    def running_instances(self) -> Iterator[None]:
        try:
            for instance in self.instances:
                instance.start()
            for instance in self.instances:
                instance.wait()
            yield
        finally:
            for instance in self.instances:
                instance.stop()

    def count_answered(self, kinds: Collection[str], since: float, status: int | None = None) -> int:
        """Return the number of requests that began after that time and were answered, or answered with this status."""
        return sum(
            call.kind in kinds and call.started >= since and (call.status == status if status else call.status > 0)
            for call in list(self.history.calls)
        )

    def kill_worker(self, rng: random.Random) -> Fault:
        """kill -9 of one of several."""
        instance, started = self.instances[0], read_clock()
        instance.kill_worker(rng.randrange(instance.workers))
        return Fault(name="kill_worker", started=started, ended=read_clock(), instance=instance.number)

    def freeze_worker(self, rng: random.Random) -> Fault:
        """SIGSTOP and SIGCONT of one."""
        instance, started = rng.choice(self.instances), read_clock()
        with instance.frozen_worker(rng.randrange(instance.workers)):
            hang(rng)
        return Fault(name="freeze_worker", started=started, ended=read_clock(), instance=instance.number)

    def kill_instance(self, rng: random.Random) -> Fault:
        """kill -9 of the supervisor and all workers, and a new start."""
        return self._restart("kill_instance", rng.choice(self.instances), 0)

    def wrong_clock(self, rng: random.Random) -> Fault:
        """Move the clock of the last instance by ten minutes, until the instance is killed."""
        return self._restart("wrong_clock", self.instances[-1], rng.choice(AHEAD_SECONDS))

    def _restart(self, name: str, instance: Instance, ahead_seconds: float) -> Fault:
        started = read_clock()
        instance.kill()
        instance.start(ahead_seconds=ahead_seconds)
        instance.wait()
        return Fault(name=name, started=started, ended=read_clock(), instance=instance.number)


def hang(rng: random.Random) -> None:
    rest(rng, SHORTEST_SECONDS, MAX_SECONDS)


def _environment(redis_url: str, seed: Path) -> dict[str, str]:
    limits = ("LOGIN_ATTEMPTS", "LOGIN_ATTEMPTS_PER_USER", "LOGIN_ATTEMPTS_PER_ADDRESS", "CLIENT_ATTEMPTS")
    return {
        "REDIS_URL": redis_url,
        "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
        "TOKEN_SERVICE_SEED_FILE": str(seed),
        "TOKEN_SERVICE_BASE_URL": "http://127.0.0.1:8000",
        "TOKEN_SERVICE_TRUSTED_PROXIES": "127.0.0.1",
        "LOG_LEVEL": "warning",
    } | {f"TOKEN_SERVICE_{limit}": PLENTY for limit in limits}


def _write_seed(file: Path) -> Path:
    """Write a seed with the clients of tests/seed.yaml and users of the run, who share one password and its hash."""
    seed = yaml.safe_load(SEED.read_text())
    password_hash = hash_password(PASSWORD)
    seed["users"] = [
        {"username": credentials.username, "password_hash": password_hash, "roles": ["enduser"]}
        for credentials in PEOPLE
    ]
    file.write_text(yaml.safe_dump(seed))
    return file


class SingleServer(Servers):
    """A Redis with an append-only file. The first instance uses a proxy, the second one connects directly."""

    def __init__(self, folder: Path, deployment: Deployment, variables: Mapping[str, str]) -> None:
        super().__init__(folder, (deployment.proxy.url, deployment.redis.url), variables)
        self._deployment = deployment

    @property
    def faults(self) -> Mapping[str, Inject]:
        return {
            **super().faults,
            "kill_redis": self.kill_redis,
            "freeze_redis": self.freeze_redis,
            "hold_network": self.hold_network,
            "cut_network": self.cut_network,
            "lose_answer": self.lose_answer,
            "fill_memory": self.fill_memory,
            "fill_disk": self.fill_disk,
            "flush_scripts": self.flush_scripts,
        }

    def kill_redis(self, rng: random.Random) -> Fault:
        """kill -9 and a new start with the same file."""
        started = read_clock()
        with self._deployment.killed():
            rest(rng, 0, 1)
        return Fault(name="kill_redis", started=started, ended=read_clock())

    def freeze_redis(self, rng: random.Random) -> Fault:
        """SIGSTOP and SIGCONT."""
        started = read_clock()
        with self._deployment.frozen():
            hang(rng)
        return Fault(name="freeze_redis", started=started, ended=read_clock())

    def hold_network(self, rng: random.Random) -> Fault:
        """Hold all data between the first instance and Redis, and deliver it at the end."""
        started = read_clock()
        with self._deployment.cut_off():
            hang(rng)
        return Fault(name="hold_network", started=started, ended=read_clock())

    def cut_network(self, rng: random.Random) -> Fault:
        """All connections of the first instance break, several times."""
        started = read_clock()
        for _ in range(rng.randint(1, 5)):
            self._deployment.proxy.cut()
            rest(rng, 0, 0.3)
        return Fault(name="cut_network", started=started, ended=read_clock())

    def lose_answer(self, rng: random.Random) -> Fault:
        """Redis runs a script, and its connection breaks before the answer is through; several times."""
        started = read_clock()
        for _ in range(rng.randint(1, 5)):
            self._deployment.proxy.cut_after = b"EVALSHA"
            rest(rng, 0.1, 0.4)
        self._deployment.proxy.cut_after = None
        return Fault(name="lose_answer", started=started, ended=read_clock())

    def fill_memory(self, rng: random.Random) -> Fault:
        """Redis reaches `maxmemory`, until at least one request was refused."""
        started = read_clock()
        with self._deployment.full():
            hang(rng)
            wait_until(lambda: self.count_answered(WRITES, started, 503) > 0, "a write to be refused")
        return Fault(name="fill_memory", started=started, ended=read_clock())

    def fill_disk(self, rng: random.Random) -> Fault:
        """The append-only file cannot grow: Redis's process gets a limit on the size of its files."""
        started = read_clock()
        pid, store = self._deployment.redis.process.pid, self._deployment.store
        _, most = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        size = store.info("persistence")["aof_current_size"]
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, most))
        try:
            hang(rng)
        finally:
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
        wait_until(lambda: store.info("persistence")["aof_last_write_status"] == "ok", "the file to be written again")
        return Fault(name="fill_disk", started=started, ended=read_clock())

    def flush_scripts(self, rng: random.Random) -> Fault:
        """Redis forgets all scripts, several times."""
        started = read_clock()
        for _ in range(rng.randint(1, 4)):
            self._deployment.store.script_flush()
            rest(rng, 0, 0.3)
        return Fault(name="flush_scripts", started=started, ended=read_clock())


@contextmanager
def running_single_server(
    folder: Path, variables: Mapping[str, str], *, min_replicas: int = 1
) -> Iterator[SingleServer]:
    """Instances are brought up too. The server has no replicas, whatever `min_replicas` is."""
    deployment = Deployment(folder)
    try:
        with running_proxy(deployment.redis.port) as proxy:
            deployment.proxy = proxy
            servers = SingleServer(folder, deployment, variables)
            with servers.running_instances():
                yield servers
    finally:
        deployment.store.close()
        deployment.redis.process.send_signal(signal.SIGCONT)
        deployment.redis.process.kill()
        deployment.redis.process.wait()
