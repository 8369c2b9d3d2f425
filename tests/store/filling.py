"""A store with many keys."""

import redis

from service.gateway.access_record import access_key
from service.store.keys import family_key, index_key


def fill(store: redis.Redis, *, sessions: int, access_tokens: int, others: int = 0) -> None:
    pipeline = store.pipeline(transaction=False)
    for key, number in ((family_key, sessions), (access_key, access_tokens), (index_key, others)):
        for each in range(number):
            pipeline.set(key(f"{each % 4096:03x}", str(each)), "", px=60_000)
    pipeline.execute()
