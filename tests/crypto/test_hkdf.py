"""Our HKDF and that of `cryptography` derive the same keys."""

from __future__ import annotations

import secrets

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from service.crypto.hkdf import MAX_BYTES, derive_key


def test_the_example_of_the_rfc_gives_its_key() -> None:
    """RFC 5869, appendix A.3: neither salt nor info."""
    expected = "8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d9d201395faa4b61a96c8"

    assert derive_key(b"\x0b" * 22, b"", 42).hex() == expected


@pytest.mark.parametrize("length", [1, 3, 31, 32, 33, 64, 65, MAX_BYTES])
def test_both_libraries_derive_the_same_key(length: int) -> None:
    for secret_bytes in (1, 32, 64, 65, 200):
        secret, purpose = secrets.token_bytes(secret_bytes), secrets.token_bytes(length % 70)

        assert derive_key(secret, purpose, length) == HKDF(SHA256(), length, salt=None, info=purpose).derive(secret)


def test_a_key_that_is_too_long_is_refused() -> None:
    with pytest.raises(ValueError, match="8160"):
        derive_key(b"a secret", b"", MAX_BYTES + 1)
