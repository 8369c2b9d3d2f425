"""A search for secrets in everything that Redis holds."""

import re
from base64 import b64encode, urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Collection, Iterator
from typing import Any

from tests.support.at_rest import read_everything

_TOKEN = re.compile(r"ts(?:at|ac|rt|pl|pc|bs)1_[0-9a-f]{3}([A-Za-z0-9_-]+)")


_FAMILY_ID = slice(3, 19)


def spellings(presentable: str) -> Iterator[bytes]:
    """A secret as it stands, and its bytes in the usual codes; of a token its random part too, and its family's id."""
    parts = [presentable.encode()]
    token = _TOKEN.fullmatch(presentable)
    if token is not None:
        data = urlsafe_b64decode(token[1])
        parts += [token[1].encode(), data, data[_FAMILY_ID] if presentable.startswith("tsrt1_") else data]
    for part in parts:
        yield part
        yield part.hex().encode()
        yield b64encode(part).rstrip(b"=")
        yield urlsafe_b64encode(part).rstrip(b"=")


def find_secrets(text: bytes, presentable: Collection[str]) -> set[str]:
    return {secret for secret in presentable if any(spelling in text for spelling in spellings(secret))}


def dump_everything(store: Any) -> bytes:
    """Every key with all that it holds, read by its type and as Redis dumps it."""
    dumped = [store.dump(key) or b"" for key in store.scan_iter(count=1000)]
    return b"\n".join([*(text.encode() for text in read_everything(store)), *dumped])
