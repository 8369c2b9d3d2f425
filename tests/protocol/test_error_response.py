"""The response of an OAuth error."""

from __future__ import annotations

import json

import pytest

from service.protocol.error_response import render_refusal
from service.protocol.errors import (
    BearerMissing,
    InsufficientScope,
    InvalidClient,
    InvalidGrant,
    InvalidToken,
    MalformedBearer,
    OAuthError,
    TemporarilyUnavailable,
)

NO_STORE = {"Cache-Control": "no-store, no-cache", "Pragma": "no-cache"}


@pytest.mark.clause("6750-3.1-no-error-without-credentials", "6750-3-challenge")
def test_a_missing_bearer_is_a_challenge_and_nothing_more() -> None:
    refusal = render_refusal(BearerMissing())

    assert (refusal.status, refusal.body) == (401, b"")
    assert refusal.headers == NO_STORE | {
        "Content-Type": "application/json",
        "WWW-Authenticate": 'Bearer realm="token-service"',
    }


@pytest.mark.clause("6750-3.1-invalid-request-400", "6750-3.1-invalid-token-401", "6750-3.1-insufficient-scope-403")
@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (MalformedBearer("bearer_repeated"), 400, "invalid_request"),
        (InvalidToken("access_token_unknown"), 401, "invalid_token"),
        (InsufficientScope("needed_scope_missing", scope="role:admin"), 403, "insufficient_scope"),
        (InvalidClient("client_missing"), 401, "invalid_client"),
    ],
)
def test_an_error_stands_in_the_body_beside_its_challenge(error: OAuthError, status: int, code: str) -> None:
    refusal = render_refusal(error)

    assert refusal.status == status
    assert json.loads(refusal.body) == {"error": code, "error_description": error.description}
    assert refusal.headers["WWW-Authenticate"] == error.challenge
    assert refusal.headers.items() >= NO_STORE.items()


def test_a_challenge_and_a_time_to_wait_are_sent_only_where_there_is_one() -> None:
    wrong = render_refusal(InvalidGrant("password_wrong"))
    outage = render_refusal(TemporarilyUnavailable("store_unavailable", retry_after_seconds=1))

    assert wrong.headers == NO_STORE | {"Content-Type": "application/json"}
    assert (outage.status, outage.headers["Retry-After"]) == (503, "1")
    assert "WWW-Authenticate" not in outage.headers
