"""Proof Key for Code Exchange, with S256 only.

Clauses: RFC 7636 §4.1, §4.2, §4.5, §4.6
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode

from .errors import InvalidGrant
from .grammar import CODE_VERIFIER


def make_code_challenge(code_verifier: str) -> str:
    """Clauses: RFC 7636 §4.2 (S256)"""
    return urlsafe_b64encode(hashlib.sha256(code_verifier.encode()).digest()).decode().rstrip("=")


def check_code_verifier(code_challenge: str | None, code_verifier: str | None) -> None:
    """Raise InvalidGrant unless the verifier matches the challenge, or both are absent.

    A verifier without a challenge is refused to defeat a downgrade. An attacker could request a code without a
    challenge and have an honest client exchange it, which believes that its own challenge was sent.

    Clauses: RFC 7636 §4.6
    """
    if code_challenge is None:
        if code_verifier is not None:
            raise InvalidGrant("code_verifier_unexpected")
        return
    if code_verifier is None:
        raise InvalidGrant("code_verifier_missing")
    if not matches_code_challenge(code_challenge, code_verifier):
        raise InvalidGrant("code_verifier_wrong")


def matches_code_challenge(code_challenge: str, code_verifier: str) -> bool:
    if not CODE_VERIFIER.fullmatch(code_verifier):
        return False
    return hmac.compare_digest(make_code_challenge(code_verifier), code_challenge)
