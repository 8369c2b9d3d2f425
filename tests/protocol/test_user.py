"""A user's identity: equal for all spellings of one address, and different in each realm."""

from __future__ import annotations

import re

import pytest

from service.protocol.user import User, identify_user


@pytest.mark.clause("decided-user-names-ascii-folded")
def test_ascii_letters_are_folded_in_realm_main_only() -> None:
    assert identify_user("main", "Alice@Example.COM") == identify_user("main", "alice@example.com")
    assert identify_user("cep", "Alice").subject != identify_user("cep", "alice").subject


@pytest.mark.clause("decided-user-names-ascii-folded")
@pytest.mark.parametrize(
    ("one", "other"),
    [("stra\u00dfe", "strasse"), ("\u0130", "i"), ("\u212a", "k"), ("\u00c9", "\u00e9"), ("e\u0301", "\u00e9")],
    ids=ascii,
)
def test_no_other_letters_meet_in_one_account(one: str, other: str) -> None:
    assert identify_user("main", one).subject != identify_user("main", other).subject


@pytest.mark.clause("decided-same-name-in-two-realms")
def test_one_name_in_two_realms_is_two_users() -> None:
    main, cep = identify_user("main", "alice@example.com"), identify_user("cep", "alice@example.com")

    assert main.subject != cep.subject


def test_a_subject_is_opaque_and_a_shard_is_three_hex_digits() -> None:
    identity = identify_user("main", "alice@example.com")

    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", identity.subject)
    assert re.fullmatch(r"[0-9a-f]{3}", identity.shard)
    assert identify_user("main", "alice@example.com") == identity
    assert User(realm="main", username="Alice@example.com").identity == identity


@pytest.mark.clause("decided-i4-one-slot")
def test_users_are_spread_over_the_shards() -> None:
    shards = {identify_user("main", f"user{number}@example.com").shard for number in range(2000)}

    assert len(shards) > 1000
