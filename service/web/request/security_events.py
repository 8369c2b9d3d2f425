"""The security events of requests: a helper that adds the address, and the events of failed logins and clients.

Events of refused or throttled logins and client authentications are recorded here. All others are recorded where they
are caused.

Clauses: SPEC §6, RFC 6749 §10.10
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from starlette.requests import Request

from service.observability.audit import log_event, name_user, stream_event
from service.protocol import errors
from service.web.request.client_address import get_peer
from service.web.request.state import CLIENT_ID, EVENT

_THROTTLED: Final = ("login_throttled", "provider_throttled")
_REFUSED_FOR_NOW: Final = ("provider_throttled", "seed_not_loaded")
"""Reasons for 503 that refuse a login. Other reasons are outages."""


def record_request_event(request: Request, event: str, **fields: Any) -> None:
    """Record an event with the address that the request comes from.

    The line of the request in the log carries the event. If the request has caused another event before, that one gets
    a line of its own now.
    """
    fields["address"] = get_peer(request.scope)
    known = stream_event(event, fields)
    if EVENT in request.scope:
        log_event(*request.scope[EVENT])
    request.scope[EVENT] = event, known


def record_user_event(request: Request, event: str, user: errors.NamedUser, **fields: Any) -> None:
    record_request_event(request, event, **name_user(user), **fields)


@contextmanager
def recording_login(
    request: Request, *, realm: str, client_id: str, user: errors.NamedUser | None = None
) -> Iterator[None]:
    """Record a security event if the login in this block is refused or throttled.

    `user` has logged in already. A typed name is never recorded, as it may be a password: the refusal has the user
    whose record it found.
    """
    try:
        yield
    except errors.OAuthError as error:
        reason, found = error.reason, error.user or user
        if reason in _REFUSED_FOR_NOW or not isinstance(error, errors.TemporarilyUnavailable):
            event = "login_throttled" if reason in _THROTTLED else "login_failed"
            named = name_user(found) if found else {"realm": realm}
            record_request_event(request, event, client_id=client_id, reason=reason, **named)
        raise


def record_refusal(request: Request, error: errors.OAuthError) -> None:
    """Record a failed or throttled client authentication, at any endpoint."""
    client_id = request.scope.get(CLIENT_ID, "")
    if isinstance(error, errors.InvalidClient):
        record_request_event(request, "client_authentication_failed", client_id=client_id, reason=error.reason)
    elif isinstance(error, errors.ClientThrottled):
        record_request_event(request, "client_throttled", client_id=client_id)
