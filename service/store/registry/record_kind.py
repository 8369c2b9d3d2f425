"""The kinds of records in the registry: for each its keys, the command that reads one, and the parser of the answer."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec

from service.store.client import StoreClient
from service.store.keys import registry_key
from service.store.records import read_json

COMMANDS_AT_ONCE: Final = 100
"""The most commands in one call. Each call has a deadline, and the console may have a tenth of a core."""

Name = TypeVar("Name")
Record = TypeVar("Record")
Item = TypeVar("Item")
KeyCommand = tuple[str, str, *tuple[str, ...]]
"""A command that reads one key, which is its second word."""


class RecordKind(NamedTuple, Generic[Name, Record]):
    """A kind of record: the kind of its keys, the command that reads the record of a name, and the response's parser.

    If there is no record, `parse` returns None or False.
    """

    kind: str
    command: Callable[[Name], KeyCommand]
    parse: Callable[[Any], Record]

    async def find(self, redis: StoreClient, name: Name) -> Record:
        return self.parse(await redis.read(*self.command(name)))


def make_kind(kind: str, form: type[Record]) -> RecordKind[str, Record | None]:
    """Return the kind of records that are JSON of this form, each under the key of its name."""
    decode = msgspec.json.Decoder(form).decode
    return RecordKind(
        kind,
        lambda name: ("GET", registry_key(kind, name)),
        lambda record: None if record is None else read_json(decode, record, f"a {kind}"),
    )


async def list_records(redis: StoreClient, kind: RecordKind[str, Record | None]) -> dict[str, Record]:
    """Return all records of a kind by name, in the order of their names."""
    records: dict[str, Record] = {}
    beginning = registry_key(kind.kind, "*").removesuffix("*")
    async for keys in redis.scan(f"{beginning}*"):
        names = [key.removeprefix(beginning) for key in keys]
        answers = await redis.read_many([kind.command(name) for name in names])
        found = zip(names, map(kind.parse, answers), strict=True)
        records |= {name: record for name, record in found if record is not None}
    return dict(sorted(records.items()))


def make_revision() -> str:
    """Return random text for a version of a record, or for a mark."""
    return secrets.token_hex(8)


def split_parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
