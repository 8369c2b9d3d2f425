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

from service.observability.audit import log_event, stream_event
from service.protocol import errors
from service.protocol.scope import MAIN_REALM
from service.protocol.user import normalize_username
from service.web.request.client_address import get_peer
from service.web.request.state import CLIENT_ID, EVENT

_OF_USERS: Final = ("password_wrong", "user_disabled", "user_changed")
"""Reasons which prove that the typed user name exists in realm main; only then is the name recorded."""


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


@contextmanager
def recording_login(request: Request, *, realm: str, client_id: str, username: str = "") -> Iterator[None]:
    """Record a security event if the login in this block fails or is throttled.

    The typed user name is recorded only if it is known to be a user name: any other text may be a password.
    """
    try:
        yield
    except (errors.InvalidGrant, errors.AccessDenied) as error:
        name = normalize_username(username) if realm == MAIN_REALM and error.reason in _OF_USERS else ""
        reason = error.reason
        record_request_event(request, "login_failed", client_id=client_id, username=name, realm=realm, reason=reason)
        raise
    except (errors.LoginThrottled, errors.TemporarilyUnavailable) as error:
        if error.reason in ("login_throttled", "provider_spared"):
            record_request_event(request, "login_throttled", client_id=client_id, realm=realm, reason=error.reason)
        raise


def record_refusal(request: Request, error: errors.OAuthError) -> None:
    """Record a failed or throttled client authentication, at any endpoint."""
    client_id = request.scope.get(CLIENT_ID, "")
    if isinstance(error, errors.InvalidClient):
        record_request_event(request, "client_authentication_failed", client_id=client_id, reason=error.reason)
    elif isinstance(error, errors.ClientThrottled):
        record_request_event(request, "client_throttled", client_id=client_id)
