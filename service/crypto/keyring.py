"""Tokens and other secret values: random ones, and those that are computed with the service's keys.

Access tokens, consents and browser sessions are random. `service/protocol/token_form.py` tells their form.

A refresh token is family, generation and a MAC by a key that Redis never sees. So the next token of a family need not
be stored, and no dump of Redis holds a usable one. An authorization code is computed in the same way, from the random
id of the consent that it answers, so that a second click on "allow" leads to the same code.

    tsrt1_ + shard (3 hex digits) + 52 base64url characters (key id 3, family id 16, generation 4, MAC 16 bytes)

The encoded bytes are a multiple of three, as in the random tokens. So each token has one spelling.

Clauses: RFC 6749 §1.5, §10.10, RFC 6819 §5.1.4.1.3, §5.1.4.2.2, SPEC §1
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from base64 import urlsafe_b64decode
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple

from service.protocol import token_form
from service.protocol.errors import TemporarilyUnavailable
from service.protocol.token_form import RandomToken, encode

REFRESH_TOKEN_PREFIX: Final = "tsrt1_"
GENERATED_SECRET_PREFIX: Final = "sha256:"

_RANDOM_BYTES: Final = 33

_KEY_ID_BYTES: Final = 3
KEY_ID_CHARACTERS: Final = 4
_FAMILY_ID_BYTES: Final = 16
_GENERATION_BYTES: Final = 4
_MAC_BYTES: Final = 16
_PAYLOAD_BYTES: Final = _KEY_ID_BYTES + _FAMILY_ID_BYTES + _GENERATION_BYTES

_SALT_BYTES: Final = 24
_SEAL_HEAD_BYTES: Final = _KEY_ID_BYTES + _SALT_BYTES
_SEALED: Final = re.compile(r"[A-Za-z0-9_-]{58,}")
"""The form of a sealed text. 58 characters hold the head and the tag of 16 bytes."""

_REFRESH_TOKEN: Final = re.compile(rf"{REFRESH_TOKEN_PREFIX}([0-9a-f]{{3}})([A-Za-z0-9_-]{{52}})")


class RefreshToken(NamedTuple):
    """A refresh token whose MAC was right, or one that is about to be signed.

    `family_digest` is the name of the family in Redis: 22 characters of base64url.
    """

    shard: str
    family_id: bytes
    family_digest: str
    generation: int


def make_random_token(prefix: str, shard: str, data: bytes | None = None) -> RandomToken:
    text = f"{prefix}{shard}{encode(data or secrets.token_bytes(_RANDOM_BYTES))}"
    return RandomToken(text, shard, token_form.digest_token(text))


make_access_token: Final = partial(make_random_token, token_form.ACCESS_TOKEN_PREFIX)
make_consent: Final = partial(make_random_token, token_form.CONSENT_PREFIX)
make_browser_session: Final = partial(make_random_token, token_form.BROWSER_SESSION_PREFIX)


def hash_generated_secret(secret: str) -> str:
    """Return the hash of a client secret of 256 random bits, which cannot be guessed, so that SHA-256 is enough."""
    return GENERATED_SECRET_PREFIX + encode(hashlib.sha256(secret.encode()).digest())


def make_browser_secret() -> str:
    """Return 256 random bits as base64url, to recognise a browser or a device."""
    return secrets.token_urlsafe(32)


def derive_from_browser(browser_secret: str, purpose: str, name: str) -> str:
    """Derive 43 characters of base64url from the browser's secret. Redis contents and `name` do not reveal them."""
    return encode(hmac.digest(browser_secret.encode(), f"{purpose}\n{name}".encode(), "sha256"))


def make_first_refresh_token(shard: str) -> RefreshToken:
    return make_refresh_token(shard, secrets.token_bytes(_FAMILY_ID_BYTES), 1)


def make_refresh_token(shard: str, family_id: bytes, generation: int) -> RefreshToken:
    digest = hashlib.sha256(b"family\n" + family_id).digest()[:_FAMILY_ID_BYTES]
    return RefreshToken(shard, family_id, encode(digest), generation)


