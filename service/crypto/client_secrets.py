"""Client secrets: fast hashes of those that the service made, and a cache of those that were verified.

Clauses: RFC 6749 §2.3.1, §10.10, RFC 6819 §5.1.4.1.3
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from typing import Final

from service.protocol.token_form import encode

GENERATED_SECRET_PREFIX: Final = "sha256:"
_MAX_SECRETS: Final = 1024


def hash_generated_secret(secret: str) -> str:
    """Return the hash of a secret of 256 random bits. Such a secret cannot be guessed, so a fast digest is enough."""
    return GENERATED_SECRET_PREFIX + encode(hashlib.sha256(secret.encode()).digest())


class VerifiedSecretCache:
    """A cache of correct client secrets, so that a busy client pays for the slow hash once per worker.

    The cache maps a stored hash to a digest of hash and secret, under a key of this process. A rotated secret has a new
    stored hash, so the old entry does not match any more.
    """

    def __init__(self) -> None:
        self._key = hmac.new(secrets.token_bytes(32), digestmod="sha256")
        self._digests: dict[str, bytes] = {}

    def remember(self, client_secret: str, stored_hash: str) -> None:
        if len(self._digests) >= _MAX_SECRETS:
            self._digests.clear()
        self._digests[stored_hash] = self._digest(client_secret, stored_hash)

    def contains(self, client_secret: str, stored_hash: str) -> bool:
        remembered = self._digests.get(stored_hash, b"")
        return hmac.compare_digest(remembered, self._digest(client_secret, stored_hash))

    def _digest(self, client_secret: str, stored_hash: str) -> bytes:
        digest = self._key.copy()
        digest.update(f"{stored_hash}\n{client_secret}".encode())
        return digest.digest()
