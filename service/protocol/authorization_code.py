"""The rules for the exchange of an authorization code, a first and a repeated one. PKCE has the method S256 only.

Clauses: RFC 6749 §4.1.2, §4.1.3, §4.1.4, RFC 7636 §4.1, §4.2, §4.5, §4.6, SPEC §4.2 (authorization_code)
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from typing import NamedTuple

import msgspec

from .client import AUTHORIZATION_CODE, Client
from .errors import InvalidGrant
from .grammar import CODE_VERIFIER
from .parameters import Form
from .scope import parse_realm, parse_scope


class AuthorizationCode(msgspec.Struct, frozen=True, kw_only=True):
    """The grant behind an authorization code: user, client, scope, and the values that an exchange must match."""

    created_ms: int
    expires_ms: int
    user_digest: str
    subject: str
    client_id: str
    redirect_uri: str
    code_challenge: str | None
    username: str
    scope: str
    browser_name: str = ""
    sid: str = ""

    grant_type = AUTHORIZATION_CODE

    @property
    def realm(self) -> str:
        return parse_realm(self.scope)


class RedeemedCode(NamedTuple):
    """The record that remains of an exchanged code: its client, its challenge, and the family that it started."""

    client_id: str
    code_challenge: str | None
    family_digest: str


def check_exchange(code: AuthorizationCode, client: Client, form: Form) -> None:
    """Raise InvalidGrant unless the code's own client presents it with the right redirect_uri and code_verifier.

    Also raises InvalidGrant if the client may no longer request the scope of the code. Addresses are compared character
    by character; two spellings of one address are two addresses.

    Clauses: RFC 6749 §4.1.3, RFC 7636 §4.6, SPEC §4.2
    """
    if code.client_id != client.client_id:
        raise InvalidGrant("code_of_another_client")
    if code.redirect_uri != form["redirect_uri"]:
        raise InvalidGrant("redirect_uri_differs")
    check_code_verifier(code.code_challenge, form.get("code_verifier"))
    if not client.allowed_scope.covers(parse_scope(code.scope)):
        raise InvalidGrant("code_scope_withdrawn")


def judge_second_exchange(redeemed: RedeemedCode, client: Client, form: Form) -> bool:
    """Return True if presenting a used code again must end the family that its first use started.

    This requires the code's own client and the right code_verifier. Any other caller proves nothing, and must not be
    able to log a user out.

    Clauses: RFC 6749 §4.1.2, §10.5
    """
    if redeemed.client_id != client.client_id:
        return False
    try:
        check_code_verifier(redeemed.code_challenge, form.get("code_verifier"))
    except InvalidGrant:
        return False
    return True


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
    is_well_formed = CODE_VERIFIER.fullmatch(code_verifier)
    if not is_well_formed or not hmac.compare_digest(make_code_challenge(code_verifier), code_challenge):
        raise InvalidGrant("code_verifier_wrong")
