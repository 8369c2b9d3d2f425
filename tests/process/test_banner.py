"""What a start prints when the service is ready."""

from pathlib import Path

import pytest

from service.config.settings import load_settings
from service.serving.banner import local_address, make_block
from tests.support.servers import CHECKOUT

KEY = "a key of 32 bytes with 16 distinct"
PRODUCTION = {"REDIS_URL": "redis://service:hunter2@redis.internal:6380/1", "TOKEN_SERVICE_SECRET_KEY": KEY}
ADDRESS = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://127.0.0.1:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000"),
        ("::", "http://[::1]:8000"),
        ("localhost", "http://localhost:8000"),
    ],
)
def test_the_service_is_reached_where_it_listens(host: str, address: str) -> None:
    assert local_address(load_settings(PRODUCTION | {"HOST": host}), tls=False) == address


def test_the_guide_shows_the_block_of_a_first_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    guide = (CHECKOUT / "docs" / "getting-started.md").read_text()
    assert f"```{make_block(load_settings({}), ADDRESS).rstrip()}\n```\n" in guide


def test_the_block_of_another_store_shows_no_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(CHECKOUT)
    block = make_block(load_settings(PRODUCTION), ADDRESS)
    assert "redis://…@redis.internal:6380/1" in block
    assert "hunter2" not in block
    assert "alice@example.com" not in block


def test_a_path_does_not_control_the_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_settings({"TOKEN_SERVICE_DATA_DIR": str(tmp_path / "a\x1b[2Jb")})
    assert "the embedded store in a\\x1b[2Jb" in make_block(settings, ADDRESS)
