import shlex

import pytest

from service.config.settings import load_settings
from service.serving.banner import local_address, make_banner

PRODUCTION = {"REDIS_URL": "redis://localhost", "TOKEN_SERVICE_SECRET_KEY": "a key of 32 bytes with 16 distinct"}


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


def test_the_embedded_store_is_greeted_with_a_login_of_the_example() -> None:
    words = shlex.split(make_banner(load_settings({}), "http://127.0.0.1:8000"))
    assert words[:3] == ["curl", "-sS", "http://127.0.0.1:8000/oauth2/v1/token"]
    assert "password=correct horse battery staple" in words


def test_another_store_knows_no_example() -> None:
    line = make_banner(load_settings(PRODUCTION), "http://127.0.0.1:8000")
    assert line == "curl -sS -i http://127.0.0.1:8000/readyz"


def test_under_tls_the_certificate_names_the_public_address() -> None:
    settings = load_settings(PRODUCTION)
    assert "--insecure" in make_banner(settings, local_address(settings, tls=True))
