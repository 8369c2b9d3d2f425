"""A registered client, and the grant types and scopes that it may use.

Clauses: RFC 6749 §2, §2.1, §5.2 (unauthorized_client), SPEC §2.3
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

import msgspec

from .errors import InvalidScope, UnauthorizedClient
from .scope import Scope, parse_scope

AUTHORIZATION_CODE: Final = "authorization_code"
PASSWORD: Final = "password"
REFRESH_TOKEN: Final = "refresh_token"
GRANT_TYPES: Final = (AUTHORIZATION_CODE, PASSWORD, REFRESH_TOKEN)
MAX_CLIENT_ID_CHARACTERS: Final = 255
MIN_SECRET_CHARACTERS: Final = 20
"""A shorter secret is accepted with a warning."""

Seconds = int | float
"""A duration, exact to the millisecond."""

Narrowing = Literal["refresh", "grant_or_scope"]
"""The kind of right that a client lost, so that its sessions must be checked again."""


class Client(msgspec.Struct, frozen=True, kw_only=True):
    """The registration record. Fields that RFC 7591 defines have its names. A client without a secret hash is public.

    A disabled client is refused as an unknown one.

    After a rotation, the previous secret stays valid until `previous_secret_until_ms`, in milliseconds since 1970 by
    the clock of Redis. `has_short_secret` is recorded when the secret is hashed, because a hash hides the length.

    A lifetime that is None is that of the settings.
    """

    client_id: str
    client_secret_hash: str | None = None
    client_name: str = ""
    redirect_uris: tuple[str, ...] = ()
    grant_types: tuple[str, ...] = ()
    scope: str = ""
    default_scope: str = ""
    cors_origins: tuple[str, ...] = ()
    require_pkce: bool = False
    introspect: bool | Literal["all"] = False
    revoke_users: bool = False
    manage_users: bool = False
    access_token_ttl: Seconds | None = None
    refresh_token_ttl: Seconds | None = None
    session_max_age: Seconds | None = None
    refresh_grace: Seconds | None = None
    disabled: bool = False
    has_short_secret: bool = False
    previous_secret_hash: str | None = None
    previous_secret_until_ms: int = 0

    @property
    def is_public(self) -> bool:
        return self.client_secret_hash is None

    def accepted_secret_hashes(self, now_ms: int) -> tuple[str, ...]:
        """Return the hashes of the secrets that are valid at `now_ms`, the newest first.

        `now_ms` is in milliseconds since 1970 by the clock of Redis. A public client has no secrets.

        Clauses: RFC 6819 §5.2.3.6 (client secrets can be replaced)
        """
        if self.client_secret_hash is None:
            return ()
        if self.previous_secret_hash is None or now_ms >= self.previous_secret_until_ms:
            return (self.client_secret_hash,)
        return (self.client_secret_hash, self.previous_secret_hash)

    @property
    def allowed_scope(self) -> Scope:
        return parse_scope(self.scope) if self.scope else Scope()


class Lifetimes(msgspec.Struct, frozen=True, kw_only=True):
    """The lifetimes of tokens, codes and sessions, in milliseconds.

    If `session_max_age_ms` is None, a session expires only when it is idle. A user who has `sessions_per_user` sessions
    loses the one that would expire first, to within a day at the next login.
    """

    access_token_ms: int
    refresh_token_ms: int
    session_max_age_ms: int | None
    code_ms: int
    refresh_grace_ms: int
    sessions_per_user: int

    def of(self, client: Client) -> Lifetimes:
        """Return the lifetimes for this client: its own, and these where it has none."""
        own = (client.access_token_ttl, client.refresh_token_ttl, client.session_max_age, client.refresh_grace)
        if own == (None, None, None, None):  # the usual case of a refresh; the lines below take six times as long
            return self
        names = ("access_token_ms", "refresh_token_ms", "session_max_age_ms", "refresh_grace_ms")
        given = {name: round(1000 * seconds) for name, seconds in zip(names, own, strict=True) if seconds is not None}
        return msgspec.structs.replace(self, **given)


def is_short_secret(secret: str | None) -> bool:
    """Return True if a secret is given that has fewer than MIN_SECRET_CHARACTERS characters and could be guessed.

    Clauses: RFC 6749 §10.10
    """
    return secret is not None and len(secret) < MIN_SECRET_CHARACTERS


def check_grant_type(client: Client, grant_type: str) -> None:
    """Raise UnauthorizedClient unless the client is registered for the grant type.

    Clauses: RFC 6749 §5.2 (unauthorized_client)
    """
    if grant_type not in client.grant_types:
        raise UnauthorizedClient("grant_type_not_registered")


def check_scope(client: Client, scope: Scope) -> None:
    """Raise InvalidScope unless the client may request every item of the scope.

    Clauses: RFC 6749 §3.3, §5.2 (invalid_scope)
    """
    excess = scope.items - client.allowed_scope.items
    if excess:
        raise InvalidScope("scope_beyond_client", name=str(Scope(excess)))


def check_introspection(client: Client) -> None:
    """Raise UnauthorizedClient unless the client may introspect and has a secret.

    A secret is required because introspection reveals data about users.

    Clauses: RFC 7662 §2.1, §4
    """
    if client.is_public or not client.introspect:
        raise UnauthorizedClient("introspection_not_registered", status=403)


def check_user_revocation(client: Client) -> None:
    """Raise UnauthorizedClient unless the client may revoke everything of a user and has a secret."""
    if client.is_public or not client.revoke_users:
        raise UnauthorizedClient("user_revocation_not_registered", status=403)


def check_user_management(client: Client) -> None:
    """Raise UnauthorizedClient unless the client may create, change and delete users and has a secret."""
    if client.is_public or not client.manage_users:
        raise UnauthorizedClient("user_management_not_registered", status=403)


def check_managed_roles(client: Client, roles: Iterable[str]) -> None:
    """Raise UnauthorizedClient unless the client's own scope has each of these roles, which a user has or would get."""
    if not set(roles) <= set(client.allowed_scope.roles):
        raise UnauthorizedClient("role_beyond_client", status=403)


def find_narrowing(old: Client, new: Client) -> Narrowing | None:
    """Return the kind of right that the old registration has and the new one lacks, or None.

    "refresh" has priority over "grant_or_scope": its loss ends every session of the client. A client that was disabled
    lost it too.
    """
    is_refresh_lost = REFRESH_TOKEN in old.grant_types and REFRESH_TOKEN not in new.grant_types
    if is_refresh_lost or (new.disabled and not old.disabled):
        return "refresh"
    grants_stay = set(old.grant_types) <= set(new.grant_types)
    return None if grants_stay and new.allowed_scope.covers(old.allowed_scope) else "grant_or_scope"


def may_keep_session(client: Client | None, loss: Narrowing, grant_type: str, scope: Scope) -> bool:
    """Return True if a session of this grant type and scope may continue after its client lost a right.

    `client` is None if the client was deleted.
    """
    if client is None or client.disabled or loss == "refresh":
        return False
    return grant_type in client.grant_types and client.allowed_scope.covers(scope)
