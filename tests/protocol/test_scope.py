"""Scopes as values: parsing, canonical spelling and comparison."""

import pytest

from service.protocol.errors import InvalidScope
from service.protocol.scope import REALMS, ROLES, parse_scope


@pytest.mark.clause("spec-2.2-realms", "spec-2.2-roles", "spec-2.2-items")
def test_the_vocabulary_is_that_of_the_specification() -> None:
    assert REALMS == ("main", "cep")
    assert ROLES == ("enduser", "organisation", "admin", "partner", "device", "orderer")
    for item in [*(f"realm:{realm}" for realm in REALMS), *(f"role:{role}" for role in ROLES)]:
        assert str(parse_scope(item)) == item


@pytest.mark.clause("6749-3.3-order-free")
@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("realm:main role:enduser", "realm:main role:enduser"),
        ("role:enduser realm:main", "realm:main role:enduser"),
        ("role:orderer role:enduser realm:cep realm:main", "realm:main realm:cep role:enduser role:orderer"),
    ],
)
def test_scope_has_one_spelling_for_any_order(text: str, canonical: str) -> None:
    assert str(parse_scope(text)) == canonical
    assert parse_scope(text) == parse_scope(canonical)


@pytest.mark.clause("6749-3.3-grammar", "6749-a.4-scope-characters", "6749-3.3-case-sensitive")
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        pytest.param("", "scope_malformed", id="nothing"),
        pytest.param(" ", "scope_malformed", id="a space"),
        pytest.param("realm:main role:enduser ", "scope_malformed", id="a space behind"),
        pytest.param("realm:main role:enduser\n", "scope_malformed", id="a line end"),
        pytest.param("realm:mäin", "scope_malformed", id="not ASCII"),
        pytest.param("realm:main\x7f", "scope_malformed", id="a control character"),
        pytest.param("realm:Main", "scope_item_unknown", id="a capital"),
        pytest.param("openid", "scope_item_unknown", id="another kind of item"),
        pytest.param("realm:", "scope_item_unknown", id="a kind without a name"),
        pytest.param("realm:main realm:main", "scope_item_repeated", id="an item twice"),
    ],
)
def test_malformed_scope_is_refused_with_its_reason(text: str, reason: str) -> None:
    with pytest.raises(InvalidScope) as caught:
        parse_scope(text)

    assert caught.value.reason == reason


@pytest.mark.parametrize(
    "ninth",
    ["realm:main", "openid", '"realm:main"', "", "realm:main " * 5_000, " " * 60_000],
    ids=["repeated", "unknown", "malformed", "a space behind", "thousands", "60 KB of spaces"],
)
def test_scope_with_too_many_items_is_malformed(ninth: str) -> None:
    every = [*(f"realm:{realm}" for realm in REALMS), *(f"role:{role}" for role in ROLES)]
    assert len(parse_scope(" ".join(every)).items) == len(every) == 8
    with pytest.raises(InvalidScope):
        parse_scope(" ".join([*every, ninth]))
