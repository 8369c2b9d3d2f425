"""Proof Key for Code Exchange as functions of two texts."""

from __future__ import annotations

import pytest

from service.protocol.authorization_code import make_code_challenge, matches_code_challenge

VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.clause("7636-4.2-s256")
def test_the_example_of_the_standard_comes_out_right() -> None:
    assert make_code_challenge(VERIFIER) == CHALLENGE


@pytest.mark.clause("7636-4.1-verifier-form", "7636-4.6-equal", "7636-4.6-not-equal")
@pytest.mark.parametrize(
    ("verifier", "is_right"),
    [
        pytest.param("a" * 43, True, id="43 characters"),
        pytest.param("a" * 128, True, id="128 characters"),
        pytest.param("AZaz09-._~" * 5, True, id="every kind of character"),
        pytest.param("a" * 42, False, id="42 characters"),
        pytest.param("a" * 129, False, id="129 characters"),
        pytest.param("a" * 43 + "+", False, id="a plus"),
        pytest.param("a" * 43 + "=", False, id="padding"),
        pytest.param("a" * 43 + " ", False, id="a space"),
        pytest.param("a" * 43 + "\n", False, id="a line end"),
        pytest.param("é" * 43, False, id="not ASCII"),
        pytest.param("", False, id="nothing"),
    ],
)
def test_only_a_verifier_of_the_right_form_passes_even_where_its_digest_fits(verifier: str, is_right: bool) -> None:
    assert matches_code_challenge(make_code_challenge(verifier), verifier) is is_right
