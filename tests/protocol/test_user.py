"""A user's identity: equal for all spellings of one address, and different in each realm."""

import re

import pytest
from hypothesis import given
from hypothesis.strategies import text

from service.protocol.user import User, identify_digest, identify_external_subject, identify_user, normalize_username


@pytest.mark.clause("decided-user-names-one-form")
@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("Alice@Example.COM", "alice@example.com"),
        (" \talice@example.com\u00a0\u200b\ufeff\n", "alice@example.com"),
        ("JU\u0308RGEN@Example.com", "j\u00fcrgen@example.com"),
        ("anna@xn--mnchen-3ya.de.", "anna@m\u00fcnchen.de"),
        ("anna@M\u00dcNCHEN\u3002de", "anna@m\u00fcnchen.de"),
        ("anna@\uff45\uff58ample.com", "anna@example.com"),
        ("\u212a@example.com", "k@example.com"),
        ("\u03a3\u0391\u03a3@example.com", "\u03c3\u03b1\u03c3@example.com"),
        ("anna@xn--a", "anna@xn--a"),
        ("anna\u200b @ex\u00adample.com\ufe0f", "anna@example.com"),
        ("Device 7", "device 7"),
        ("a@R\u00b8", "a@\u0157"),
    ],
    ids=ascii,
)
def test_a_typed_name_has_one_form_in_realm_main(typed: str, name: str) -> None:
    assert identify_user("main", typed) == identify_user("main", name)
    assert identify_user("main", typed).username == name


@pytest.mark.clause("decided-user-names-one-form")
def test_a_name_at_an_identity_provider_stays_as_it_is() -> None:
    assert identify_user("cep", " Alice").username == " Alice"


@pytest.mark.clause("decided-user-names-one-form")
@pytest.mark.parametrize(
    ("one", "other"),
    [("stra\u00dfe", "strasse"), ("a@stra\u00dfe.de", "a@strasse.de"), ("\u0130", "i"), ("\u0131", "i")],
    ids=ascii,
)
def test_different_letters_are_different_users(one: str, other: str) -> None:
    assert identify_user("main", one).digest != identify_user("main", other).digest


@pytest.mark.clause("decided-user-names-one-form")
@given(text(), text(alphabet="aZ09-\u00fc.@"))
def test_the_form_of_a_name_is_stable(name: str, domain: str) -> None:
    for typed in (name, f"{name}@{domain}", f"a@{domain}{name}", f"a@xn--{domain}"):
        once = normalize_username(typed)
        assert normalize_username(once) == once


@given(text())
def test_a_digest_leads_to_its_shard(name: str) -> None:
    identity = identify_user("cep", name)

    found = identify_digest(identity.digest)

    assert (found.digest, found.shard) == (identity.digest, identity.shard)


@pytest.mark.parametrize(
    "digest", ["", "A" * 21, "A" * 23, "A" * 21 + "B", "A" * 20 + "+A", "A" * 22 + "\n", "\uff21" * 21 + "A"]
)
def test_other_text_than_a_digest_is_no_external_subject(digest: str) -> None:
    assert identify_external_subject(f"~{digest}") is None


def test_subject_of_an_external_user_leads_to_the_user() -> None:
    user = User(realm="cep", username="zoe")

    assert user.subject == f"~{user.identity.digest}"
    assert identify_external_subject(user.subject) == identify_digest(user.identity.digest)


@pytest.mark.clause("decided-same-name-in-two-realms")
def test_one_name_in_two_realms_is_two_users() -> None:
    main, cep = identify_user("main", "alice@example.com"), identify_user("cep", "alice@example.com")

    assert main.digest != cep.digest


def test_a_digest_is_opaque_and_a_shard_is_three_hex_digits() -> None:
    identity = identify_user("main", "alice@example.com")

    assert re.fullmatch(r"[A-Za-z0-9_-]{22}", identity.digest)
    assert re.fullmatch(r"[0-9a-f]{3}", identity.shard)
    assert identify_user("main", "alice@example.com") == identity
    assert User(realm="main", username="Alice@example.com").identity == identity


@pytest.mark.clause("decided-i4-one-slot")
def test_users_are_spread_over_the_shards() -> None:
    shards = {identify_user("main", f"user{number}@example.com").shard for number in range(2000)}

    assert len(shards) > 1000