class _Key(NamedTuple):
    key_id: bytes
    refresh: hmac.HMAC
    seed: bytes
    code: bytes
    page: bytes
    seal: bytes
    origin: bytes


class Keyring:
    """The service's keys. New values are made with the first key, and all keys verify.

    Each purpose has its own sub-key by HKDF. The id of a key is derived from the key, so the id stays the same when the
    key moves in the list.

    A worker sets `is_in_use` to False until it has found one of the keys in use in its store.
    """

    def __init__(self, secret_keys: Sequence[bytes]) -> None:
        self.is_in_use = True
        if not secret_keys:
            raise ValueError("a keyring needs a key")
        self._keys = tuple(_derive_key(secret_key) for secret_key in secret_keys)

    def sign_refresh_token(self, refresh_token: RefreshToken) -> str:
        key = self._keys[0]
        payload = key.key_id + refresh_token.family_id + refresh_token.generation.to_bytes(_GENERATION_BYTES)
        head = REFRESH_TOKEN_PREFIX + refresh_token.shard
        return head + encode(payload + _make_mac(key.refresh, head, payload))

    def check_in_use(self) -> None:
        """Raise TemporarilyUnavailable unless a key is in use, since other instances would reject our tokens."""
        if not self.is_in_use:
            raise TemporarilyUnavailable("secret_key_not_in_use", retry_after_seconds=1)

    def parse_refresh_token(self, text: str) -> RefreshToken | None:
        """Return the refresh token, or None unless one of our keys signed exactly this text. Needs no Redis.

        Raises TemporarilyUnavailable if none of our keys is in use, because other instances may know the token.
        """
        match = _REFRESH_TOKEN.fullmatch(text)
        if match is None:
            return None
        self.check_in_use()
        data = urlsafe_b64decode(match[2])
        payload, mac = data[:_PAYLOAD_BYTES], data[_PAYLOAD_BYTES:]
        head = REFRESH_TOKEN_PREFIX + match[1]
        for key in self._list_keys(payload):
            if hmac.compare_digest(mac, _make_mac(key.refresh, head, payload)):
                family_id = payload[_KEY_ID_BYTES : _KEY_ID_BYTES + _FAMILY_ID_BYTES]
                return make_refresh_token(match[1], family_id, int.from_bytes(payload[-_GENERATION_BYTES:]))
        return None

    def derive_code(self, consent: RandomToken) -> RandomToken:
        """Return the authorization code that answers this consent: the same at each call, and secret without the key.

        Clauses: RFC 6749 §10.10
        """
        mac = hmac.digest(self._keys[0].code, consent.text.encode(), "sha384")[:_RANDOM_BYTES]
        return make_random_token(token_form.AUTHORIZATION_CODE_PREFIX, consent.shard, mac)

    def sign_for_page(self, purpose: str, *parts: str) -> str:
        """Return a signature that a browser has to bring back, bound to a purpose. No part may hold a line end."""
        return _sign_for_page(self._keys[0], purpose, parts)

    def recognises_for_page(self, signature: str, purpose: str, *parts: str) -> bool:
        """Return True if any of our keys signed exactly these parts for this purpose."""
        sent = signature.encode()
        return any(hmac.compare_digest(sent, _sign_for_page(key, purpose, parts).encode()) for key in self._keys)

    def seal(self, purpose: str, content: bytes) -> str:
        """Return the content sealed with AES-256-GCM, as base64url. `purpose` binds the text to one use.

        Strangers can have any number of texts sealed, so each has a new key and nonce. Both are derived from 24 random
        bytes in front of the sealed content.
        """
        # Imported here: this library takes 6 MiB of a process and 6 ms of its time, and most processes seal nothing.
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        key, salt = self._keys[0], secrets.token_bytes(_SALT_BYTES)
        seal_key, nonce = _derive_seal_key(key, salt)
        return encode(key.key_id + salt + AESGCM(seal_key).encrypt(nonce, content, purpose.encode()))

    def open_sealed(self, purpose: str, text: str) -> bytes | None:
        """Return the sealed content, or None unless one of our keys sealed exactly this text for this purpose."""
        from cryptography.exceptions import InvalidTag  # imported here, like AESGCM above
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        if not _SEALED.fullmatch(text) or len(text) % 4 == 1:
            return None
        data = urlsafe_b64decode(text + "=" * (-len(text) % 4))
        if encode(data) != text:  # another spelling of the same bytes, which would pass for a second text
            return None
        salt, sealed = data[_KEY_ID_BYTES:_SEAL_HEAD_BYTES], data[_SEAL_HEAD_BYTES:]
        for key in self._list_keys(data):
            seal_key, nonce = _derive_seal_key(key, salt)
            with suppress(InvalidTag):
                return AESGCM(seal_key).decrypt(nonce, sealed, purpose.encode())
        return None

    def open_sealed_text(self, purpose: str, sealed: str) -> str | None:
        content = self.open_sealed(purpose, sealed)
        return None if content is None else content.decode()

    def is_sealed(self, purpose: str, sealed: str, text: str) -> bool:
        """Return True if `sealed` was sealed with the current key and holds `text`."""
        return sealed.startswith(self.key_ids[0]) and self.open_sealed_text(purpose, sealed) == text

    @property
    def key_ids(self) -> list[str]:
        """The ids of the keys in their order: 4 characters of base64url each."""
        return [encode(key.key_id) for key in self._keys]

    def digest_origin(self, origin: str) -> str:
        """Return 24 hex digits that stand for a caller's network or browser in the names of keys.

        An unkeyed digest would expose all IPv4 addresses to guessing.
        """
        return hmac.digest(self._keys[0].origin, origin.encode(), "sha256")[:12].hex()

    def digest_seed(self, text: bytes) -> str:
        """Return a keyed digest of a seed file, or of a secret in one. It begins with the id of the first key.

        An unkeyed digest would expose passwords to guessing.
        """
        return _digest_seed(self._keys[0], text)

    def recognises_seed(self, digest: str, text: bytes) -> bool:
        """Return True if any of our keys made this digest of this text."""
        return any(hmac.compare_digest(digest, _digest_seed(key, text)) for key in self._keys)

    def _list_keys(self, data: bytes) -> list[_Key]:
        """Return the keys whose id is in front of the data. Two keys may have the same id by chance."""
        return [key for key in self._keys if key.key_id == data[:_KEY_ID_BYTES]]


