"""The writer of a seed file: the records of the registry as the entries that make the same records again.

Neither client secrets at identity providers nor the previous secrets of clients are written.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import yaml

from service.registry.record_changes import Record
from service.registry.seed_file.entries import ClientEntry, RealmEntry, UserEntry


def make_sections(realms: Mapping[str, Record], clients: Sequence[Record], users: Sequence[Record]) -> dict[str, Any]:
    """Return the content of the seed file, which depends on the records and their order only."""
    sections: dict[str, Any] = {
        "realms": {name: _write_entry(provider, RealmEntry) for name, provider in realms.items()},
        "clients": [_write_entry(client, ClientEntry) for client in clients],
        "users": [_write_entry(user, UserEntry) for user in users],
    }
    return {name: entries for name, entries in sections.items() if entries}


def write_seed(sections: dict[str, Any]) -> str:
    return yaml.dump(sections, Dumper=yaml.CSafeDumper, sort_keys=False, allow_unicode=True, width=10_000)


def _write_entry(record: Record, entry_type: type[RealmEntry | ClientEntry | UserEntry]) -> dict[str, Any]:
    """Return the fields that an entry and the record share, without defaults."""
    defaults = {field.name: field.default for field in msgspec.structs.fields(entry_type)} | {"disabled": False}
    values = {name: getattr(record, name) for name in defaults if hasattr(record, name)}
    return {name: value for name, value in values.items() if value != defaults[name]}
