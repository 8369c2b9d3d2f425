"""The table of keys in service/store/keys.py is what Redis really holds."""

import httpx2
import redis

from service.worker import Worker
from tests.conftest import MakeSettings
from tests.house.key_table import Row, read_table
from tests.support.every_kind_of_key import every_kind_of_key

PERSISTENT = ("for good", "while a ")


def look_at_every_key(store: redis.Redis) -> list[tuple[str, str, int]]:
    """Each key with its type and what is left of its life; `none` where it ended between the list and the look."""
    found = [str(key) for key in store.scan_iter(count=1000)]
    pipeline = store.pipeline(transaction=False)
    for key in found:
        pipeline.type(key)
        pipeline.pttl(key)
    answers = pipeline.execute()
    looks = zip(found, answers[::2], answers[1::2], strict=True)
    return [(key, "none" if left_ms == -2 else kind, left_ms) for key, kind, left_ms in looks]


async def test_key_table_matches_the_code(
    worker: Worker, http: httpx2.AsyncClient, store: redis.Redis, make_settings: MakeSettings
) -> None:
    table = read_table()
    seen = set[Row]()
    async for operation in every_kind_of_key(worker, http, make_settings):
        for key, found_type, left_ms in look_at_every_key(store):
            rows = [row for row in table if row.fits(key)]

            assert len(rows) == 1, (operation, key)
            if found_type == "none" and not rows[0].lives.startswith(PERSISTENT):
                continue
            seen.update(rows)
            assert rows[0].type == found_type, (operation, key)
            assert rows[0].lives.startswith(PERSISTENT) == (left_ms == -1), (operation, key)

    assert set(table) == seen
