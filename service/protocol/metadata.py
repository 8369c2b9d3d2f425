"""The authorization server metadata, which client libraries read.

Clauses: RFC 8414 §2, §3, §3.2, RFC 9207 §3
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from .client import GRANT_TYPES
from .scope import REALMS, ROLES

WELL_KNOWN_PATH: Final = "/.well-known/oauth-authorization-server"

_SECRET_METHODS: Final = ("client_secret_basic", "client_secret_post")
_AUTHENTICATION_METHODS: Final = (*_SECRET_METHODS, "none")


class Metadata(msgspec.Struct, frozen=True, kw_only=True):
    """The metadata document. No list in it is empty; an empty list would have to be left out."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    revocation_endpoint: str
    introspection_endpoint: str
    userinfo_endpoint: str
    global_token_revocation_endpoint: str
    scopes_supported: tuple[str, ...]
    ui_locales_supported: tuple[str, ...]
    response_types_supported: tuple[str, ...] = ("code",)
    response_modes_supported: tuple[str, ...] = ("query",)
    grant_types_supported: tuple[str, ...] = GRANT_TYPES
    token_endpoint_auth_methods_supported: tuple[str, ...] = _AUTHENTICATION_METHODS
    revocation_endpoint_auth_methods_supported: tuple[str, ...] = _AUTHENTICATION_METHODS
    introspection_endpoint_auth_methods_supported: tuple[str, ...] = _SECRET_METHODS
    global_token_revocation_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    code_challenge_methods_supported: tuple[str, ...] = ("S256",)
    authorization_response_iss_parameter_supported: bool = True


def make_metadata(base_url: str, web_url: str, realm_names: Collection[str], languages: Collection[str]) -> Metadata:
    """Return the metadata document.

    `realm_names` are the realms that have a login, `languages` the tags of the pages' languages. Neither URL ends in a
    slash.

    Clauses: RFC 8414 §2, §3.3 (the issuer is the address that the document is found by)
    """
    realms = (f"realm:{realm}" for realm in REALMS if realm in realm_names)
    roles = (f"role:{role}" for role in ROLES)
    return Metadata(
        issuer=base_url,
        authorization_endpoint=f"{web_url}/authorization/",
        token_endpoint=f"{base_url}/oauth2/v1/token",
        revocation_endpoint=f"{base_url}/oauth2/v1/revoke",
        introspection_endpoint=f"{base_url}/oauth2/v1/introspect",
        userinfo_endpoint=f"{base_url}/oauth2/v1/userinfo",
        global_token_revocation_endpoint=f"{base_url}/oauth2/v1/global-token-revocation",
        scopes_supported=(*realms, *roles),
        ui_locales_supported=tuple(languages),
    )


def metadata_paths(base_path: str) -> frozenset[str]:
    """Return the paths of the metadata document.

    RFC 8414 puts the well-known path before the path of the base URL. The document is also served after that path. The
    bare well-known path is for a proxy that strips the path of the base URL.

    Clauses: RFC 8414 §3, §3.1
    """
    return frozenset({WELL_KNOWN_PATH, WELL_KNOWN_PATH + base_path, base_path + WELL_KNOWN_PATH})
