"""An external realm: the organisation whose server checks its logins, as the registry knows it.

Clauses: RFC 8414 §3.1, §5, SPEC §2.2
"""

from __future__ import annotations

import hashlib
from base64 import urlsafe_b64encode
from typing import NamedTuple
from urllib.parse import urlsplit

import msgspec

from service.protocol.user import User


class Organisation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of an external realm; `sealed_secret` is the client secret that we have there, encrypted."""

    client_id: str
    sealed_secret: str = ""
    name: str = ""
    issuer: str = ""
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    introspection_endpoint: str = ""
    userinfo_endpoint: str = ""
    jwks_uri: str = ""
    scope: str = ""
    username_claim: str = "sub"
    default_roles: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Stays the same while it is the same server that knows us by the same name: 22 characters of base64url."""
        named = (self.client_id, self.issuer, self.authorization_endpoint, self.token_endpoint)
        return urlsafe_b64encode(hashlib.sha256("\n".join(named).encode()).digest()[:16]).decode().rstrip("=")

    @property
    def needs_metadata(self) -> bool:
        """Whether the record leaves open what only the organisation's metadata can tell."""
        return not (self.authorization_endpoint and self.token_endpoint and self.names_a_source)

    def find_roles(self, user: User | None) -> tuple[str, ...]:
        """Those of a user; whom the registry does not list has the realm's."""
        return self.default_roles if user is None else user.roles

    @property
    def speaks_openid(self) -> bool:
        return "openid" in self.scope.split(" ")

    @property
    def names_a_source(self) -> bool:
        """Whether the record says how to learn who logged in."""
        return bool(self.introspection_endpoint or self.userinfo_endpoint or self.jwks_uri)


class Server(NamedTuple):
    """Where an organisation answers; an empty address means that it does not.

    `names_itself`: each of its redirects carries `iss`. `secret_in_body`: it does not take HTTP Basic.
    """

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    introspection_endpoint: str
    userinfo_endpoint: str
    jwks_uri: str
    names_itself: bool = False
    secret_in_body: bool = False

    @property
    def can_check_id_tokens(self) -> bool:
        """Keys alone do not do: an ID token is to be believed from one issuer only."""
        return bool(self.jwks_uri and self.issuer)

    @property
    def has_other_source(self) -> bool:
        return bool(self.userinfo_endpoint or self.introspection_endpoint)


def find_metadata_addresses(issuer: str, *, openid: bool) -> tuple[str, str]:
    """The two places where the document may lie, the likelier one first.

    Clauses: RFC 8414 §3.1, §5
    """
    parts = urlsplit(issuer)
    plain = issuer.rstrip("/") + "/.well-known/openid-configuration"
    path = parts.path.rstrip("/")
    standard = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}"
    return (plain, standard) if openid else (standard, plain)
