"""A cache of client secrets that were verified.

Clauses: RFC 6749 §2.3.1
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from typing import Final

_MAX_SECRETS: Final = 1024


class VerifiedSecretCache:
    """A cache of correct client secrets, so that a busy client pays for the slow hash once per worker.

    The cache maps a stored hash to a digest of hash and secret, under a key of this process. A rotated secret has a new
    stored hash, so the old entry does not match any more.
    """

    def __init__(self) -> None:
        self._key = hmac.new(secrets.token_bytes(32), digestmod="sha256")
        self._digests: OrderedDict[str, bytes] = OrderedDict()

    def remember(self, client_secret: str, stored_hash: str) -> None:
        self._digests[stored_hash] = self._digest(client_secret, stored_hash)
        self._digests.move_to_end(stored_hash)
        if len(self._digests) > _MAX_SECRETS:
            self._digests.popitem(last=False)

    def contains(self, client_secret: str, stored_hash: str) -> bool:
        remembered = self._digests.get(stored_hash, b"")
        return hmac.compare_digest(remembered, self._digest(client_secret, stored_hash))

    def _digest(self, client_secret: str, stored_hash: str) -> bytes:
        digest = self._key.copy()
        digest.update(f"{stored_hash}\n{client_secret}".encode())
        return digest.digest()
