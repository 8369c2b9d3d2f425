"""Random opaque tokens.

Each token is 33 random bytes after a prefix and the shard of its user, which leads to the right Redis Cluster slot. A
token has one canonical spelling of fixed length, made of letters, digits, `_` and `-`. Text that is spelled otherwise
is refused without a call to Redis. Redis stores only the digest.

    tsat1_ + shard (3 hex digits) + 44 base64url characters: an access token
    tsac1_ an authorization code (computed by `keyring`, not random), tspc1_ a consent that waits for an answer,
    tsbs1_ a browser session

A length that is a multiple of three bytes leaves base64url no spare bits and no second spelling.

Clauses: RFC 6749 §1.4, §10.10, RFC 6819 §5.1.4.2.2, SPEC §1
"""

from __future__ import annotations

import secrets
from typing import Final

from service.protocol import token_form

RANDOM_BYTES: Final = 33


def make_access_token(shard: str) -> token_form.RandomToken:
    return make_random_token(token_form.ACCESS_TOKEN_PREFIX, shard)


def make_consent(shard: str) -> token_form.RandomToken:
    return make_random_token(token_form.CONSENT_PREFIX, shard)


def make_browser_session(shard: str) -> token_form.RandomToken:
    return make_random_token(token_form.BROWSER_SESSION_PREFIX, shard)


def make_random_token(prefix: str, shard: str, data: bytes | None = None) -> token_form.RandomToken:
    text = f"{prefix}{shard}{token_form.encode(data or secrets.token_bytes(RANDOM_BYTES))}"
    return token_form.RandomToken(text, shard, token_form.digest_token(text))
