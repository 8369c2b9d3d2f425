"""Errors of HTTP itself, which no RFC of OAuth names. They are sent in the form of an OAuth error.

Clauses: SPEC §7
"""

from __future__ import annotations

from .errors import InvalidRequest


class RequestTooSlow(InvalidRequest):
    """The connection is closed with it: the rest may come at any time, and would be taken for another request."""

    status = 408


class RequestTooLarge(InvalidRequest):
    status = 413


class HeadTooLarge(InvalidRequest):
    status = 431


class UnknownPath(InvalidRequest):
    status = 404


class MethodNotAllowed(InvalidRequest):
    status = 405
