"""The counts of the changes that a seed makes, and warnings about content that is allowed but looks unsafe or slow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Final

from service.protocol.client import MIN_SECRET_CHARACTERS, Client, is_short_secret
from service.protocol.provider import IdentityProvider, list_identity_risks
from service.protocol.scope import REALMS
from service.protocol.user import User
from service.registry.seed_file.batch import Batch
from service.registry.seed_file.plan import Act, Counts, EntryKind, Outcome, Planned, describe
from service.registry.seed_file.schema import Seed
from service.registry.warnings import list_client_mistakes, list_user_warnings

MAX_PLAIN_PASSWORDS: Final = 100

_MAX_NAMED: Final = 5


class Tally:
    """The counts of the planned changes of a seed, to which each batch is added.

    `is_key_strange` is True if the seed was last applied with a secret key that is none of ours.
    """

    def __init__(self, seed: Seed, *, is_key_strange: bool) -> None:
        self._seed = seed
        self._is_key_strange = is_key_strange
        self._unclear = list[Planned]()
        self._records = defaultdict[str, list[str]](list)
        self._acts = Counter[tuple[EntryKind, Act]]()
        self._plain_passwords = 0

    def add(self, batch: Batch) -> None:
        self._acts.update((each.kind, each.act) for each in batch.planned)
        self._plain_passwords += batch.plain_passwords
        self._unclear += batch.unclear
        for change in batch.planned:
            for warning in _list_record_warnings(change):
                self._records[warning].append(change.name)

    @property
    def has_unclear(self) -> bool:
        """True if entries were left alone, because it is unknown which of their fields were edited."""
        return bool(self._unclear)

    @property
    def outcome(self) -> Outcome:
        """The outcome after the last batch: an entry of the seed without a planned change counts as unchanged."""
        return Outcome(
            realms=self._count("realm", len(self._seed.realms)),
            clients=self._count("client", len(self._seed.clients)),
            users=self._count("user", len(self._seed.user_texts)),
            warnings=tuple(self._list_warnings()),
        )

    def _count(self, kind: EntryKind, entries: int) -> Counts:
        added, updated, restored, removed = (self._acts[kind, act] for act in ("add", "update", "restore", "remove"))
        unchanged = entries - added - updated - restored
        return Counts(added=added, updated=updated, restored=restored, removed=removed, unchanged=unchanged)

    def _list_warnings(self) -> Iterator[str]:
        yield from _list_seed_warnings(self._seed)
        if self._is_key_strange:
            yield (
                "the seed was last applied with a secret key that is none of ours, so it is unknown what was edited "
                "since: clients and users that differ from the file are left as they are; seed --force applies all"
            )
        yield from _list_unclear(self._unclear)
        for warning, names in self._records.items():
            yield f"{_name_some(names)}: {warning}"
        if self._plain_passwords > MAX_PLAIN_PASSWORDS:
            yield (
                f"{self._plain_passwords} users had plain passwords, each of which takes a slow hash here; "
                "hash-secret --file makes hashes that a seed file can have instead"
            )


def _list_unclear(unclear: Sequence[Planned]) -> Iterator[str]:
    """Yield a line for each entry that was edited before this version stored a digest of each field, up to a bound."""
    for change in map(describe, unclear[:_MAX_NAMED]):
        realm = f" of realm {change.realm}" if change.realm else ""
        fields = ", ".join(dict.fromkeys(field.field for field in change.fields))
        yield (
            f"{change.kind} {change.name}{realm} differs from the file in {fields}, and it is unknown whether the file "
            "or the console changed it: it was left as it is. Make both equal in the file or at the console, or let "
            "seed --force apply the file"
        )
    if len(unclear) > _MAX_NAMED:
        yield f"{len(unclear) - _MAX_NAMED} more entries differ in the same way; seed --dry-run --force shows them"


def _list_seed_warnings(seed: Seed) -> Iterator[str]:
    """Yield a line for each way to take over user names of a realm, and one line for all short client secrets."""
    for name, realm in seed.realms.items():
        for risk in list_identity_risks(realm.username_claim, trust_email=realm.trust_email):
            yield f"realm {name}: {risk}"
    short = [client.client_id for client in seed.clients if is_short_secret(client.client_secret)]
    if short:
        yield f"client secrets of fewer than {MIN_SECRET_CHARACTERS} characters can be guessed: {_name_some(short)}"


def _list_record_warnings(change: Planned) -> Iterator[str]:
    if change.makes_public:
        yield "it has no secret any more, so anyone may use its client_id"
    if isinstance(change.new, Client):
        yield from list_client_mistakes(change.new)
    if isinstance(change.new, User):
        yield from list_user_warnings(change.new)
    if isinstance(change.new, IdentityProvider) and change.name not in REALMS:
        yield f"no scope can name this realm: those that can be named are {', '.join(REALMS)}"


def _name_some(names: Sequence[str]) -> str:
    others = f" and {len(names) - _MAX_NAMED} more" if len(names) > _MAX_NAMED else ""
    return ", ".join(names[:_MAX_NAMED]) + others
