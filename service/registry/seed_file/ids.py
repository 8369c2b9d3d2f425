"""The ids of the users that a seed adds, and the check of those that its file gives.

Clauses: SPEC §2.2, §2.3
"""

from __future__ import annotations

from collections.abc import Sequence, Set

from service.crypto.keyring import Keyring
from service.protocol.scope import MAIN_REALM
from service.protocol.user import User, UserIdentity, identify_user
from service.registry.seed_file.check import Mistakes
from service.registry.seed_file.entries import BadSeed, Seed, UserEntry
from service.registry.seed_file.plan import Candidate, Item, plan_edit
from service.store.registry.record_kind import COMMANDS_AT_ONCE, split_parts
from service.store.registry.store import RegistryStore
from service.store.registry.user_ids import make_user_id


async def check_ids(registry: RegistryStore, keyring: Keyring, seed: Seed, *, force: bool) -> None:
    """Raise BadSeed for each id in the file that another user has, or that would replace the id of its user.

    The id of an entry is not compared if the file had it when it was last applied, nor if the user was deleted since.
    """
    mistakes: Mistakes = {}
    users = [(f"users[{index}].id", user) for index, user in enumerate(seed.users) if user.id]
    for part in split_parts(users, COMMANDS_AT_ONCE):
        items = [Item("user", user.username, user, identify_user(user.realm, user.username)) for _, user in part]
        stored = await registry.seeds.find_many([item.seed_name for item in items])
        olds = await registry.read_records([item.record_name for item in items])
        new = dict[str, tuple[str, UserIdentity]]()
        for (place, user), item, text, (old, trouble) in zip(part, items, stored, olds, strict=True):
            if isinstance(old, User):
                is_compared = "id" in plan_edit(keyring, item, text, force=force).fields or force
                if is_compared and user.id != old.id:
                    mistakes[place] = "differs from the user's id, which cannot be changed"
            elif item.identity is not None and not trouble and (text is None or force):
                new[user.id] = place, item.identity
        taken = await registry.ids.map_taken([(user_id, identity) for user_id, (_, identity) in new.items()])
        mistakes |= {new[user_id][0]: f"already belongs to user {holder}" for user_id, holder in taken.items()}
    if mistakes:
        raise BadSeed(tuple(f"{place}: {mistake}" for place, mistake in mistakes.items()))


async def choose_ids(
    registry: RegistryStore, candidates: Sequence[Candidate], given: Set[str]
) -> dict[str | UserIdentity, str]:
    """Return the ids of the users that the seed adds: as the file gives them, or as they follow from the user names.

    If an id that follows from a name is another user's, or the file gives it to another user, the new user gets a
    random one. `given` are all ids in the file.
    """
    chosen = {
        identity: entry.id
        for (_, _, entry, identity), _, old, *_ in candidates
        if old is None and isinstance(entry, UserEntry) and identity is not None and identity.realm == MAIN_REALM
    }
    taken = await registry.ids.map_taken([(each.digest, each) for each, user_id in chosen.items() if not user_id])
    others = given | taken.keys()
    return {
        each: user_id or (make_user_id() if each.digest in others else each.digest) for each, user_id in chosen.items()
    }
