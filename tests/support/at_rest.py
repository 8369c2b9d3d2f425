"""The texts that Redis holds, as a thief of its data could read them."""

from collections.abc import Iterator
from typing import Any


def read_key(store: Any, key: str) -> list[str]:
    """Return every text in the value of the key. A key that expires meanwhile, as a throttle's does, has no text."""
    kind = store.type(key)
    if kind == "string":
        value = store.get(key)
        return [] if value is None else [value]
    if kind == "hash":
        return [text for pair in store.hgetall(key).items() for text in pair]
    if kind == "set":
        return list(store.smembers(key))
    if kind == "stream":
        return [text for _, fields in store.xrange(key) for text in fields.values()]
    if kind == "zset":
        return list(store.zrange(key, 0, -1))
    assert kind == "none", f"{key} is a {kind}"
    return []


def read_everything(store: Any) -> Iterator[str]:
    """Yield every key, and every text in every value."""
    for key in store.scan_iter(count=1000):
        yield str(key)
        yield from read_key(store, key)


def give_sid(store: Any, family_key: str, sid: str) -> None:
    """Let a session come from this login at an identity provider."""
    lines = store.get(family_key).split("\n")
    store.set(family_key, "\n".join([*lines[:10], sid, *lines[11:]]), keepttl=True)
