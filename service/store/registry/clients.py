"""The records of clients, and the web origins whose pages may call for a client.

Clauses: RFC 6749 §2, SPEC §2.3
"""

from __future__ import annotations

from typing import Final

import msgspec

from service.protocol.client import Client, find_narrowing
from service.protocol.uri import list_origins
from service.store.client import load_script
from service.store.keys import registry_key
from service.store.records import write_json
from service.store.registry.record_kind import RecordKind, Records, make_kind, make_revision

_PUT: Final = load_script("registry/put_client")
_DELETE: Final = load_script("registry/delete_client")

CLIENTS: Final = make_kind("client", Client)


def _parse_enabled(record: bytes | None) -> Client | None:
    client = CLIENTS.parse(record)
    return None if client is None or client.disabled else client


def _list_origins(client: Client) -> str:
    """Return the web origins whose pages may call. A public client may use any port of a loopback redirect URI."""
    origins = list_origins(client.redirect_uris, any_loopback_port=client.is_public)
    return msgspec.json.encode(sorted({*origins, *client.cors_origins})).decode()


ENABLED_CLIENTS: Final = RecordKind[str, Client | None](CLIENTS.kind, CLIENTS.command, _parse_enabled)
"""Clients as requests see them: a disabled client is an unknown one."""

ORIGINS: Final = RecordKind[str, bool]("origin", lambda origin: ("EXISTS", registry_key("origin", origin)), bool)
"""Web origins. The record is True if pages of the origin may call for some client."""


class Clients(Records[str, Client | None]):
    async def put(self, client: Client, old: Client | None = None, *, applied: str | None = None) -> None:
        """Write the client's record and the web origins. `old` is the record until now.

        If the client lost a right, the same script records that its sessions must be scanned for that. It stores
        `applied`, the seed entry that the record comes from.
        """
        narrowing = find_narrowing(old, client) if old else None
        stored = await self._redis.read(*CLIENTS.command(client.client_id))
        await self._redis.run(
            _PUT,
            client_key=registry_key("client", client.client_id),
            scans_key=registry_key("pending_scans"),
            seed_key=registry_key("seed"),
            client_id=client.client_id,
            record=write_json(client, stored),
            mark=f"{narrowing}:{make_revision()}" if narrowing else "",
            old_origins=_list_origins(old) if old else "[]",
            new_origins=_list_origins(client),
            applied=applied or "",
        )

    async def delete(self, client: Client, *, is_forgotten: bool = False) -> None:
        """Delete the client's record and web origins, and record in the same script that all its sessions must end.

        If `is_forgotten`, its seed entry as last applied goes too.
        """
        await self._redis.run(
            _DELETE,
            client_key=registry_key("client", client.client_id),
            scans_key=registry_key("pending_scans"),
            seed_key=registry_key("seed"),
            client_id=client.client_id,
            origins=_list_origins(client),
            mark=f"refresh:{make_revision()}",
            is_forgotten=int(is_forgotten),
        )
