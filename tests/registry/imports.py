"""Imports of users from lines, over a connection of the test."""

import io
import json
from typing import Any

from service.registry.user_import import UserImport
from service.store.client import StoreClient
from service.worker import Worker
from tests.registry.seeds import PASSWORD_HASH, make_seeding

Fields = dict[str, Any]


class File(io.BytesIO):
    name = "users.jsonl"


def make_file(*lines: Fields) -> File:
    return File("".join(f"{json.dumps(line)}\n" for line in lines).encode())


def make_user(username: str, **fields: object) -> Fields:
    return {"username": username, "password_hash": PASSWORD_HASH, "roles": ["enduser"]} | fields


def make_import(connection: StoreClient, file: io.BytesIO, lines_per_batch: int = 2) -> UserImport:
    seeding = make_seeding(connection)
    registry, pending = seeding._registry, seeding._pending_revocations
    return UserImport(file, registry, pending, 8, lines_per_batch=lines_per_batch, batch_pause_seconds=0)


async def import_file(users: UserImport) -> dict[str, int]:
    await users.check(lambda _: None)
    return await users.apply(lambda _done, _total: None, actor="root")


async def import_users(worker: Worker, *lines: Fields) -> dict[str, int]:
    return await import_file(make_import(worker.redis, make_file(*lines)))
