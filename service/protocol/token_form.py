"""The form and the digest of opaque tokens, which gateways check without the service's keys.

A token consists of a prefix, the shard of its user and 44 characters for 33 bytes. The shard selects the slot of a
Redis Cluster. Each token has one canonical spelling of fixed length, made of letters, digits, `_` and `-`. Text with
another spelling is refused without a call to Redis. Redis stores only the digest.

    tsat1_ + shard (3 hex digits) + 44 base64url characters: an access token
    tsac1_ an authorization code, tspc1_ a pending consent, tsbs1_ a browser session

A length that is a multiple of three bytes leaves base64url no spare bits and no second spelling.

Clauses: RFC 6749 §1.4, §10.10, RFC 6819 §5.1.4.2.2, SPEC §1
"""

from __future__ import annotations

import hashlib
import re
from binascii import b2a_base64
from functools import partial
from typing import Final, NamedTuple

ACCESS_TOKEN_PREFIX: Final = "tsat1_"
AUTHORIZATION_CODE_PREFIX: Final = "tsac1_"
CONSENT_PREFIX: Final = "tspc1_"
BROWSER_SESSION_PREFIX: Final = "tsbs1_"


RANDOM_TOKEN_CHARACTERS: Final = 53


SHARD: Final = slice(6, 9)
"""The position of the shard in a random token."""


_URL_SAFE: Final = bytes.maketrans(b"+/", b"-_")


_ACCESS_TOKEN: Final = re.compile(ACCESS_TOKEN_PREFIX + r"[0-9a-f]{3}[A-Za-z0-9_-]{44}")


_FORM: Final = re.compile(r"(ts[a-z]{2}1_)([0-9a-f]{3})[A-Za-z0-9_-]{44}")


class RandomToken(NamedTuple):
    """A token of 33 bytes under a prefix and a shard: the text that is sent, and the digest that Redis stores."""

    text: str
    shard: str
    digest: str


def is_access_token(text: str) -> bool:
    """Return True if the text has the form of an access token. Its shard is then at `SHARD`."""
    return _ACCESS_TOKEN.fullmatch(text) is not None


DIGEST_BYTES: Final = 16
"""The length of a token digest: 128 bits of SHA-256.

A token has at least 256 random bits, so a second token with the same digest cannot be found.
"""


def digest_token(text: str) -> str:
    """Return the name of a token in Redis: base64url of the first half of its SHA-256, 22 characters."""
    return encode(hashlib.sha256(text.encode()).digest()[:DIGEST_BYTES])


def _parse_random_token(prefix: str, text: str) -> RandomToken | None:
    """Return the token, or None if the text does not have the form of one with this prefix."""
    match = _FORM.fullmatch(text)
    return RandomToken(text, match[2], digest_token(text)) if match and match[1] == prefix else None


parse_access_token: Final = partial(_parse_random_token, ACCESS_TOKEN_PREFIX)
parse_authorization_code: Final = partial(_parse_random_token, AUTHORIZATION_CODE_PREFIX)
parse_consent: Final = partial(_parse_random_token, CONSENT_PREFIX)
parse_browser_session: Final = partial(_parse_random_token, BROWSER_SESSION_PREFIX)


def encode(data: bytes) -> str:
    """Return the data as base64url without padding."""
    return b2a_base64(data, newline=False).translate(_URL_SAFE).rstrip(b"=").decode()
