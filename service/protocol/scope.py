"""Scopes: one closed vocabulary of realms and roles.

Clauses: RFC 6749 §3.3, SPEC §2.2, §5.4
"""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from typing import Final

import msgspec

from .errors import InvalidScope
from .grammar import SCOPE_TOKEN

MAIN_REALM: Final = "main"
REALMS: Final = (MAIN_REALM, "cep")
ROLES: Final = ("enduser", "organisation", "admin", "partner", "device", "orderer")

SCOPE_ITEMS: Final = (*(f"realm:{realm}" for realm in REALMS), *(f"role:{role}" for role in ROLES))
"""All items that a scope can have, in the order of the canonical text."""

MAX_GRANTED_SCOPES: Final = len(REALMS) << len(ROLES)
"""The number of scopes that can be granted: one realm and any roles."""

_MAX_ITEMS: Final = len(SCOPE_ITEMS)
"""A scope with more items repeats one or has an unknown one."""

_MAX_NAMED_CHARACTERS: Final = 64
"""The limit of an unknown item in the description of an error."""


class Scope(msgspec.Struct, frozen=True):
    """A set of scope items. Its text is canonical: realms first, then roles, each in the order of the vocabulary."""

    items: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return " ".join(item for item in SCOPE_ITEMS if item in self.items)

    @property
    def realms(self) -> tuple[str, ...]:
        return self._named("realm:")

    @property
    def roles(self) -> tuple[str, ...]:
        return self._named("role:")

    def covers(self, other: Scope) -> bool:
        return other.items <= self.items

    def _named(self, prefix: str) -> tuple[str, ...]:
        return tuple(
            item.removeprefix(prefix) for item in SCOPE_ITEMS if item in self.items and item.startswith(prefix)
        )


def parse_scope(text: str) -> Scope:
    """Parse items that are separated by single spaces.

    Raises InvalidScope if an item is malformed, unknown or repeated. It names the item, whose characters RFC 6749 §5.2
    allows in a description.

    Clauses: RFC 6749 §3.3, §5.2, SPEC §2.2
    """
    found = set[str]()
    for item in text.split(" ", _MAX_ITEMS + 1)[: _MAX_ITEMS + 1]:
        if not SCOPE_TOKEN.fullmatch(item):
            raise InvalidScope("scope_malformed")
        if item not in SCOPE_ITEMS:
            raise InvalidScope("scope_item_unknown", name=item[:_MAX_NAMED_CHARACTERS])
        if item in found:
            raise InvalidScope("scope_item_repeated", name=item)
        found.add(item)
    return Scope(frozenset(found))


@lru_cache(MAX_GRANTED_SCOPES)
def parse_realm(granted: str) -> str:
    """Return the realm of a granted scope, which always has exactly one. Raises ValueError for any other text."""
    (realm,) = [item[6:] for item in granted.split(" ") if item.startswith("realm:")]
    return realm


def check_one_realm_one_role(scope: Scope) -> None:
    """Raise InvalidScope unless the scope has exactly one realm and exactly one role.

    Clauses: SPEC §4.2 (password), §5.4, §8
    """
    if len(scope.realms) != 1 or len(scope.roles) != 1:
        raise InvalidScope("scope_not_one_realm_one_role")


def check_narrowing(scope: Scope) -> None:
    """Raise InvalidScope if a scope requested at a refresh has no role.

    A refresh may request less than was granted, but a token without a role would be useless.

    Clauses: RFC 6749 §6
    """
    if not scope.roles:
        raise InvalidScope("scope_without_role")


def check_user_has(scope: Scope, roles: Collection[str]) -> None:
    """Raise InvalidScope unless the user has every role in the scope, including the reserved roles.

    Clauses: SPEC §2.2, §4.2
    """
    excess = set(scope.roles) - set(roles)
    if excess:
        raise InvalidScope("scope_beyond_user", name=str(Scope(frozenset(f"role:{role}" for role in excess))))
