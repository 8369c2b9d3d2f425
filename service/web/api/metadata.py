"""The descriptions of the service for programs: the server metadata, and the OpenAPI document.

Clauses: RFC 8414 §3.1, §3.2
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import msgspec
import yaml
from starlette.requests import Request
from starlette.responses import Response

from service.config.settings import Settings
from service.protocol.metadata import make_metadata
from service.protocol.scope import MAIN_REALM
from service.realms.login import Logins
from service.redis_client.deadline import StoreUnavailable
from service.system.program_files import PROGRAM_FILES

_HEADERS: Final = {"Cache-Control": "public, max-age=300"}
"""A short max-age, so that clients soon find a new address or realm."""


@dataclass
class MetadataEndpoint:
    """GET /.well-known/oauth-authorization-server, for client libraries."""

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


class OpenApiEndpoint:
    """GET /openapi.json: docs/openapi.yaml with the URL of this service."""

    def __init__(self, base_url: str) -> None:
        self._base_url = base_url

    async def get(self, _: Request) -> Response:
        return Response(self._document, headers=_HEADERS, media_type="application/json")

    @cached_property
    def _document(self) -> bytes:
        """The document, which is made at the first request, because few workers are asked for it."""
        document = yaml.load((PROGRAM_FILES / "docs" / "openapi.yaml").read_bytes(), yaml.CSafeLoader)
        document["servers"] = [{"url": self._base_url}]
        return msgspec.json.encode(document)
