"""The character sets of the standards, compared with the first and last character of each range."""

import re

import pytest

from service.protocol.grammar import B64TOKEN, CODE_VERIFIER, SCOPE_TOKEN, is_unicode_without_line_ends, is_vschar


@pytest.mark.clause("6749-a.4-scope-characters", "6749-3.3-grammar")
def test_scope_token_follows_the_grammar_of_the_rfc() -> None:
    allowed = {chr(number) for number in range(0x110) if SCOPE_TOKEN.fullmatch(chr(number))}

    assert allowed == {chr(number) for number in range(0x21, 0x7F)} - {'"', "\\"}


@pytest.mark.clause("6749-a.1-client-id-characters", "6749-a.2-client-secret-characters")
def test_a_client_id_or_secret_is_printable_ascii() -> None:
    allowed = {chr(number) for number in range(0x110) if is_vschar(chr(number))}

    assert allowed == {chr(number) for number in range(0x20, 0x7F)}
    assert not is_vschar("")
    assert not is_vschar("secret\n")


@pytest.mark.clause("6749-a.15-username-characters", "6749-a.16-password-characters")
def test_credentials_may_hold_any_but_control_characters() -> None:
    allowed = {number for number in range(0x110000) if is_unicode_without_line_ends(chr(number))}
    surrogates, nobodies = set(range(0xD800, 0xE000)), {0xFFFE, 0xFFFF}

    assert allowed == {0x09, *range(0x20, 0x7F), *range(0x80, 0x110000)} - surrogates - nobodies
    assert not is_unicode_without_line_ends("alice\n")


@pytest.mark.clause("6750-2.1-syntax", "7636-4.1-verifier-form")
@pytest.mark.parametrize(
    ("form", "text", "fits"),
    [
        pytest.param(B64TOKEN, "Az09-._~+/==", True, id="b64token: every kind of character"),
        pytest.param(B64TOKEN, "a=b", False, id="b64token: padding stands at the end"),
        pytest.param(B64TOKEN, "=", False, id="b64token: padding only"),
        pytest.param(B64TOKEN, "a\n", False, id="b64token: a line end"),
        pytest.param(CODE_VERIFIER, "a" * 42, False, id="code-verifier: 42 characters"),
        pytest.param(CODE_VERIFIER, "-._~" * 32, True, id="code-verifier: 128 characters"),
        pytest.param(CODE_VERIFIER, "a" * 129, False, id="code-verifier: 129 characters"),
    ],
)
def test_a_form_takes_the_whole_text(form: re.Pattern[str], text: str, fits: bool) -> None:
    assert (form.fullmatch(text) is not None) is fits
