"""redis.conf, on the server that the embedded store would start."""

from collections.abc import Iterator

import pytest
import redis

from service.embedded.server import EmbeddedStore

# Command lines are tuples, since some words contain spaces.

FORBIDDEN: list[tuple[str, ...]] = [
    ("FLUSHALL",),
    ("FLUSHDB",),
    ("KEYS", "*"),
    ("MONITOR",),
    ("SHUTDOWN", "NOSAVE"),
    ("DEBUG", "SLEEP", "0"),
    ("SWAPDB", "0", "1"),
    ("MIGRATE", "127.0.0.1", "1", "key", "0", "1"),
    ("RESTORE", "copy", "0", "text"),
    ("MODULE", "LIST"),
    ("REPLICAOF", "NO", "ONE"),
    ("SLAVEOF", "NO", "ONE"),
    ("SYNC",),
    ("SAVE",),
    ("BGSAVE",),
    ("BGREWRITEAOF",),
    ("SORT", "set"),
    ("CONFIG", "SET", "maxmemory", "1"),
    ("CONFIG", "REWRITE"),
    ("CONFIG", "RESETSTAT"),
    ("ACL", "SETUSER", "default", "+@all"),
    ("ACL", "LIST"),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[redis.Redis]:
    embedded = EmbeddedStore(tmp_path_factory.mktemp("redis_conf"))
    try:
        embedded.claim()
        embedded.start()
        with redis.Redis(unix_socket_path=str(embedded.socket_path), decode_responses=True) as client:
            yield client
    finally:
        embedded.stop()


@pytest.mark.parametrize("command", FORBIDDEN, ids=" ".join)
def test_harmful_commands_are_refused(store: redis.Redis, command: tuple[str, ...]) -> None:
    # Newer servers disable DEBUG by default, with another message.
    with pytest.raises(redis.ResponseError, match=r"permission|not allowed"):
        store.execute_command(*command)  # type: ignore[no-untyped-call]


def test_nothing_is_evicted_and_everything_is_written_down(store: redis.Redis) -> None:
    settings = _settings(store)
    assert settings["maxmemory-policy"] == "noeviction"
    assert settings["appendonly"] == "yes"
    assert settings["appendfsync"] == "everysec"
    assert settings["save"] == ""


def test_peer_that_never_reads_is_disconnected(store: redis.Redis) -> None:
    """The limit is 64 MB at once, or 16 MB for half a minute."""
    assert f"normal {64 << 20} {16 << 20} 30" in str(_settings(store)["client-output-buffer-limit"])


def test_the_embedded_server_listens_on_its_socket_alone(store: redis.Redis) -> None:
    settings = _settings(store)
    assert settings["port"] == "0"
    assert settings["unixsocketperm"] == "700"
    assert settings["protected-mode"] == "yes"


def _settings(store: redis.Redis) -> dict[str | None, str | None]:
    found = store.config_get("*")
    assert isinstance(found, dict)
    return found
