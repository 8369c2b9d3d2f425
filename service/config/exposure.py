"""The search for a setting by which other machines can reach the service."""

from __future__ import annotations

from urllib.parse import urlsplit

from service.config.parsers import Network
from service.protocol.uri import is_loopback


def find_public_setting(host: str, base_url: str, web_url: str, proxies: tuple[Network, ...]) -> str | None:
    """Return the first setting by which other machines may reach the service, with its value, or None."""
    if not is_loopback(host):
        return f"HOST {host!r}"
    for variable, url in (("TOKEN_SERVICE_BASE_URL", base_url), ("TOKEN_SERVICE_WEB_URL", web_url)):
        if not is_loopback(urlsplit(url).hostname or ""):
            return f"{variable} {url!r}"
    for network in proxies:
        if not network.is_loopback:
            return f"TOKEN_SERVICE_TRUSTED_PROXIES {str(network)!r}"
    return None
