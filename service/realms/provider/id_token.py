"""Verification of an ID token: its signature, issuer, audience, nonce and times.

Clauses: OpenID Connect Core 1.0 §2, §3.1.3.7, §15.1, RFC 7515 §4.1.1, RFC 7517 §5
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode
from typing import Any, Final, NamedTuple

from joserfc import jwk, jws, jwt
from joserfc.errors import (
    BadSignatureError,
    InvalidKeyCurveError,
    InvalidKeyIdError,
    JoseError,
    KeyParameterError,
    UnsupportedAlgorithmError,
)

from service.protocol.grammar import make_printable
from service.protocol.provider_responses import Claims, InvalidProviderResponse

LEEWAY_SECONDS: Final = 60
"""The allowed difference between the clocks of the identity provider and of Redis."""

MIN_RSA_BITS: Final = 2048

ALGORITHMS: Final = (*(f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)), "EdDSA", "Ed25519")
"""Algorithms whose signatures only the identity provider can make. `none` and all with a shared secret are excluded."""


class _Signatures(jws.JWSRegistry):
    """The algorithms of ALGORITHMS, without the library's warning about names that are merely old.

    A header may carry the certificates of its key, which are not used.
    """

    max_header_length = 8192

    def get_alg(self, name: str) -> Any:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError(f"Algorithm of '{name}' is not allowed")
        return self.algorithms[name]


SIGNATURES: Final = _Signatures(strict_check_header=False)


class UnknownKey(Exception):
    """No key that we know has signed the token. The identity provider may have published new keys.

    They may have the names of the old ones, or none. So this includes a signature that does not fit the named key.
    """


class Expectation(NamedTuple):
    """The values that an ID token must have. `nonce` is None if the request had none."""

    issuer: str
    client_id: str
    nonce: str | None
    now_seconds: int


def parse_keys(content: dict[str, Any]) -> jwk.KeySet:
    """Return the usable keys. Raises InvalidProviderResponse if there is none.

    A key that cannot be read is skipped, because it may serve other clients. A key that is published with its private
    part (`d`) is skipped, because anyone can sign with it, and the library would take seconds to check it.

    Clauses: RFC 7517 §5
    """
    entries = content.get("keys")
    keys = []
    for entry in entries if isinstance(entries, list) else ():
        if not isinstance(entry, dict) or "d" in entry:
            continue
        try:
            keys.append(_import_key(entry))
        except (JoseError, ValueError, TypeError, KeyError, AttributeError):
            continue
    if not keys:
        raise InvalidProviderResponse("its key set contains no usable key")
    return jwk.KeySet(keys)


def _import_key(entry: dict[str, Any]) -> jwk.Key:
    """Import a key. Raises ValueError for an RSA key under MIN_RSA_BITS and for any but RSA, EC and OKP keys.

    The library only warns of a short RSA key. A key of 512 bits can be broken, and anyone can then sign with it.

    Clauses: RFC 7518 §3.3
    """
    if entry.get("kty") == "RSA" and 8 * len(urlsafe_b64decode(entry["n"] + "==").lstrip(b"\0")) < MIN_RSA_BITS:
        raise ValueError("an RSA key that is too short")
    if entry.get("kty") not in ("RSA", "EC", "OKP"):
        raise ValueError("a symmetric key, or one of an unknown type")
    return jwk.import_key(entry)


def verify_id_token(text: str, keys: jwk.KeySet, expected: Expectation) -> Claims:
    """Return the verified claims of an ID token.

    Raises UnknownKey if newer keys may help, or InvalidProviderResponse with the reason.
    """
    try:
        claims = jwt.decode(text, keys, registry=SIGNATURES).claims
        check_claims(claims, expected)
    except (BadSignatureError, InvalidKeyCurveError, InvalidKeyIdError, KeyParameterError):
        raise UnknownKey from None
    except JoseError as error:  # its message may quote the token
        raise InvalidProviderResponse(f"its ID token is invalid ({make_printable(str(error)[:200])})") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidProviderResponse(f"its ID token cannot be read ({type(error).__name__})") from None
    nonce = claims.get("nonce")
    if expected.nonce is not None and not (
        isinstance(nonce, str) and hmac.compare_digest(nonce.encode(errors="surrogatepass"), expected.nonce.encode())
    ):
        raise InvalidProviderResponse("its ID token does not have the nonce of this login")
    return claims


def check_claims(claims: dict[str, Any], expected: Expectation) -> None:
    """Check issuer, subject, audience and times, in an ID token or a logout token.

    Raises ClaimError with the wrong claim, or InvalidProviderResponse if the token was issued to another client.
    """
    jwt.JWTClaimsRegistry(
        now=expected.now_seconds,
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": expected.issuer},
        sub={"essential": True},
        aud={"essential": True, "value": expected.client_id},
        exp={"essential": True},
        iat={"essential": True},
    ).validate(claims)
    _check_audience(claims, expected.client_id)


def read_sid(claims: Claims) -> str:
    """Return the id of the session at the identity provider, or an empty text if the token has none.

    Clauses: OpenID Connect Back-Channel Logout 1.0 §2.1
    """
    sid = claims.get("sid")
    return sid if isinstance(sid, str) else ""


def _check_audience(claims: Claims, client_id: str) -> None:
    """Raise InvalidProviderResponse unless the token was issued to us.

    A token for several audiences must name us as `azp`. An `azp` in any token must be us.

    Clauses: OpenID Connect Core 1.0 §3.1.3.7 (3, 4, 5)
    """
    audience = claims["aud"]
    is_shared = isinstance(audience, list) and set(audience) != {client_id}
    if (is_shared or "azp" in claims) and claims.get("azp") != client_id:
        raise InvalidProviderResponse("its ID token was issued to another client")
