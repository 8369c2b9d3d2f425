"""Parsing of the scope that a gateway requires, from the query of a request to `verify`.

Clauses: RFC 6749 §3.1, Appendix B
"""

from __future__ import annotations

from .errors import InsufficientScope, InvalidRequest
from .parameters import parse_form


def parse_needed_scope(query: bytes) -> str:
    """Return the parameter `scope` of a query string, or an empty text if no scope is required.

    Raises InsufficientScope if any part of the query cannot be parsed.

    Clauses: RFC 6749 §3.1, Appendix B
    """
    if not query:
        return ""
    try:
        return parse_form(query, {"scope"}).get("scope", "")
    except InvalidRequest as error:
        if error.reason == "parameters_too_many":
            raise InsufficientScope("parameters_too_many") from None
        raise InsufficientScope("needed_scope_malformed") from None
