"""Every refusal has its word and its sentence, and every sentence is a refusal's."""

import ast
import re
from collections.abc import Iterator

import pytest

from service.protocol import errors, parameters
from service.protocol.authorization import AUTHORIZATION_PARAMETERS
from service.protocol.errors import DESCRIPTIONS, OAuthError
from service.protocol.verdicts import CODE_REFUSALS, REFRESH_REFUSALS
from tests.support.servers import CHECKOUT

CODES_OF_THE_RFCS = {
    # RFC 6749 §5.2
    "invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type",
    "invalid_scope",
    # RFC 6749 §4.1.2.1
    "access_denied", "unsupported_response_type", "server_error", "temporarily_unavailable",
    # RFC 6750 §3.1
    "invalid_token", "insufficient_scope",
}  # fmt: skip

# RFC 6749 §5.2: %x20-21 / %x23-5B / %x5D-7E
ALLOWED = re.compile(r"[\x20-\x21\x23-\x5B\x5D-\x7E]+")

ERRORS = {
    name: value for name, value in vars(errors).items() if isinstance(value, type) and issubclass(value, OAuthError)
}


def used_reasons() -> Iterator[str]:
    """The first argument of every error that the service makes."""
    for path in (CHECKOUT / "service").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] in ERRORS:
                yield from reasons_of(node.args[0])
    yield from (refusal.reason for refusal in REFRESH_REFUSALS.values())
    yield from CODE_REFUSALS.values()


def reasons_of(argument: ast.expr) -> Iterator[str]:
    """Yield a literal. Other reasons are in `verdicts.py`, which are read above, or in `Query`."""
    if isinstance(argument, ast.Constant):
        assert isinstance(argument.value, str)
        yield argument.value
    else:
        assert ast.unparse(argument) in ("CODE_REFUSALS[verdict]", "reason", "query.mistakes[name]")


def test_reasons_and_descriptions_match() -> None:
    assert set(DESCRIPTIONS) == set(used_reasons())


@pytest.mark.clause("6749-5.2-description-characters", "6749-4.1.2.1-error-characters")
def test_descriptions_keep_to_the_characters_of_the_framework() -> None:
    """A description may contain the name of a parameter that we know, and never a value from the request."""
    names = parameters.TOKEN_PARAMETERS | parameters.REVOCATION_PARAMETERS | AUTHORIZATION_PARAMETERS
    rendered = [text.format(name=name) for text in DESCRIPTIONS.values() for name in names]

    assert not [text for text in rendered if not ALLOWED.fullmatch(text)]


@pytest.mark.clause("spec-7.2-no-own-codes", "6749-5.2-error-characters")
def test_errors_use_only_codes_of_the_rfcs() -> None:
    codes = {error.error for name, error in ERRORS.items() if name not in ("OAuthError", "BearerError")}

    assert codes <= CODES_OF_THE_RFCS
    assert all(ALLOWED.fullmatch(code) for code in codes)


@pytest.mark.clause("decided-unknown-client", "decided-unknown-user-costs-the-same", "decided-disabled-user")
@pytest.mark.parametrize(
    "reasons",
    [
        ("client_unknown", "client_secret_wrong", "client_secret_missing", "client_secret_unexpected"),
        ("user_unknown", "user_disabled", "password_wrong"),
        ("code_unknown", "code_of_another_client", "code_revoked", "code_repeated"),
        ("refresh_token_malformed", "refresh_token_unknown", "refresh_token_of_another_client"),
    ],
)
def test_indistinguishable_reasons_share_a_description(reasons: tuple[str, ...]) -> None:
    assert len({DESCRIPTIONS[reason] for reason in reasons}) == 1
