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


def make_kind(kind: str, form: type[Record]) -> RecordKind[str, Record | None]:
    """Return the kind of records that are JSON of this form, each under the key of its name."""
    decode = msgspec.json.Decoder(form).decode
    return RecordKind(
        kind,
        lambda name: ("GET", registry_key(kind, name)),
        lambda record: None if record is None else read_json(decode, record, f"a {kind}"),
    )


class Records(Generic[Name, Record]):
    """All records of one kind. Every read goes to Redis; there is no cache."""

    def __init__(self, redis: StoreClient, kind: RecordKind[Name, Record]) -> None:
        self._redis = redis
        self._kind = kind

    async def find(self, name: Name) -> Record:
        return self._kind.parse(await self._redis.read(*self._kind.command(name)))

    async def list_all(self: Records[str, Item | None]) -> dict[str, Item]:
        """Return all records by name, in the order of their names."""
        records: dict[str, Item] = {}
        beginning = registry_key(self._kind.kind, "*").removesuffix("*")
        async for keys in self._redis.scan(f"{beginning}*"):
            names = [key.removeprefix(beginning) for key in keys]
            answers = await self._redis.read_many([self._kind.command(name) for name in names])
            found = zip(names, map(self._kind.parse, answers), strict=True)
            records |= {name: record for name, record in found if record is not None}
        return dict(sorted(records.items()))


def make_revision() -> str:
    """Return random text for a version of a record, or for a mark."""
    return secrets.token_hex(8)


def split_parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
