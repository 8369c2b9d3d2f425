"""GET /.well-known/oauth-authorization-server: what this service can do, for client libraries.

Clauses: RFC 8414 §3.1, §3.2
"""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from service.protocol.metadata import Metadata

_HEADERS: Final = {"Cache-Control": "public, max-age=300"}
"""Short, since a new address or realm should be found soon."""


class MetadataEndpoint:
    def __init__(self, metadata: Metadata) -> None:
        self._body = msgspec.json.encode(metadata)

    async def get(self, _: Request) -> Response:
        return Response(self._body, headers=_HEADERS, media_type="application/json")
