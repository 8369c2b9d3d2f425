"""Readers of the registry's contents."""

import redis

from service.protocol.client import Client
from service.protocol.user import User, identify_user
from service.worker import Worker
from tests.support.clients_and_users import ALICE

IDENTITY = identify_user("main", ALICE.username)


async def find_alice(worker: Worker) -> User:
    user = await worker.registry.users.find(IDENTITY)
    assert user is not None
    return user


async def find_client(worker: Worker, client_id: str = "phone-app") -> Client:
    client = await worker.registry.clients.find(client_id)
    assert client is not None
    return client


def everything(store: redis.Redis) -> dict[str, bytes | None]:
    return {key: store.dump(key) for key in store.scan_iter()}
