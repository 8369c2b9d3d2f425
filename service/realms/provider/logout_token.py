"""Verification of a logout token: its claims first, so that a forged one seldom needs a key, then its signature.

Clauses: OpenID Connect Back-Channel Logout 1.0 §2.4, §2.6, RFC 7515 §5.2
"""

from __future__ import annotations

import json

from joserfc import jws
from joserfc.errors import ClaimError, JoseError, UnsupportedAlgorithmError
from joserfc.jwk import KeySet

from service.protocol.errors import InvalidRequest
from service.protocol.logout_token import LogoutToken, parse_logout_claims
from service.protocol.provider_responses import InvalidProviderResponse
from service.realms.provider.id_token import SIGNATURES, Expectation, UnknownKey, check_claims


def parse_logout_token(text: str, expected: Expectation) -> tuple[jws.CompactSignature, LogoutToken]:
    """Return the token, whose signature is not checked yet, and its content. Raises InvalidRequest if a claim is wrong.

    Clauses: OpenID Connect Back-Channel Logout 1.0 §2.6 (3 to 8)
    """
    try:
        signed = jws.extract_compact(text.encode(), registry=SIGNATURES)
        header, claims = signed.headers(), json.loads(signed.payload)
        SIGNATURES.get_alg(header["alg"])
        check_claims(claims, expected)
    except UnsupportedAlgorithmError:
        raise InvalidRequest("logout_token_claim_wrong", name="alg") from None
    except ClaimError as error:
        raise InvalidRequest("logout_token_claim_wrong", name=error.claim.partition(",")[0]) from None
    except InvalidProviderResponse:
        raise InvalidRequest("logout_token_claim_wrong", name="aud") from None
    except (JoseError, ValueError, TypeError, AttributeError, RecursionError):
        raise InvalidRequest("logout_token_malformed") from None
    return signed, parse_logout_claims(header, claims, expected.now_seconds)


def check_signature(signed: jws.CompactSignature, keys: KeySet) -> None:
    """Raise UnknownKey unless one of the keys signed the token.

    Clauses: OpenID Connect Back-Channel Logout 1.0 §2.6 (2)
    """
    try:
        is_right = jws.validate_compact(signed, keys, registry=SIGNATURES)
    except (JoseError, ValueError, TypeError, RecursionError):
        is_right = False
    if not is_right:
        raise UnknownKey
