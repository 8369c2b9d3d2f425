"""The record of an access token in Redis: its key and its form. The store writes the record, and gateways read it.

Clauses: RFC 6749 §7, SPEC §4.5
"""

from __future__ import annotations

from typing import Final

from ..protocol.bearer import AccessGrant
from ..redis_client.deadline import StoreUnavailable

VERSION: Final = "2"
"""The version of each family record, and of each record that consists of lines."""

SHARDS: Final = tuple(f"{number:03x}" for number in range(4096))
"""All shards. A shard is the first 12 bits of a digest of a user's name, and is written as 3 hex digits."""


def parse_grant(record: bytes) -> AccessGrant:
    """Parse the record of an access token.

    The record's lines: version, issued_ms, expires_ms, family digest, client_id, subject, username, scope. Further
    lines are ignored.

    Raises StoreUnavailable for a record of another version or form, which this code cannot judge.
    """
    if not isinstance(record, bytes):  # the server that answered is not Redis
        raise StoreUnavailable("the record of an access token is not text")
    try:
        version, *lines = record.decode().split("\n")
        if version != VERSION:
            raise StoreUnavailable(
                f"the record of an access token has version {version[:20]!r}; this library reads version {VERSION}"
            )
        issued_ms, expires_ms, family_digest, client_id, subject, username, scope = lines[:7]
        return AccessGrant(int(issued_ms), int(expires_ms), family_digest, client_id, subject, username, scope)
    except ValueError:
        raise StoreUnavailable(f"the record of an access token does not have the format of version {VERSION}") from None


ACCESS_KIND: Final = "access"
"""The kind of the keys below: their first word."""


def access_key(shard: str, digest: str) -> str:
    return f"{ACCESS_KIND}:{{{shard}}}:{digest}"


PROBE_KEYS: Final = tuple(access_key(shard, "probe".ljust(22, "-")) for shard in SHARDS)
"""A key for each shard, in the form of an access token's key.

No digest is spelled like the one in these keys, so none of the keys exists.
"""
