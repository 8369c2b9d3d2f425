"""The identity provider of an external realm, as stored in the registry.

Clauses: RFC 8414 §3.1, §5, SPEC §2.2
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

import msgspec

from .user import EMAIL_CLAIM, User

_LASTING_CLAIMS: Final = ("sub", "oid")
"""Claims with an identifier that an issuer assigns once.

Clauses: OpenID Connect Core 1.0 §2 (sub)
"""


class IdentityProvider(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The record of an external realm. `sealed_secret` is our client secret at the identity provider, encrypted."""

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
        """A digest of our client_id, the issuer and two endpoints: 32 hexadecimal digits.

        The fingerprint stays the same as long as the realm uses the same server and the same client_id there.
        """
        named = (self.client_id, self.issuer, self.authorization_endpoint, self.token_endpoint)
        return hashlib.sha256("\n".join(named).encode()).hexdigest()[:32]

    @property
    def needs_metadata(self) -> bool:
        """True if the record lacks values that must come from the identity provider's metadata."""
        return not (self.authorization_endpoint and self.token_endpoint and self.names_a_source)

    @property
    def needs_verified_email(self) -> bool:
        """True if a login counts only with an e-mail address that the identity provider reports as verified.

        Clauses: OpenID Connect Core 1.0 §5.1 (email_verified)
        """
        return self.username_claim == EMAIL_CLAIM and not self.trust_email

    def make_unlisted_user(self, realm: str, username: str) -> User:
        """Return a user with the default roles, for a user name that the registry does not list."""
        return User(realm=realm, username=username, roles=self.default_roles)

    @property
    def speaks_openid(self) -> bool:
        return "openid" in self.scope.split(" ")

    def accepts_logouts(self, server: ProviderEndpoints) -> bool:
        """Return True if a logout token of the identity provider can be verified, and its `sub` names the user."""
        return self.names_users_by_sub and server.can_check_id_tokens

    @property
    def names_users_by_sub(self) -> bool:
        return self.username_claim == "sub"

    @property
    def names_a_source(self) -> bool:
        """True if the record has an endpoint or key set that identifies the user who logged in."""
        return bool(self.introspection_endpoint or self.userinfo_endpoint or self.jwks_uri)


class ProviderEndpoints(msgspec.Struct, frozen=True, kw_only=True):
    """The endpoints of an identity provider, and the rest of its metadata that is used here.

    An empty address means that there is no such endpoint. `names_itself` is True if each of its redirects carries
    `iss`.

    Clauses: RFC 8414 §2, RFC 9207 §3
    """

    issuer: str
    authorization_endpoint: str = ""
    token_endpoint: str = ""
    introspection_endpoint: str = ""
    userinfo_endpoint: str = ""
    jwks_uri: str = ""
    secret_methods: tuple[str, ...] = msgspec.field(
        name="token_endpoint_auth_methods_supported", default=("client_secret_basic",)
    )
    names_itself: bool = msgspec.field(name="authorization_response_iss_parameter_supported", default=False)

    @property
    def can_check_id_tokens(self) -> bool:
        """True if ID tokens can be verified, which takes both keys and an issuer.

        An ID token is accepted from one issuer only.
        """
        return bool(self.jwks_uri and self.issuer)

    @property
    def has_other_source(self) -> bool:
        return bool(self.userinfo_endpoint or self.introspection_endpoint)

    @property
    def secret_in_body(self) -> bool:
        """True if the identity provider accepts our secret in a form, but not by HTTP Basic."""
        return "client_secret_basic" not in self.secret_methods and "client_secret_post" in self.secret_methods


def list_identity_risks(username_claim: str, *, trust_email: bool) -> Iterator[str]:
    """Yield, as sentences, how a person at the identity provider could become another person's user.

    A verified e-mail address is safe.
    """
    if username_claim not in (*_LASTING_CLAIMS, EMAIL_CLAIM):
        yield f"username_claim {username_claim} is not permanent, so a name's next owner gets the old account. Use sub"
    if trust_email:
        yield "trust_email: anyone who enters someone else's address at the provider is logged in as that user here"


def list_metadata_addresses(issuer: str, *, openid: bool) -> tuple[str, str]:
    """Return the two possible addresses of the metadata document, the likelier one first.

    Clauses: RFC 8414 §3.1, §5
    """
    parts = urlsplit(issuer)
    plain = issuer.rstrip("/") + "/.well-known/openid-configuration"
    path = parts.path.rstrip("/")
    standard = f"{parts.scheme}://{parts.netloc}/.well-known/oauth-authorization-server{path}"
    return (plain, standard) if openid else (standard, plain)
