"""An external realm: the organisation whose server checks its logins, as the registry knows it.

Clauses: RFC 8414 §3.1, §5, SPEC §2.2
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, NamedTuple
from urllib.parse import urlsplit

import msgspec

from .user import EMAIL_CLAIM, User

_LASTING_CLAIMS: Final = ("sub", "oid")
"""Identifiers that an issuer gives once. Clauses: OpenID Connect Core 1.0 §2 (sub)"""


class IdentityProvider(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
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
    trust_email: bool = False
    default_roles: tuple[str, ...] = ()

    @property
    def fingerprint(self) -> str:
        """Stays the same while it is the same server that knows us by the same name: 32 hexadecimal digits."""
        named = (self.client_id, self.issuer, self.authorization_endpoint, self.token_endpoint)
        return hashlib.sha256("\n".join(named).encode()).hexdigest()[:32]

    @property
    def needs_metadata(self) -> bool:
        """Whether the record leaves open what only the organisation's metadata can tell."""
        return not (self.authorization_endpoint and self.token_endpoint and self.names_a_source)

    @property
    def needs_verified_email(self) -> bool:
        """Return whether a login counts only where the organisation says that the e-mail address is verified.

        Clauses: OpenID Connect Core 1.0 §5.1 (email_verified)
        """
        return self.username_claim == EMAIL_CLAIM and not self.trust_email

    def make_unlisted_user(self, realm: str, username: str) -> User:
        """Somebody whom the registry does not list: they have no record, and the default roles."""
        return User(realm=realm, username=username, roles=self.default_roles)

    @property
    def speaks_openid(self) -> bool:
        return "openid" in self.scope.split(" ")

    @property
    def names_a_source(self) -> bool:
        """Whether the record says how to learn who logged in."""
        return bool(self.introspection_endpoint or self.userinfo_endpoint or self.jwks_uri)


class ProviderEndpoints(NamedTuple):
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


def list_identity_risks(username_claim: str, *, trust_email: bool) -> Iterator[str]:
    """Return, as sentences, how a person at the organisation might become the user of another person.

    A verified e-mail address is no such risk.
    """
    if username_claim not in (*_LASTING_CLAIMS, EMAIL_CLAIM):
        yield (
            f"username_claim {username_claim}: if the organisation gives this name to another person, that person "
            "becomes the same user here; use sub"
        )
    if trust_email:
        yield "trust_email: a person who enters another person's address at the organisation becomes that user here"


def list_metadata_addresses(issuer: str, *, openid: bool) -> tuple[str, str]:
    """The two places where the document may lie, the likelier one first.

    Clauses: RFC 8414 §3.1, §5
    """
    parts = urlsplit(issuer)
    plain = issuer.rstrip("/") + "/.well-known/openid-configuration"
    path = parts.path.rstrip("/")
    standard = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}"
    return (plain, standard) if openid else (standard, plain)
