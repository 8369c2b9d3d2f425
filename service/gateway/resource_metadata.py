"""The protected resource metadata of an API, by which clients find the token service.

Clauses: RFC 9728 §2, §3.2, §5.1
"""

from __future__ import annotations

from ..protocol.grammar import is_web_address
from .bearer import parse_required_scope


def parse_address(text: str) -> str:
    """Return an absolute http or https URL. Raises ValueError for any other text, and for a URL with a fragment."""
    if not is_web_address(text) or "#" in text:
        raise ValueError(f"{text!r} is not an absolute http or https URL without user and fragment")
    return text


def make_resource_metadata(
    resource: str, base_url: str, *, scope: str = "", name: str = ""
) -> dict[str, str | list[str]]:
    """Return the JSON object to serve at `/.well-known/oauth-protected-resource`, followed by the path of the API.

    `resource` is the URL of the API, `base_url` the public address of the token service, TOKEN_SERVICE_BASE_URL, and
    `name` the API's name for people. `scope` holds the items that a client must request, separated by spaces. Raises
    ValueError for a malformed URL, or if no token can have the items.

    Clauses: RFC 9728 §2, §3.2 (an empty value is left out)
    """
    document: dict[str, str | list[str]] = {
        "resource": parse_address(resource),
        "resource_name": name,
        "authorization_servers": [parse_address(base_url).rstrip("/")],
        "scopes_supported": parse_required_scope(scope).split(),
        "bearer_methods_supported": ["header"],
    }
    return {member: value for member, value in document.items() if value}
