"""The records of external realms.

Clauses: SPEC §2.2
"""

from __future__ import annotations

from typing import Final

from service.protocol.provider import IdentityProvider
from service.store.client import load_script
from service.store.keys import registry_key
from service.store.records import write_json
from service.store.registry.record_kind import Records, make_kind, make_revision

_PUT: Final = load_script("registry/put_realm")

REALMS: Final = make_kind("realm", IdentityProvider)


class Realms(Records[str, IdentityProvider | None]):
    async def put(
        self, realm: str, provider: IdentityProvider | None, *, applied: str = "", ends_sessions: bool = False
    ) -> None:
        """Write or delete the realm's record, and store or delete the seed entry that it comes from.

        If `ends_sessions`, the same script records that the sessions of the realm's users must be scanned.
        """
        stored = await self._redis.read(*REALMS.command(realm))
        await self._redis.run(
            _PUT,
            realm_key=registry_key("realm", realm),
            scans_key=registry_key("pending_realm_scans"),
            seed_key=registry_key("seed"),
            realm=realm,
            record="" if provider is None else write_json(provider, stored),
            mark=make_revision() if ends_sessions else "",
            applied=applied,
        )
