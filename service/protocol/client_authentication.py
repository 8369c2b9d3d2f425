"""The client credentials in a request, which may use one method only.

Clauses: RFC 6749 §2.3, §2.3.1, §3.2.1, §5.2, RFC 7009 §2.1, SPEC §4.2, §4.3, §5.1
"""

from __future__ import annotations

import binascii
from base64 import b64decode
from collections.abc import Sequence

import msgspec

from .client import MAX_CLIENT_ID_CHARACTERS
from .errors import InvalidClient, InvalidRequest
from .grammar import is_vschar
from .parameters import Form, decode_field


class ClientCredentials(msgspec.Struct, frozen=True):
    """A client_id and the secret sent with it, or None if no secret was sent."""

    client_id: str
    client_secret: str | None


def parse_client_credentials(authorization: Sequence[str], form: Form) -> tuple[ClientCredentials, ...]:
    """Return the possible readings of the credentials: one from the body, or one or two from a Basic header.

    `authorization` holds all Authorization header values. A Basic credential has a second reading if it looks
    form-urlencoded, as the RFC requires, but may be meant raw, as `curl -u` sends it.

    Raises InvalidRequest if two methods or two client_ids are mixed, and InvalidClient if the credentials are missing
    or malformed.

    Clauses: RFC 6749 §2.3 (one method per request), §2.3.1, §5.2, SPEC §5.1
    """
    if not authorization:
        return (_credentials_in_body(form),)
    if len(authorization) > 1 or "client_secret" in form:
        raise InvalidRequest("client_authenticated_twice")
    readings = parse_basic(authorization[0])
    if "client_id" in form:
        readings = tuple(reading for reading in readings if reading.client_id == form["client_id"])
    if not readings:
        raise InvalidRequest("client_authenticated_twice")
    return readings


def _credentials_in_body(form: Form) -> ClientCredentials:
    if "client_id" not in form:
        raise InvalidClient("client_missing")
    credentials = ClientCredentials(form["client_id"], form.get("client_secret"))
    if not _is_well_formed(credentials):
        raise InvalidClient("client_unknown")
    return credentials


def parse_basic(header: str) -> tuple[ClientCredentials, ...]:
    """Return the readings of a Basic credential: form-urlencoded, then raw. Raises InvalidClient if none is valid.

    Clauses: RFC 6749 §2.3.1 (form-urlencoded inside Basic), SPEC §4.2 (raw inside Basic)
    """
    scheme, _, encoded = header.strip().partition(" ")
    if scheme.lower() != "basic":
        raise InvalidClient("basic_malformed")
    try:
        text = b64decode(encoded.strip(), validate=True).decode()
    except (binascii.Error, UnicodeError, ValueError):
        raise InvalidClient("basic_malformed") from None
    client_id, colon, client_secret = text.partition(":")
    if not (colon and client_id and is_vschar(text)):
        raise InvalidClient("basic_malformed")
    raw = ClientCredentials(client_id, client_secret or None)
    readings = [reading for reading in (_decode_credentials(raw), raw) if reading and _is_well_formed(reading)]
    if not readings:
        raise InvalidClient("client_unknown")
    return tuple(dict.fromkeys(readings))


def _decode_credentials(raw: ClientCredentials) -> ClientCredentials | None:
    client_id, client_secret = decode_field(raw.client_id.encode()), decode_field((raw.client_secret or "").encode())
    if client_id is None or client_secret is None:
        return None
    return ClientCredentials(client_id, client_secret or None)


def _is_well_formed(credentials: ClientCredentials) -> bool:
    """Clauses: RFC 6749 Appendix A.1, A.2"""
    if len(credentials.client_id) > MAX_CLIENT_ID_CHARACTERS:
        return False
    return is_vschar(credentials.client_id) and is_vschar(credentials.client_secret or credentials.client_id)


def check_secret_presence(client_is_public: bool, credentials: ClientCredentials) -> None:
    """Raise InvalidClient if a public client sends a secret, or a client with a secret sends none.

    Clauses: RFC 6749 §3.2.1, §6, SPEC §4.2, §5.1
    """
    if client_is_public and credentials.client_secret is not None:
        raise InvalidClient("client_secret_unexpected")
    if not client_is_public and credentials.client_secret is None:
        raise InvalidClient("client_secret_missing")
