"""Errors of HTTP itself, which no OAuth RFC defines. They are sent in the form of an OAuth error.

Clauses: SPEC §7
"""

from __future__ import annotations

from .errors import InvalidRequest


class RequestTooSlow(InvalidRequest):
    """A request that did not arrive in time.

    The connection is closed after the response. The rest of the request may still arrive, and would be taken for
    another request.
    """

    status = 408


class RequestTooLarge(InvalidRequest):
    status = 413


class HeadTooLarge(InvalidRequest):
    status = 431


class UnknownPath(InvalidRequest):
    status = 404


class MethodNotAllowed(InvalidRequest):
    status = 405
