"""An MCP server that takes the access tokens of the token service, with the Python SDK of the Model Context Protocol.

    ./scripts/build-wheels
    python3 -m venv /tmp/mcp
    /tmp/mcp/bin/pip install build/wheels/opaque_token_service_gateway-*.whl "mcp>=2.3,<3"
    REDIS_URL=unix://$PWD/.data/store.sock /tmp/mcp/bin/uvicorn --app-dir examples mcp_server:app --port 9100

The SDK answers 401 to a request without a valid token, and serves the metadata by which its clients find the service.
docs/how-to/protect-a-python-api.md tells what a client needs.
"""

from __future__ import annotations

import os
from urllib.parse import urlsplit

from mcp.server import MCPServer
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from token_service_gateway import BearerLookup

ISSUER = os.environ.get("TOKEN_SERVICE_BASE_URL", "http://127.0.0.1:8000")
MCP_URL = os.environ.get("MCP_URL", "http://127.0.0.1:9100/mcp")

lookup = BearerLookup(os.environ["REDIS_URL"])


class RedisVerifier:
    async def verify_token(self, token: str) -> AccessToken | None:
        """Return the SDK's form of a valid token. The SDK answers 500 if Redis is unavailable."""
        grant = await lookup.lookup(token)
        if grant is None:
            return None
        return AccessToken(token=token, client_id=grant.client_id, scopes=grant.scope.split(), subject=grant.subject)


def tell_user() -> str:
    """Tell which user calls, and with which scope."""
    token = get_access_token()
    assert token is not None, "the SDK calls a tool with a live token only"
    return f"{token.subject} has the scope {' '.join(token.scopes)}"


# The settings are parsed from texts, since an AnyHttpUrl ends in a slash, which the service's issuer does not.
settings = {
    "issuer_url": ISSUER,
    "resource_server_url": MCP_URL,
    "required_scopes": ["role:enduser"],  # clients request all of these, so name one realm at most
    "validate_token_resource": False,  # tokens name no audience
}
server = MCPServer(
    "Example",
    auth=AuthSettings.model_validate(settings),
    token_verifier=RedisVerifier(),
    lifespan=lambda _: lookup,
    subscriptions=False,
)
server.add_tool(tell_user)
# Without sessions and subscriptions, everything that is sent answers a request with a live token. On this machine the
# SDK checks the Host header, too.
app = server.streamable_http_app(stateless_http=True, json_response=True, host=urlsplit(MCP_URL).hostname or "")
