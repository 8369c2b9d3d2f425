"""Addresses of servers, by name or by IP address."""

import pytest

from service.config.parsers import parse_base_url
from service.protocol.uri import find_server_mistake, find_uri_mistake


@pytest.mark.parametrize(
    "address", ["http://[::1]/", "http://[::1]:8080/", "http://[fe80::1%eth0]/", "http://[::ffff:127.0.0.1]:80/"]
)
def test_an_ipv6_address_is_a_host(address: str) -> None:
    assert find_uri_mistake(address) is None
    assert parse_base_url(address) == address.rstrip("/")


def test_ipv6_loopback_needs_no_tls() -> None:
    assert find_server_mistake("http://[::1]:8080/") is None
    assert find_server_mistake("http://[2001:db8::1]/") == "expected https (http only on this machine)"
