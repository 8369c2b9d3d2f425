"""The form of each kind of key is that of the dumps in tests/store/records, or its record has another version.

To make the dumps anew, run `WRITE_RECORDS=1 ./scripts/test tests/store/test_record_forms.py`. From the first release on
they stay, a changed form gets another version, and its dump comes beside the old one.
"""

import json
import os
import re
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest
import redis

from service.gateway.access_record import parse_grant
from service.store import records
from service.store.keys import get_kind
from service.store.registry.clients import CLIENTS
from service.store.registry.realms import REALMS
from service.store.registry.users import USERS
from service.worker import Worker
from tests.conftest import MakeSettings
from tests.support.every_kind_of_key import every_kind_of_key

FOLDER = Path(__file__).with_name("records")
Dump = dict[str, Any]

READERS: dict[str, Callable[[Any], object]] = {
    "access": parse_grant,
    "family": records.parse_family,
    "ended": records.parse_tombstone,
    "code": records.parse_code,
    "redeemed": records.parse_redeemed,
    "consent": records.parse_consent,
    "browser": records.parse_browser_session,
    "mark": records.parse_mark,
    "client": CLIENTS.parse,
    "realm": REALMS.parse,
}

pytestmark = pytest.mark.single_server("the form of a record does not depend on the servers")


def dump(store: redis.Redis, key: str) -> Dump | None:
    """Return the key with its type, value and lifetime, or None if it has expired."""
    readers: dict[str, Callable[[], Any]] = {
        "string": lambda: store.get(key),
        "hash": lambda: store.hgetall(key),
        "set": lambda: sorted(map(str, store.smembers(key))),
        "zset": lambda: store.zrange(key, 0, -1, withscores=True),
        "stream": lambda: [fields for _, fields in store.xrange(key, count=1)],  # type: ignore[union-attr]
    }
    left_ms, kind = int(store.pttl(key)), str(store.type(key))
    return None if kind == "none" else {"key": key, "type": kind, "value": readers[kind](), "lifetime_ms": left_ms}


def get_form(value: Any) -> Any:
    """Return the value with the types of the members of JSON, and without what differs from run to run."""
    if isinstance(value, dict):
        return {str(get_form(name)): get_form(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return sorted({json.dumps(get_form(each)) for each in value})
    if not isinstance(value, str):
        return type(value).__name__
    if value.startswith("{"):
        return {name: type(each).__name__ for name, each in json.loads(value).items()}
    lines = [get_form(line) if line.startswith("{") else line for line in value.split("\n")]
    return [re.sub(r"[\w-]{12,}|\d+", "~", line) if isinstance(line, str) else line for line in lines]


def describe(found: Dump) -> str:
    """Return the form of a key: kind, type, form of the value, and whether it expires."""
    form = [get_kind(found["key"]), found["type"], get_form(found["value"]), found["lifetime_ms"] > 0]
    return json.dumps(form, sort_keys=True)


def get_version(found: Dump) -> tuple[str, str]:
    return get_kind(found["key"]), str(found["value"]).partition("\n")[0] if found["type"] == "string" else ""


def read_dumps() -> list[Dump]:
    return [each for path in sorted(FOLDER.glob("*.json")) for each in json.loads(path.read_text())]


@pytest.mark.clause("decided-record-form")
async def test_records_are_written_in_the_form_of_their_version(
    worker: Worker, http: httpx2.AsyncClient, store: redis.Redis, make_settings: MakeSettings
) -> None:
    written = dict[str, Dump]()
    async for _ in every_kind_of_key(worker, http, make_settings):
        for key in map(str, store.scan_iter(count=1000)):
            found = dump(store, key)
            if found is not None:
                written.setdefault(describe(found), found)
    if os.environ.get("WRITE_RECORDS"):
        write_dumps(written)

    known, versions = {describe(each) for each in read_dumps()}, {get_version(each) for each in read_dumps()}
    assert {get_kind(each["key"]) for each in written.values()} == {get_kind(each["key"]) for each in read_dumps()}
    changed = [form for form, each in written.items() if form not in known and get_version(each) in versions]
    assert changed == [], "make the dumps anew (see the top of this file)"


def write_dumps(written: dict[str, Dump]) -> None:
    by_kind = defaultdict[str, list[Dump]](list)
    for form in sorted(written):
        by_kind[get_kind(written[form]["key"])].append(written[form])
    for kind, dumps in by_kind.items():
        (FOLDER / f"{kind}.json").write_text(json.dumps(dumps, indent=1, ensure_ascii=False) + "\n")


@pytest.mark.clause("decided-record-form")
def test_records_of_the_dumps_are_read() -> None:
    for each in read_dumps():
        kind, value = get_kind(each["key"]), each["value"]
        if kind == "user":
            assert USERS.parse([value["record"].encode(), value["revision"].encode()])
        elif kind in READERS:
            assert READERS[kind](value.encode())
