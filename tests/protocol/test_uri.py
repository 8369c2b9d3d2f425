"""Addresses of servers: each supported Python reads the same host, however old its `urlsplit` is."""

from __future__ import annotations

import pytest

from service.config.parsers import parse_base_url
from service.protocol.uri import find_server_mistake, find_uri_mistake

BRACKETS = (
    "http://[::1].example.com/",
    "http://[::1]example.com:80/",
    "http://example.com[::1]/",
    "http://[[::1]]/",
    "http://[127.0.0.1]/",
    "http://[v1.host]/",
    "http://[localhost]/",
)
"""A host in brackets that is no IPv6 address, or brackets that are a part of the host only."""


@pytest.mark.parametrize("address", BRACKETS)
def test_brackets_enclose_an_ipv6_address_only(address: str) -> None:
    """Python before 3.11.12, 3.12.9 and 3.13.2 takes ::1 for the host of the first three (CVE-2025-0938)."""
    assert find_uri_mistake(address) == "expected a URI with a valid host and port"
    with pytest.raises(ValueError, match="an absolute http or https URL"):
        parse_base_url(address)


@pytest.mark.parametrize(
    "address", ["http://[::1]/", "http://[::1]:8080/", "http://[fe80::1%eth0]/", "http://[::ffff:127.0.0.1]:80/"]
)
def test_an_ipv6_address_is_a_host(address: str) -> None:
    assert find_uri_mistake(address) is None
    assert parse_base_url(address) == address.rstrip("/")


def test_the_own_machine_needs_no_tls_by_its_ipv6_address() -> None:
    assert find_server_mistake("http://[::1]:8080/") is None
    assert find_server_mistake("http://[2001:db8::1]/") == "expected https (http only on this machine)"
