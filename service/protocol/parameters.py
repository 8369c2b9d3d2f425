"""Parsing of form bodies, query strings and JSON, and of the client credentials in a request.

Each known parameter is read at most once, with a strict encoding. A client uses one method of authentication only.

Clauses: RFC 6749 §2.3, §2.3.1, §3.1, §3.2, §3.2.1, §4.1.3, §4.3.2, §5.2, §6, Appendix B, RFC 7009 §2.1, RFC 7662 §2.1,
RFC 7493 §2.3, SPEC §1, §4.2, §4.3, §5.1
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from binascii import a2b_qp
from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import msgspec

from .client import MAX_CLIENT_ID_CHARACTERS
from .errors import InvalidClient, InvalidRequest
from .grammar import is_unicode_without_line_ends, is_vschar

if TYPE_CHECKING:
    from python_multipart.multipart import Field

FORM_CONTENT_TYPE: Final = "application/x-www-form-urlencoded"
JSON_CONTENT_TYPE: Final = "application/json"
MAX_FORM_BYTES: Final = 64 * 1024
MAX_FIELDS: Final = 128
MAX_CONTENT_TYPE_CHARACTERS: Final = 256

CLIENT_PARAMETERS: Final = frozenset({"client_id", "client_secret"})
TOKEN_PARAMETERS: Final = CLIENT_PARAMETERS | {
    "grant_type",
    "code",
    "redirect_uri",
    "code_verifier",
    "username",
    "password",
    "refresh_token",
    "scope",
}
REVOCATION_PARAMETERS: Final = CLIENT_PARAMETERS | {"token", "token_type_hint"}
INTROSPECTION_PARAMETERS: Final = REVOCATION_PARAMETERS
LOGOUT_PARAMETERS: Final = frozenset({"logout_token"})

_MALFORMED_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")

Form = Mapping[str, str]
Fields = Sequence[tuple[str | None, str | None]]


def check_content_type(content_type: str | None, expected: str) -> None:
    """Raise InvalidRequest unless the content type is `expected`, with text in UTF-8.

    US-ASCII and ISO-8859-1 are accepted too: the text of a form is ASCII, and its escapes are always read as UTF-8.
    JSON is in UTF-8 whatever the parameter says.

    Clauses: RFC 6749 §3.2, Appendix B, SPEC §1
    """
    if content_type == expected:
        return
    if content_type is None or len(content_type) > MAX_CONTENT_TYPE_CHARACTERS:
        raise InvalidRequest("content_type_differs", name=expected)
    media_type, *attributes = (part.strip().lower() for part in content_type.split(";"))
    charsets = {attribute.removeprefix("charset=").strip('"') for attribute in attributes if "charset=" in attribute}
    if media_type != expected or not charsets <= {"utf-8", "utf8", "us-ascii", "iso-8859-1"}:
        raise InvalidRequest("content_type_differs", name=expected)


def parse_form(body: bytes, known: Collection[str]) -> Form:
    """Return the known parameters that have a value.

    Unknown parameters are ignored. A parameter with an empty value counts as omitted. Raises InvalidRequest if a known
    parameter is repeated, a field cannot be decoded, or there are more than MAX_FIELDS fields.

    Clauses: RFC 6749 §3.1, §3.2, Appendix B
    """
    form: dict[str, str] = {}
    named: set[str] = set()
    for name, value in read_fields(body):
        if name is None or value is None:
            raise InvalidRequest("form_malformed")
        if name not in known:
            continue
        if name in named:
            raise InvalidRequest("parameter_repeated", name=name)
        named.add(name)
        if value:
            form[name] = value
    return form


def read_fields(encoded: bytes) -> Fields:
    """Return name and value of each field of a form or a query; None stands for a text that cannot be decoded.

    A field without `=` is a name with an empty value. Raises InvalidRequest for more than MAX_FIELDS fields, before any
    field is split off or decoded. The parser of python-multipart takes three times as long as `split` and
    `partition`, but keeps the rules of forms out of our code. Plain text, as in a usual refresh, does without it.
    """
    if encoded.count(b"&") >= MAX_FIELDS:
        raise InvalidRequest("parameters_too_many")
    text = encoded.decode("latin-1")
    if "%" not in text and "+" not in text and text.isascii():
        return [(name, value) for name, _, value in (field.partition("=") for field in text.split("&") if field)]
    from python_multipart.multipart import FormParser  # which the console never needs; it is 4 % of its start

    fields: list[Field] = []
    parser = FormParser(FORM_CONTENT_TYPE, fields.append, None)
    parser.write(encoded)
    parser.finalize()
    return [(decode_field(field.field_name or b""), decode_field(field.value or b"")) for field in fields]


def decode_field(encoded: bytes) -> str | None:
    """Return what `urllib.parse.unquote_plus` returns, or None if the text is malformed.

    Quoted-printable differs in the escape character only, and the standard library decodes it in C. `unquote_plus`
    takes ten times as long for 64 KiB of `%41`.
    """
    if not encoded.isascii() or _MALFORMED_ESCAPE.search(encoded):
        return None
    quoted_printable = encoded.replace(b"=", b"%3D").replace(b"+", b" ").replace(b"%", b"=")
    try:
        return a2b_qp(quoted_printable).decode()
    except UnicodeDecodeError:
        return None


def parse_json(text: bytes, form: Any = Any) -> Any:
    """Return the value, which must have the type `form`. Raises ValueError or RecursionError otherwise, and if a member
    appears twice: msgspec keeps the last one, and another program may use the first.

    Clauses: RFC 7493 §2.3
    """
    value = msgspec.json.decode(text, type=form)
    json.loads(text, object_pairs_hook=_check_members)
    return value


def _check_members(members: Sequence[tuple[str, Any]]) -> None:
    if len({name for name, _ in members}) < len(members):
        raise ValueError("a field appears twice in its object")


def check_query(query: bytes, known: Collection[str]) -> None:
    """Raise InvalidRequest if the query string has a known parameter.

    Parameters in a URI would end up in logs and histories.

    Clauses: RFC 6749 §2.3.1, §3.2
    """
    for name, _ in read_fields(query):
        if name is not None and name in known:
            raise InvalidRequest("parameter_in_query", name=name)


def require(form: Form, *names: str) -> None:
    """Raise InvalidRequest unless the form has all of these parameters.

    Clauses: RFC 6749 §5.2 (a missing required parameter is invalid_request)
    """
    for name in names:
        if name not in form:
            raise InvalidRequest("parameter_missing", name=name)


def check_text(form: Form, *names: str) -> None:
    """Raise InvalidRequest if one of these parameters contains control characters.

    Clauses: RFC 6749 Appendix A.15, A.16 (no line ends or other control characters)
    """
    for name in names:
        if not is_unicode_without_line_ends(form[name]):
            raise InvalidRequest("parameter_malformed", name=name)


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
    except ValueError:
        raise InvalidClient("basic_malformed") from None
    client_id, colon, client_secret = text.partition(":")
    if not (colon and client_id and is_vschar(text)):
        raise InvalidClient("basic_malformed")
    raw = ClientCredentials(client_id, client_secret or None)
    # Most credentials read the same either way.
    found = dict.fromkeys((_decode_credentials(raw), raw)) if "%" in text or "+" in text else (raw,)
    readings = tuple(each for each in found if each and _is_well_formed(each))
    if not readings:
        raise InvalidClient("client_unknown")
    return readings


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
