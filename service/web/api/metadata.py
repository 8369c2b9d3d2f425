"""GET /.well-known/oauth-authorization-server, the server metadata for client libraries.

Clauses: RFC 8414 §3.1, §3.2
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.config.settings import Settings
from service.protocol.metadata import make_metadata
from service.protocol.scope import MAIN_REALM
from service.realms.login import Logins
from service.redis_client.deadline import StoreUnavailable

_HEADERS: Final = {"Cache-Control": "public, max-age=300"}
"""A short max-age, so that clients soon find a new address or realm."""


@dataclass
class MetadataEndpoint:
    _logins: Logins
    _settings: Settings
    _languages: Collection[str]
    _realm_names: list[str] = field(default_factory=lambda: [MAIN_REALM], init=False)

    async def get(self, _: Request) -> Response:
        """Return the metadata. If Redis is not available, it lists the realms that were known last."""
        with suppress(StoreUnavailable):
            self._realm_names = await self._logins.list_realm_names()
        metadata = make_metadata(self._settings.base_url, self._settings.web_url, self._realm_names, self._languages)
        return Response(msgspec.json.encode(metadata), headers=_HEADERS, media_type="application/json")
