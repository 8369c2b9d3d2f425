"""AES-256-GCM, as the keyring seals texts with it."""

from __future__ import annotations


def seal(key: bytes, nonce: bytes, content: bytes, purpose: bytes) -> bytes:
    """Encrypt the content and authenticate it with the purpose. The nonce has 12 bytes, the result a tag of 16."""
    # Imported here: this library takes 6 MiB of a process and 6 ms of its time, and most processes seal nothing.
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    return AESGCM(key).encrypt(nonce, content, purpose)


def open_sealed(key: bytes, nonce: bytes, sealed: bytes, purpose: bytes) -> bytes | None:
    """Return the content, or None unless it was sealed with this key, nonce and purpose."""
    from cryptography.exceptions import InvalidTag  # imported here, like AESGCM above
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    cipher = AESGCM(key)
    try:
        return cipher.decrypt(nonce, sealed, purpose)
    except (InvalidTag, ValueError):  # ValueError: the nonce or the sealed text is too short
        return None
