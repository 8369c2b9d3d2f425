"""/, a page that describes this service, and the stylesheet and the logo of all pages."""

from __future__ import annotations

from mimetypes import guess_type
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from service.config.settings import Settings
from service.web.pages.languages import TEMPLATES
from service.web.pages.page import Pages

_ASSET_HEADERS: Final = {
    "X-Content-Type-Options": "nosniff",
    # An SVG that is opened directly is a document, so it must be forbidden to load or run anything.
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; sandbox",
}


class StartEndpoint:
    def __init__(self, pages: Pages, settings: Settings) -> None:
        self._pages = pages
        self._settings = settings
        self._asset_headers = _ASSET_HEADERS | pages.transport_headers
        logo = settings.page_logo or TEMPLATES / "logo.svg"
        self._logo = logo.read_bytes()
        self._logo_type = guess_type(logo.name.lower(), strict=False)[0]

    async def get(self, request: Request) -> Response:
        return self._pages.render(
            request,
            "start.html",
            metadata_url=f"{self._settings.base_url}/.well-known/oauth-authorization-server",
            openapi_url=f"{self._settings.base_url}/openapi.json",
            sessions_url=f"{self._settings.web_url}/sessions/",
            authorization_url=f"{self._settings.web_url}/authorization/",
            token_url=f"{self._settings.base_url}/oauth2/v1/token",
        )

    async def redirect_to_password(self, _: Request) -> Response:
        """Redirect to the form for a new password. Password managers request this well-known address."""
        return self._pages.redirect_elsewhere(f"{self._pages.web_path}/sessions/", 302)

    async def stylesheet(self, _: Request) -> Response:
        """Return the stylesheet. Its address changes with its content, so it may be cached forever."""
        headers = self._asset_headers | {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(self._pages.renderer.stylesheet, 200, headers, "text/css")

    async def script(self, _: Request) -> Response:
        """Return the script of /sessions/, which may be cached like the stylesheet."""
        headers = self._asset_headers | {"Cache-Control": "public, max-age=31536000, immutable"}
        return Response(self._pages.renderer.script, 200, headers, "text/javascript")

    async def logo(self, _: Request) -> Response:
        headers = self._asset_headers | {"Cache-Control": "public, max-age=3600"}
        return Response(self._logo, 200, headers, self._logo_type)
