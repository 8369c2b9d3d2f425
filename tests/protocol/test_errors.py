"""The error table: each exception has one standard code, one status, and a description for the response."""

from __future__ import annotations

import re

import pytest

from service.protocol import errors, http_errors
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


@pytest.mark.clause("spec-7.1-standard-format", "spec-7.2-no-own-codes", "6749-5.2-error-characters")
def test_every_code_is_one_of_the_standards() -> None:
    assert {each.error for each in find_exceptions()} == STANDARD_CODES


@pytest.mark.clause("spec-7.7-mapping", "decided-error-statuses", "6749-5.2-status-400", "spec-7.6-statuses")
@pytest.mark.parametrize(
    ("name", "status", "error"),
    [
        ("InvalidRequest", 400, "invalid_request"),
        ("RequestTooLarge", 413, "invalid_request"),
        ("UnknownPath", 404, "invalid_request"),
        ("MethodNotAllowed", 405, "invalid_request"),
        ("MalformedBearer", 400, "invalid_request"),
        ("InvalidClient", 401, "invalid_client"),
        ("ClientThrottled", 429, "invalid_client"),
        ("InvalidGrant", 400, "invalid_grant"),
        ("LoginThrottled", 429, "invalid_grant"),
        ("UnauthorizedClient", 400, "unauthorized_client"),
        ("IntrospectionRefused", 403, "unauthorized_client"),
        ("UnsupportedGrantType", 400, "unsupported_grant_type"),
        ("InvalidScope", 400, "invalid_scope"),
        ("InvalidToken", 401, "invalid_token"),
        ("InsufficientScope", 403, "insufficient_scope"),
        ("AccessDenied", 400, "access_denied"),
        ("UnsupportedResponseType", 400, "unsupported_response_type"),
        ("TemporarilyUnavailable", 503, "temporarily_unavailable"),
        ("ServerError", 500, "server_error"),
    ],
)
def test_each_exception_has_one_status_and_one_code(name: str, status: int, error: str) -> None:
    exception = vars(errors).get(name) or vars(http_errors)[name]

    assert (exception.status, exception.error) == (status, error)


@pytest.mark.clause("6749-5.2-description-characters", "decided-error-description", "6750-3-characters")
def test_every_description_is_a_sentence_in_allowed_characters() -> None:
    for reason, description in DESCRIPTIONS.items():
        assert NQSCHAR.fullmatch(description), reason
        assert description.endswith("."), reason


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


def test_an_error_without_a_sentence_cannot_be_raised() -> None:
    with pytest.raises(KeyError):
        errors.InvalidGrant("a reason that nobody described")


@pytest.mark.clause("6749-5.2-basic-challenge")
def test_only_a_failed_client_and_a_failed_bearer_are_challenged() -> None:
    challenged = {each.__name__ for each in find_exceptions() if each("unforeseen").challenge is not None}

    assert challenged == {"InvalidClient", "InvalidToken", "InsufficientScope", "MalformedBearer"}
