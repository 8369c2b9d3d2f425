"""The error table: each exception has one standard code, one status, and a description for the response."""

from __future__ import annotations

import re

import pytest

from service.protocol import errors
from service.protocol.error_descriptions import DESCRIPTIONS
from service.protocol.errors import OAuthError

NQSCHAR = re.compile(r"[\x20\x21\x23-\x5B\x5D-\x7E]+")

# RFC 6749 §4.1.2.1, §5.2 and RFC 6750 §3.1
STANDARD_CODES = {
    "invalid_request",
    "invalid_client",
    "invalid_grant",
    "unauthorized_client",
    "unsupported_grant_type",
    "invalid_scope",
    "invalid_token",
    "insufficient_scope",
    "access_denied",
    "unsupported_response_type",
    "server_error",
    "temporarily_unavailable",
}


def find_exceptions() -> list[type[OAuthError]]:
    found = [each for each in vars(errors).values() if isinstance(each, type) and issubclass(each, OAuthError)]
    return [each for each in found if hasattr(each, "error")]


@pytest.mark.clause("decided-unknown-client", "decided-unknown-user-costs-the-same", "decided-disabled-user")
@pytest.mark.parametrize(
    "reasons",
    [
        ("client_unknown", "client_secret_wrong", "client_secret_missing", "client_secret_unexpected"),
        ("user_unknown", "user_disabled", "user_changed", "password_wrong"),
        ("code_unknown", "code_of_another_client", "code_revoked", "code_repeated"),
        ("refresh_token_malformed", "refresh_token_unknown", "refresh_token_of_another_client"),
    ],
)
def test_what_a_caller_must_not_tell_apart_has_one_sentence(reasons: tuple[str, ...]) -> None:
    assert len({DESCRIPTIONS[reason] for reason in reasons}) == 1
