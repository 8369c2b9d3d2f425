"""Refusals that a caller must not tell apart have one description."""

from __future__ import annotations

import pytest

from service.protocol.error_descriptions import DESCRIPTIONS


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
