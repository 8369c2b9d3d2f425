"""The index of a user: which families, codes, consents and browser sessions there are.

Clauses: SPEC §3
"""

from __future__ import annotations

from typing import Final, Literal

from service.protocol.user import UserIdentity
from service.store.client import StoreClient
from service.store.keys import index_key, revoked_key

MEMBERS_AT_ONCE: Final = 500

MemberKind = Literal["family", "browser"]


async def list_members(
    redis: StoreClient, identity: UserIdentity, kind: MemberKind, most: int, *, members_at_once: int = MEMBERS_AT_ONCE
) -> list[str]:
    """Return the digests of one kind, those first that expire last. If there are more than `most`, the list may be cut.

    The list then has more than `most` entries. The index is read in parts of `members_at_once`, because it also holds
    members of other kinds, possibly many. Members that an interrupted revokeAll has set aside come last, since some may
    be younger than its mark. The caller compares each record with the mark.
    """
    prefix = f"{kind}:".encode()
    digests: list[str] = []
    for key in (index_key(identity.shard, identity.subject), revoked_key(identity.shard, identity.subject)):
        start, is_read = 0, len(digests) > most
        while not is_read:
            members = await redis.read("ZREVRANGE", key, start, start + members_at_once - 1)
            digests += [member.removeprefix(prefix).decode() for member in members if member.startswith(prefix)]
            is_read = len(digests) > most or len(members) < members_at_once
            start += members_at_once
    return list(dict.fromkeys(digests))
