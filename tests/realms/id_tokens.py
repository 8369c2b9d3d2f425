"""ID tokens, and the keys that sign them."""

import functools
from base64 import urlsafe_b64encode
from typing import Any

from joserfc import jws, jwt
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey

from service.realms.provider.id_token import Expectation, parse_keys

NOW = 1_700_000_000
ISSUER = "https://login.example.org"
CLIENT_ID = "token-service"
NONCE = "a nonce"
EXPECTED = Expectation(ISSUER, CLIENT_ID, None, NOW)
EXPECTED_AT_PAGE = EXPECTED._replace(nonce=NONCE)
CLAIMS: dict[str, Any] = {"iss": ISSUER, "sub": "zoe", "aud": CLIENT_ID, "iat": NOW, "exp": NOW + 600}
CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521"}


@functools.cache
def make_key(kind: str) -> Key:
    """Return the shared key of an algorithm. Any other kind names one more RSA key."""
    if kind.startswith("ES"):
        return ECKey.generate_key(CURVES[kind], {"kid": kind})
    if kind.startswith("Ed"):
        return OKPKey.generate_key("Ed25519", {"kid": kind})
    return RSAKey.generate_key(2048, {"kid": "RSA" if kind == "RSA" else kind})


def key_for(algorithm: str) -> Key:
    return make_key(algorithm if algorithm.startswith("E") else "RSA")


def publish(*keys: Key, **parameters: str) -> KeySet:
    """Return the keys without their private parts, as a provider publishes them and as they are parsed here."""
    return parse_keys({"keys": [dict(key.as_dict(private=False)) | parameters for key in keys]})


KEYS = publish(make_key("RSA"))


def sign(claims: dict[str, Any] | None = None, **header: object) -> str:
    """Sign with the RSA key unless the header names another. None leaves a header out."""
    whole = {name: value for name, value in ({"alg": "RS256", "kid": "RSA"} | header).items() if value is not None}
    algorithm = str(whole["alg"])
    registry = jws.JWSRegistry(algorithms=[algorithm], strict_check_header=False)
    return jwt.encode(whole, CLAIMS if claims is None else claims, key_for(algorithm), registry=registry)


def sign_raw(header: bytes, payload: bytes) -> str:
    """Sign arbitrary bytes with a valid RS256 signature."""
    signed = f"{encode(header)}.{encode(payload)}".encode()
    signature = jws.JWSRegistry.algorithms["RS256"].sign(signed, make_key("RSA"))
    return f"{signed.decode()}.{encode(signature)}"


def encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
