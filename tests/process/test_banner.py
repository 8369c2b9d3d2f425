"""The command that a start prints when the service is ready."""

import pytest

from service.config.settings import load_settings
from service.serving.banner import make_curl_command
from tests.support.servers import CHECKOUT

KEY = "a key of 32 bytes with 16 distinct"
PRODUCTION = {"REDIS_URL": "redis://service:hunter2@redis.internal:6380/1", "TOKEN_SERVICE_SECRET_KEY": KEY}
ADDRESS = "http://127.0.0.1:8000"


def test_the_guide_shows_the_command_of_a_first_start() -> None:
    guide = (CHECKOUT / "docs" / "tutorials" / "first-requests.md").read_text()
    assert f"\n{make_curl_command(load_settings({}), ADDRESS)}\n" in guide.replace(" \\\n  ", " ")


@pytest.mark.parametrize(
    ("address", "command"),
    [
        (ADDRESS, "curl -sS -i http://127.0.0.1:8000/readyz"),
        ("https://127.0.0.1:8000", "curl -sS --insecure -i https://127.0.0.1:8000/readyz"),
    ],
)
def test_another_store_is_only_asked_whether_it_is_ready(address: str, command: str) -> None:
    assert make_curl_command(load_settings(PRODUCTION), address) == command
