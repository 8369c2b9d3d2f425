"""GET /openapi.json, the description of the API for programs: docs/openapi.yaml with the address of this service."""

from __future__ import annotations

from functools import cached_property
from typing import Final

import msgspec
import yaml
from starlette.requests import Request
from starlette.responses import Response

from service.system.program_files import PROGRAM_FILES

_HEADERS: Final = {"Cache-Control": "public, max-age=300"}


class OpenApiEndpoint:
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
