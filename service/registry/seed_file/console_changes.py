"""Notes in the digests of a seed that the console, or a user, changed a record.

Without them, the seed that finishes an interrupted one would write its fields over the change.
"""

from __future__ import annotations

from service.protocol.client import Client
from service.protocol.user import User, UserIdentity
from service.registry.seed_file.field_digests import settle_fields
from service.registry.seed_file.plan import list_changed_letters
from service.store.registry import RegistryStore


async def note_client_change(registry: RegistryStore, client_id: str, old: Client | None, new: Client | None) -> None:
    """Note a change that was written under the registry's lock. None stands for no record."""
    name = f"client:{client_id}"
    stored = await registry.find_seed(name)
    if stored is not None:
        settled = settle_fields(stored, list_changed_letters(old, new))
        if settled != stored:
            await registry.put_seed(name, settled)


async def note_user_change(registry: RegistryStore, identity: UserIdentity, old: User | None, new: User | None) -> None:
    """Note a change that was written under the registry's lock. None stands for no record."""
    (stored,) = await registry.find_user_seeds([identity])
    if stored is not None:
        settled = settle_fields(stored, list_changed_letters(old, new))
        if settled != stored:
            await registry.put_user_seeds([(identity, settled)])
