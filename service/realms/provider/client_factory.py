"""The clients of all identity providers, which share one HTTP client."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from service.http_client.client import HttpClient
from service.protocol.provider import IdentityProvider
from service.realms.provider.client import ProviderClient


class ProviderClientFactory:
    """Makes the client of an identity provider. The caller closes the factory."""

    def __init__(self, read_clock_ms: Callable[[], Awaitable[int]]) -> None:
        self._http_client = HttpClient()
        self._read_clock_ms = read_clock_ms

    def make(self, provider: IdentityProvider, client_secret: str | None) -> ProviderClient:
        return ProviderClient(provider, client_secret, self._http_client, self._read_clock_ms)

    async def close(self) -> None:
        await self._http_client.close()
