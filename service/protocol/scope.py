"""Scopes: one closed vocabulary of realms and roles.

Clauses: RFC 6749 §3.3, SPEC §2.2, §5.4
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

import msgspec

from .errors import InvalidScope
from .grammar import SCOPE_TOKEN

MAIN_REALM: Final = "main"
REALMS: Final = (MAIN_REALM, "cep")
ROLES: Final = ("enduser", "organisation", "admin", "partner", "device", "orderer")

_ITEMS: Final = (*(f"realm:{realm}" for realm in REALMS), *(f"role:{role}" for role in ROLES))
_MAX_ITEMS: Final = len(_ITEMS)
"""A scope of more items repeats one, or names an unknown one."""


class Scope(msgspec.Struct, frozen=True):
    """A set of scope items. Its text is canonical: realms first, then roles, each in the vocabulary's order."""

    items: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return " ".join(item for item in _ITEMS if item in self.items)

    @property
    def realms(self) -> tuple[str, ...]:
        return self._named("realm:")

    @property
    def roles(self) -> tuple[str, ...]:
        return self._named("role:")

    def covers(self, other: Scope) -> bool:
        return other.items <= self.items

    def _named(self, prefix: str) -> tuple[str, ...]:
        return tuple(item.removeprefix(prefix) for item in _ITEMS if item in self.items and item.startswith(prefix))


def parse_scope(text: str) -> Scope:
    """Items separated by single spaces, each known and named once.

    Clauses: RFC 6749 §3.3, SPEC §2.2
    """
    items = text.split(" ", _MAX_ITEMS)
    for item in items[:_MAX_ITEMS]:
        if not SCOPE_TOKEN.fullmatch(item):
            raise InvalidScope("scope_malformed")
        if item not in _ITEMS:
            raise InvalidScope("scope_item_unknown")
    if len(set(items)) < len(items) or len(items) > _MAX_ITEMS:
        raise InvalidScope("scope_item_repeated")
    return Scope(frozenset(items))


def parse_realm(granted: str) -> str:
    """The one realm that every granted scope names; raises ValueError for any other text."""
    (realm,) = [item[6:] for item in granted.split(" ") if item.startswith("realm:")]
    return realm


def has_known_items(text: str) -> bool:
    """Whether each item is in the vocabulary; no token can have another."""
    return all(item in _ITEMS for item in text.split(" "))


def check_one_realm_one_role(scope: Scope) -> None:
    """Clauses: SPEC §4.2 (password), §5.4, §8"""
    if len(scope.realms) != 1 or len(scope.roles) != 1:
        raise InvalidScope("scope_not_one_realm_one_role")


def check_narrowing(scope: Scope) -> None:
    """A refresh may ask for less, but a token without any role would be good for nothing.

    Clauses: RFC 6749 §6
    """
    if not scope.roles:
        raise InvalidScope("scope_without_role")


def check_user_has(scope: Scope, roles: Collection[str]) -> None:
    """Every role in the scope is one of the user's own, the reserved ones included.

    Clauses: SPEC §2.2, §4.2
    """
    if not set(scope.roles) <= set(roles):
        raise InvalidScope("scope_beyond_user")
