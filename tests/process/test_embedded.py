"""The embedded store: a real server of our own, which ends with its owner."""

import os
import signal
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from service.embedded.binary import NoServerBinary, Release, choose_server, parse_release
from service.embedded.data_folder import socket_path
from service.embedded.process import StoreFailed
from service.embedded.server import EmbeddedStore
from service.system.private_files import FolderRefused, make_private
from tests.process.locks import can_lock
from tests.support.servers import CHECKOUT
from tests.support.waiting import wait_until

Start = Callable[[Path], EmbeddedStore]


def connect(store: EmbeddedStore) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(store.socket_path), decode_responses=True)


def server_is_gone(data_dir: Path) -> bool:
    """Return True if the server has ended. It holds this lock while it lives."""
    return can_lock(data_dir / "store.lock")


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[EmbeddedStore] = []

    def start_store(folder: Path) -> EmbeddedStore:
        store = EmbeddedStore(folder)
        started.append(store)
        store.claim()
        store.start(lambda reason: None)
        return store

    yield start_store
    for store in started:
        store.stop()


def test_it_answers_once_started_and_is_gone_once_stopped(start: Start, tmp_path: Path) -> None:
    store = start(tmp_path)
    with connect(store) as client:
        assert client.ping()
    assert not server_is_gone(tmp_path)
    store.stop()
    assert server_is_gone(tmp_path)
    assert not store.socket_path.exists()


def test_a_restart_keeps_the_data(start: Start, tmp_path: Path) -> None:
    store = start(tmp_path)
    with connect(store) as client:
        client.set("session", "alive")
    store.stop()
    with connect(start(tmp_path)) as client:
        assert client.get("session") == "alive"


def test_the_folder_is_private(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / "made" / "by us"
    store = start(folder)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE((folder / "secret_key").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder / "store.log").stat().st_mode) == 0o600
    assert stat.S_IMODE(store.socket_path.stat().st_mode) == 0o700


def test_a_folder_that_was_open_to_others_is_closed(start: Start, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    start(tmp_path)
    assert stat.S_IMODE(tmp_path.stat().st_mode) == 0o700


def test_a_folder_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(FolderRefused, match="belongs to another user"):
        EmbeddedStore(tmp_path).claim()


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderRefused, match="is not a folder"):
        EmbeddedStore(tmp_path / "file").claim()


def test_a_link_beside_others_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FolderRefused, match="is not a folder"):
        make_private(tmp_path / "link", follow_symlinks=False)


def test_a_second_start_on_the_same_folder_is_refused_at_once(start: Start, tmp_path: Path) -> None:
    start(tmp_path)
    with pytest.raises(FolderRefused, match="in use"):
        EmbeddedStore(tmp_path).claim()


def test_the_key_is_made_once(start: Start, tmp_path: Path) -> None:
    store = start(tmp_path)
    key = (tmp_path / "secret_key").read_bytes()
    assert len(key.strip()) >= 32
    store.stop()
    start(tmp_path)
    assert (tmp_path / "secret_key").read_bytes() == key


def test_a_deep_folder_has_its_socket_elsewhere(start: Start, tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    store = start(folder)
    assert store.socket_path == socket_path(folder)
    assert store.socket_path.parent != folder
    assert stat.S_IMODE(store.socket_path.parent.stat().st_mode) == 0o700
    with connect(store) as client:
        assert client.ping()
    store.stop()
    assert not store.socket_path.parent.exists()


def test_a_server_that_died_is_started_again_with_its_data(start: Start, tmp_path: Path) -> None:
    store = start(tmp_path)
    with connect(store) as client:
        client.set("session", "alive")
    first = store.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)

    def is_back() -> bool:
        try:
            with connect(store) as client:
                return bool(client.get("session") == "alive")
        except redis.ConnectionError:
            return False

    wait_until(lambda: store.pid != first and is_back())
    store.stop()
    assert server_is_gone(tmp_path)


