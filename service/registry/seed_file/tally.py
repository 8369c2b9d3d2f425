"""The counts of the changes that a seed makes, and warnings about content that is allowed but looks unsafe or slow."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, Generic

from service.protocol.client import MIN_SECRET_CHARACTERS, Client, is_short_secret
from service.protocol.provider import IdentityProvider, list_identity_risks
from service.protocol.scope import REALMS
from service.protocol.user import User
from service.registry.seed_file.batch import Batch, Item
from service.registry.seed_file.plan import Act, Counts, EntryKind, Outcome, Planned, describe
from service.registry.seed_file.schema import Seed
from service.registry.warnings import list_client_mistakes, list_user_warnings

MAX_PLAIN_PASSWORDS: Final = 100

_MAX_NAMED: Final = 5


@dataclass(slots=True)
class _Sample(Generic[Item]):
    """The first items of possibly very many, and the number of all."""

    first: list[Item] = field(default_factory=list)
    count: int = 0

    @property
    def others(self) -> int:
        return self.count - len(self.first)

    def add(self, item: Item) -> None:
        self.count += 1
        if len(self.first) < _MAX_NAMED:
            self.first.append(item)


class Tally:
    """The counts of the planned changes of a seed, to which each batch is added.

    `is_key_strange` is True if the seed was last applied with a secret key that is none of ours.
    """

    def __init__(self, seed: Seed, *, is_key_strange: bool) -> None:
        self._seed = seed
        self._is_key_strange = is_key_strange
        self._unclear = _Sample[Planned]()
        self._records = defaultdict[str, _Sample[str]](_Sample)
        self._acts = Counter[tuple[EntryKind, Act]]()
        self._plain_passwords = 0

    def add(self, batch: Batch) -> None:
        self._acts.update((each.kind, each.act) for each in batch.planned)
        self._plain_passwords += batch.plain_passwords
        for change in batch.unclear:
            self._unclear.add(change)
        for change in batch.planned:
            for warning in _list_record_warnings(change):
                self._records[warning].add(change.name)

    @property
    def has_unclear(self) -> bool:
        """True if entries were left alone, because it is unknown which of their fields were edited."""
        return self._unclear.count > 0

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
            yield f"{_join(names)}: {warning}"
        if self._plain_passwords > MAX_PLAIN_PASSWORDS:
            yield (
                f"{self._plain_passwords} users had plain passwords, each of which takes a slow hash here; "
                "hash-secret --file makes hashes that a seed file can have instead"
            )


def _list_unclear(unclear: _Sample[Planned]) -> Iterator[str]:
    """Yield a line for each of the first entries that are unclear, and one with the number of the others."""
    for change in map(describe, unclear.first):
        realm = f" of realm {change.realm}" if change.realm else ""
        fields = ", ".join(dict.fromkeys(field.field for field in change.fields))
        yield (
            f"{change.kind} {change.name}{realm} differs from the file in {fields}, and it is unknown whether the file "
            "or the console changed it: it was left as it is. Make both equal in the file or at the console, or let "
            "seed --force apply the file"
        )
    if unclear.others:
        yield f"{unclear.others} more entries differ in the same way; seed --dry-run --force shows them"


def _list_seed_warnings(seed: Seed) -> Iterator[str]:
    """Yield a line for each way to take over user names of a realm, and one line for all short client secrets."""
    for name, realm in seed.realms.items():
        for risk in list_identity_risks(realm.username_claim, trust_email=realm.trust_email):
            yield f"realm {name}: {risk}"
    short = _Sample[str]()
    for client in seed.clients:
        if is_short_secret(client.client_secret):
            short.add(client.client_id)
    if short.count:
        yield f"client secrets of fewer than {MIN_SECRET_CHARACTERS} characters can be guessed: {_join(short)}"


def _list_record_warnings(change: Planned) -> Iterator[str]:
    if change.makes_public:
        yield "it has no secret any more, so anyone may use its client_id"
    if isinstance(change.new, Client):
        yield from list_client_mistakes(change.new)
    if isinstance(change.new, User):
        yield from list_user_warnings(change.new)
    if isinstance(change.new, IdentityProvider) and change.name not in REALMS:
        yield f"no scope can name this realm: those that can be named are {', '.join(REALMS)}"


def _join(names: _Sample[str]) -> str:
    return ", ".join(names.first) + (f" and {names.others} more" if names.others else "")
