"""The headers, the query and the body of a request, read within limits.

Clauses: RFC 6749 §3.2, Appendix B, SPEC §1
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from starlette.requests import ClientDisconnect, Request
from starlette.types import Scope

from service.protocol.authorization import parse_query
from service.protocol.errors import InvalidRequest
from service.protocol.negotiation import parse_preferences
from service.protocol.parameters import (
    CLIENT_PARAMETERS,
    FORM_CONTENT_TYPE,
    JSON_CONTENT_TYPE,
    MAX_FORM_BYTES,
    Form,
    check_content_type,
    check_query,
    parse_form,
    parse_json,
)
from service.web.request.state import BODY_IS_COMPLETE, HEADERS

BODY_SECONDS: Final = 10.0
"""The time limit for the body of a request, which usually has a few hundred bytes."""


def get_headers(scope: Scope) -> Mapping[bytes, bytes]:
    """Return the headers by their names in lower case, with the last value of a repeated header.

    Most looks at a header find that it is not there, and need not search the list then.
    """
    if HEADERS not in scope:
        scope[HEADERS] = dict(scope["headers"])
    headers: Mapping[bytes, bytes] = scope[HEADERS]
    return headers


def list_header_values(scope: Scope, name: bytes) -> list[str]:
    """Return all values of the header `name`, which is in lower case."""
    if name not in get_headers(scope):
        return []
    return [value.decode("latin-1") for found, value in scope["headers"] if found == name]


async def read_form(request: Request, known: Collection[str]) -> Form:
    return parse_form(await _read_body(request, FORM_CONTENT_TYPE, known), known)


async def read_json(request: Request) -> Any:
    """Return the value of a JSON body. Its client authenticates in a header only."""
    body = await _read_body(request, JSON_CONTENT_TYPE, CLIENT_PARAMETERS)
    try:
        return parse_json(body)
    except (ValueError, RecursionError):
        raise InvalidRequest("json_malformed") from None


def list_preferred(request: Request, header: bytes) -> Sequence[str]:
    """Return what `header`, which is Accept or Accept-Language in lower case, prefers, the best first."""
    return parse_preferences(",".join(list_header_values(request.scope, header)))


def get_from_query(request: Request, name: str) -> str:
    """Return the value of a parameter of the query, or an empty text if there is none.

    Starlette's `request.query_params` would split and decode a query of any length.
    """
    return parse_query(request.scope["query_string"], {name}).values.get(name, "")


async def _read_body(request: Request, content_type: str, known: Collection[str]) -> bytes:
    """Return the body, read without the generator of `request.stream`, which costs time at every request.

    Raises InvalidRequest if the body has another content type or an encoding, or the query a `known` parameter.
    """
    headers = get_headers(request.scope)
    check_content_type(headers.get(b"content-type", b"").decode("latin-1"), content_type)
    if headers.get(b"content-encoding", b"identity").lower() != b"identity":
        raise InvalidRequest("content_encoding_unknown", status=415)
    if request.scope["query_string"]:
        check_query(request.scope["query_string"], known)
    announced = headers.get(b"content-length", b"0")
    if announced.isdigit() and float(announced) > MAX_FORM_BYTES:  # int raises for thousands of digits
        raise InvalidRequest("form_too_large", status=413)
    reading = _receive_body(request)
    try:
        return await (reading if request.scope.get(BODY_IS_COMPLETE) else asyncio.wait_for(reading, BODY_SECONDS))
    except TimeoutError:
        raise InvalidRequest("form_too_slow", status=408) from None


async def _receive_body(request: Request) -> bytes:
    body, is_whole = b"", False
    while not is_whole:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        if len(body) > MAX_FORM_BYTES:
            raise InvalidRequest("form_too_large", status=413)
        is_whole = not message.get("more_body", False)
    return body
