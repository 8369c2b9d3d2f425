"""The security events of failed and throttled logins and client authentications.

All other events are recorded where they are caused.

Clauses: SPEC §6, RFC 6749 §10.10
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from starlette.requests import Request

from service.observability.audit import record_event
from service.protocol.errors import (
    AccessDenied,
    ClientThrottled,
    InvalidClient,
    InvalidGrant,
    LoginThrottled,
    OAuthError,
    TemporarilyUnavailable,
)
from service.protocol.scope import MAIN_REALM
from service.web.request.client_address import get_address
from service.web.request.state import CLIENT_ID

_OF_USERS: Final = ("password_wrong", "user_disabled", "user_changed")
"""Reasons which prove that the typed user name exists in realm main; only then is the name recorded."""


@contextmanager
def recording_login(request: Request, *, realm: str, client_id: str, username: str = "") -> Iterator[None]:
    """Record a security event if the login in this block fails or is throttled.

    The typed user name is recorded only if it is known to be a user name: any other text may be a password.
    """
    try:
        yield
    except (InvalidGrant, AccessDenied) as error:
        is_user = realm == MAIN_REALM and error.reason in _OF_USERS
        record_event(
            "login_failed",
            client_id=client_id,
            username=username if is_user else "",
            realm=realm,
            reason=error.reason,
            address=get_address(request),
        )
        raise
    except (LoginThrottled, TemporarilyUnavailable) as error:
        if error.reason in ("login_throttled", "organisation_spared"):
            address = get_address(request)
            record_event("login_throttled", client_id=client_id, realm=realm, reason=error.reason, address=address)
        raise


def record_refusal(request: Request, error: OAuthError) -> None:
    """Record a failed or throttled client authentication, at any endpoint."""
    client_id, address = CLIENT_ID.get(request.scope, ""), get_address(request)
    if isinstance(error, InvalidClient):
        record_event("client_authentication_failed", client_id=client_id, reason=error.reason, address=address)
    elif isinstance(error, ClientThrottled):
        record_event("client_throttled", client_id=client_id, address=address)
