"""The digest of a seed file, which tells whether the file has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path

from service.registry.seed_file.schema import BadSeed
from service.registry.seed_file.yaml_stream import Readable


def read_fingerprint(path: Path) -> bytes:
    """Return the fingerprint of the seed file, without parsing it. Raises BadSeed if the file cannot be read."""
    with opening(path) as file:
        return hashlib.file_digest(file, "sha256").digest()


@contextmanager
def opening(path: Path) -> Iterator[BufferedReader]:
    try:
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise BadSeed((f"the file cannot be read: {error.strerror}",), path) from None
    except BadSeed as refusal:
        raise BadSeed(refusal.mistakes, path) from None


class Fingerprinted:
    """A file that computes a SHA-256 digest of all text that is read from it."""

    def __init__(self, file: Readable) -> None:
        self._file = file
        self._digest = hashlib.sha256()

    def read(self, size: int = -1, /) -> bytes:
        text = self._file.read(size)
        self._digest.update(text)
        return text

    def finish(self) -> bytes:
        """Return the digest of the whole file. The parser may have left text after the end of the document."""
        while self.read(1 << 16):
            pass
        return self._digest.digest()
