"""The check of an ID token: who signed it, for whom, for which login, until when.

Clauses: OpenID Connect Core 1.0 §2, §3.1.3.7, §15.1, RFC 7515 §4.1.1, RFC 7517 §5
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode
from typing import Any, Final, NamedTuple

from joserfc import jwk, jws, jwt
from joserfc.errors import InvalidKeyIdError, JoseError, UnsupportedAlgorithmError

from service.protocol.provider_responses import Claims, InvalidProviderResponse

LEEWAY_SECONDS: Final = 60
"""How far the organisation's clock may be from Redis's."""

MIN_RSA_BITS: Final = 2048

ALGORITHMS: Final = (
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
    "Ed25519",
)
"""Signatures that only the organisation can make. `none`, and what is made with a secret that we share, are not."""


class _Signatures(jws.JWSRegistry):
    """Takes what is listed above without the library's warning of a name that is merely old.

    A header may carry the key's certificates, which are not looked at.
    """

    max_header_length = 8192

    def get_alg(self, name: str) -> Any:
        if name not in ALGORITHMS:
            raise UnsupportedAlgorithmError(f"Algorithm of '{name}' is not allowed")
        return self.algorithms[name]


_SIGNATURES: Final = _Signatures(strict_check_header=False)


class UnknownKey(Exception):
    """The token is signed with a key that is not among those that we know; there may be new ones."""


class Expectation(NamedTuple):
    """What an ID token must say; without a nonce none was asked for."""

    issuer: str
    client_id: str
    nonce: str | None
    now_seconds: int


def parse_keys(content: dict[str, Any]) -> jwk.KeySet:
    """The keys that can be used; those that cannot be read are somebody else's.

    One that is published with its private part (`d`) is anybody's, and the library would take seconds to check it.

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
        raise InvalidProviderResponse("its key set has no key that can be used")
    return jwk.KeySet(keys)


def _import_key(entry: dict[str, Any]) -> jwk.Key:
    """What the library only warns of is refused: an RSA key of 512 bits can be broken, and then signs for anybody.

    Clauses: RFC 7518 §3.3
    """
    if entry.get("kty") == "RSA" and 8 * len(urlsafe_b64decode(entry["n"] + "==").lstrip(b"\0")) < MIN_RSA_BITS:
        raise ValueError("an RSA key that is too short")
    if entry.get("kty") not in ("RSA", "EC", "OKP"):
        raise ValueError("a key that others have, too, or of a kind that is not known")
    return jwk.import_key(entry)


def verify_id_token(text: str, keys: jwk.KeySet, expected: Expectation) -> Claims:
    """Raises UnknownKey where newer keys may help, else Misanswer with what is wrong."""
    try:
        claims = jwt.decode(text, keys, registry=_SIGNATURES).claims
        _make_registry(expected).validate(claims)
    except InvalidKeyIdError:
        raise UnknownKey from None
    except JoseError as error:
        raise InvalidProviderResponse(f"its ID token is not to be believed ({_quote(str(error))})") from None
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidProviderResponse(f"its ID token cannot be read ({type(error).__name__})") from None
    _check_audience(claims, expected.client_id)
    nonce = claims.get("nonce")
    if expected.nonce is not None and not (
        isinstance(nonce, str) and hmac.compare_digest(nonce.encode(errors="surrogatepass"), expected.nonce.encode())
    ):
        raise InvalidProviderResponse("its ID token has another nonce than this login")
    return claims


def _quote(text: str) -> str:
    """The library's words may repeat what stands in the token."""
    return "".join(filter(str.isprintable, text[:200]))


def _make_registry(expected: Expectation) -> jwt.JWTClaimsRegistry:
    return jwt.JWTClaimsRegistry(
        now=expected.now_seconds,
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": expected.issuer},
        sub={"essential": True},
        aud={"essential": True, "value": expected.client_id},
        exp={"essential": True},
        iat={"essential": True},
    )


def _check_audience(claims: Claims, client_id: str) -> None:
    """Made for us alone, or for others too but handed to us.

    Clauses: OpenID Connect Core 1.0 §3.1.3.7 (3, 4, 5)
    """
    audience = claims["aud"]
    is_shared = isinstance(audience, list) and set(audience) != {client_id}
    if (is_shared or "azp" in claims) and claims.get("azp") != client_id:
        raise InvalidProviderResponse("its ID token was handed out to another client")
