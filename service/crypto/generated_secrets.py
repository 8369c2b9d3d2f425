"""Hashes of client secrets that the service made: 256 random bits, which need no slow hash.

Clauses: RFC 6749 §10.10, RFC 6819 §5.1.4.1.3
"""

from __future__ import annotations

import hashlib
from typing import Final

from service.protocol.token_form import encode

GENERATED_SECRET_PREFIX: Final = "sha256:"


def hash_generated_secret(secret: str) -> str:
    """Return the hash of a secret of 256 random bits. Such a secret cannot be guessed, so a fast digest is enough."""
    return GENERATED_SECRET_PREFIX + encode(hashlib.sha256(secret.encode()).digest())
