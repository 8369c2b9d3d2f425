"""Warnings about records that are allowed, but cannot work or look unsafe.

Seeds, the console and `doctor` share them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from service.protocol.client import AUTHORIZATION_CODE, PASSWORD, Client
from service.protocol.scope import MAIN_REALM
from service.protocol.uri import is_unprotected
from service.protocol.user import User

FOREIGN_KEY: Final = (
    "none of the configured secret keys belongs to this Redis, so instances with them are not ready. "
    "If REDIS_URL and the keys are correct, run `token-service-admin key adopt`"
)


def list_client_warnings(client: Client) -> Iterator[str]:
    """Yield sentences about a client that cannot work, or whose codes could be stolen."""
    yield from list_client_mistakes(client)
    if client.is_public and AUTHORIZATION_CODE in client.grant_types and not client.require_pkce:
        yield "public and without require_pkce: a stolen code could be exchanged"


def list_client_mistakes(client: Client) -> Iterator[str]:
    """Yield sentences about a client that cannot work, or whose codes are sent unencrypted."""
    if not (client.grant_types or client.introspect or client.revoke_users or client.manage_users):
        yield "it can do nothing: it has no grant type, and none of introspect, revoke_users or manage_users"
    if client.manage_users and not client.scope:
        yield "it has no scope, so it can manage only users without roles, who cannot log in"
    if {AUTHORIZATION_CODE, PASSWORD} & set(client.grant_types) and not client.scope:
        yield "it has no scope, so all of its requests are rejected"
    for redirect_uri in client.redirect_uris:
        if "*" in redirect_uri:
            yield f"the * in {redirect_uri} matches only a *: register each redirect URI separately"
        if is_unprotected(redirect_uri):
            yield f"codes are sent unencrypted to {redirect_uri}"


def list_user_warnings(user: User) -> Iterator[str]:
    """Yield sentences about a user who cannot log in, or whose name in realm main is not an e-mail address."""
    if not user.roles:
        yield "the user has no role, so they cannot log in"
    if user.realm == MAIN_REALM and "@" not in user.username:
        yield "user names of realm main should be email addresses"