def test_a_server_that_dies_again_and_again_is_given_up(tmp_path: Path) -> None:
    gave_up = threading.Event()
    store = EmbeddedStore(tmp_path)
    killed = set()
    try:
        store.claim()
        store.start(lambda reason: gave_up.set())

        def kill_the_next() -> bool:
            if store.pid is not None and store.pid not in killed and not server_is_gone(tmp_path):
                killed.add(store.pid)
                os.kill(store.pid, signal.SIGKILL)
            return gave_up.is_set()

        wait_until(kill_the_next)
    finally:
        store.stop()
    assert server_is_gone(tmp_path)


HOLD_A_STORE = """
import sys, threading
from pathlib import Path
from service.embedded.server import EmbeddedStore
store = EmbeddedStore(Path(sys.argv[1]))
store.claim()
store.start(lambda reason: None)
print("started", flush=True)
threading.Event().wait()
"""


def test_kill_9_of_its_owner_leaves_no_orphan(start: Start, tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLD_A_STORE, str(tmp_path)]
    with subprocess.Popen(command, cwd=CHECKOUT, stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        try:
            assert owner.stdout.readline() == "started\n"
        finally:
            owner.kill()
    # The next start waits for the old server itself.
    with connect(start(tmp_path)) as client:
        assert client.ping()


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").touch()
    (tmp_path / "appendonly.aof").mkdir()
    store = EmbeddedStore(tmp_path)
    try:
        store.claim()
        with pytest.raises(StoreFailed, match=r"store\.log ends: \S"):
            store.start(lambda reason: None)
    finally:
        store.stop()


def fake_server(folder: Path, name: str, version_line: str) -> Path:
    file = folder / name
    file.write_text(f"#!/bin/sh\necho '{version_line}'\n")
    file.chmod(0o755)
    return file


def test_the_machines_own_server_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = fake_server(tmp_path, "redis-server", "Redis server v=6.2.0 sha=0")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert choose_server() == (str(own), Release("redis", (6, 2, 0)))


@pytest.mark.parametrize("version_line", ["Redis server v=6.0.16 sha=0", "command not found"])
def test_a_server_that_is_too_old_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version_line: str
) -> None:
    old = fake_server(tmp_path, "redis-server", version_line)
    monkeypatch.setenv("PATH", str(tmp_path))
    path, release = choose_server()
    assert path != str(old)
    assert release.is_supported


def test_without_any_server_the_error_says_what_to_do(tmp_path: Path) -> None:
    old = fake_server(tmp_path, "redis-server", "Redis server v=5.0.7 sha=0")
    with pytest.raises(NoServerBinary, match=r"set REDIS_URL; found only .*\(redis 5\.0\.7\)"):
        choose_server(candidates=[str(old)])


def test_a_server_installed_later_does_not_take_over_data_that_it_cannot_read(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    data_dir = tmp_path / "data"
    store = start(data_dir)
    with connect(store) as client:
        client.set("session", "alive")
    store.stop()
    (tmp_path / "bin").mkdir()
    fake_server(tmp_path / "bin", "redis-server", "Redis server v=7.0.15 sha=0")
    with connect(start(data_dir)) as client:
        assert client.get("session") == "alive"


@pytest.mark.parametrize(
    ("server", "data_of", "reads"),
    [
        ("redis 7.0.15", None, True),
        ("redis 7.0.15", "redis 7.0.20", True),
        ("redis 7.0.15", "redis 6.2.14", True),
        ("redis 6.2.14", "redis 7.0.15", False),
        ("valkey 9.1.2", "redis 7.0.15", True),
        ("valkey 9.1.2", "redis 7.4.0", False),
        ("redis 8.0.0", "valkey 7.2.5", False),
        ("valkey 8.0.1", "valkey 9.1.2", False),
    ],
)
def test_a_server_reads_what_none_later_than_itself_wrote(server: str, data_of: str | None, reads: bool) -> None:
    release = parse_release(server)
    assert release is not None
    assert release.reads_data_of(parse_release(data_of) if data_of else None) is reads