def _derive_key(secret_key: bytes) -> _Key:
    def derive(purpose: str, length: int = 32) -> bytes:
        return derive_key(secret_key, f"token-service 1 {purpose}".encode(), length)

    return _Key(
        key_id=derive("key id", _KEY_ID_BYTES),
        refresh=hmac.new(derive("refresh token"), digestmod="sha256"),
        seed=derive("seed"),
        code=derive("authorization code"),
        page=derive("page"),
        seal=derive("seal"),
        origin=derive("origin"),
    )


def _make_mac(key: hmac.HMAC, head: str, payload: bytes) -> bytes:
    mac = key.copy()
    mac.update(head.encode() + payload)
    return mac.digest()[:_MAC_BYTES]


def _sign_for_page(key: _Key, purpose: str, parts: Sequence[str]) -> str:
    return encode(hmac.digest(key.page, "\n".join((purpose, *parts)).encode(), "sha256"))


def _derive_seal_key(key: _Key, salt: bytes) -> tuple[bytes, bytes]:
    """Return the key and the nonce of one sealed text."""
    derived = hmac.digest(key.seal, salt, "sha512")
    return derived[:32], derived[32:44]


def _digest_seed(key: _Key, text: bytes) -> str:
    return encode(key.key_id + hmac.digest(key.seed, text, "sha256")[:16])


def derive_key(secret: bytes, purpose: bytes, length: int) -> bytes:
    """Return the key of at most 32 bytes for a purpose, by HKDF with SHA-256 and without a salt.

    It replaces that of `cryptography`, which takes 6 MiB of each process and 6 ms of its start. A test compares the
    two.

    Clauses: RFC 5869 §2
    """
    extracted = hmac.digest(bytes(32), secret, "sha256")
    return hmac.digest(extracted, purpose + b"\x01", "sha256")[:length]
