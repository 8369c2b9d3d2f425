"""The form body of a request: each known parameter at most once, strict about its encoding.

Clauses: RFC 6749 §3.1, §3.2, §4.1.3, §4.3.2, §6, Appendix B, RFC 7009 §2.1, RFC 7662 §2.1, SPEC §1, §4.2,
§4.3
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final
from urllib.parse import unquote_plus

from service.protocol.errors import InvalidRequest
from service.protocol.grammar import is_unicode_without_line_ends

FORM_CONTENT_TYPE: Final = "application/x-www-form-urlencoded"
MAX_FORM_BYTES: Final = 64 * 1024

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

_BROKEN_PERCENT: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")

Form = Mapping[str, str]


def check_content_type(content_type: str | None) -> None:
    """Clauses: RFC 6749 §3.2, Appendix B, SPEC §1"""
    if content_type == FORM_CONTENT_TYPE:
        return
    media_type, *attributes = (part.strip().lower() for part in (content_type or "").split(";"))
    charsets = {attribute.removeprefix("charset=").strip('"') for attribute in attributes if "charset=" in attribute}
    if media_type != FORM_CONTENT_TYPE or not charsets <= {"utf-8", "utf8"}:
        raise InvalidRequest("content_type_differs")


def parse_form(body: bytes, known: Collection[str]) -> Form:
    """The known parameters that have a value; unknown ones are ignored, empty ones count as omitted.

    Clauses: RFC 6749 §3.1, §3.2, Appendix B
    """
    form: dict[str, str] = {}
    named: set[str] = set()
    for name, value in _read_pairs(body):
        if name not in known:
            continue
        if name in named:
            raise InvalidRequest("parameter_repeated", name=name)
        named.add(name)
        if value:
            form[name] = value
    return form


def _read_pairs(body: bytes) -> list[tuple[str, str]]:
    """Most of what is sent holds nothing to decode; a part without `=` is a name without a value."""
    try:
        text = body.decode("ascii")
        pairs = [(name, value) for name, _, value in (pair.partition("=") for pair in text.split("&") if pair)]
        if "%" not in text and "+" not in text:
            return pairs
        if _BROKEN_PERCENT.search(text):
            raise InvalidRequest("form_malformed")
        return [(unquote_plus(name, errors="strict"), unquote_plus(value, errors="strict")) for name, value in pairs]
    except UnicodeError:
        raise InvalidRequest("form_malformed") from None


def check_query(names: Iterable[str], known: Collection[str]) -> None:
    """Parameters in the URI would end up in logs and histories, so they are refused there.

    Clauses: RFC 6749 §2.3.1, §3.2
    """
    for name in names:
        if name in known:
            raise InvalidRequest("parameter_in_query", name=name)


def require(form: Form, *names: str) -> None:
    """Clauses: RFC 6749 §5.2 (a missing required parameter is invalid_request)"""
    for name in names:
        if name not in form:
            raise InvalidRequest("parameter_missing", name=name)


def check_text(form: Form, *names: str) -> None:
    """Clauses: RFC 6749 Appendix A.15, A.16 (no line ends or other control characters)"""
    for name in names:
        if not is_unicode_without_line_ends(form[name]):
            raise InvalidRequest("parameter_malformed", name=name)
