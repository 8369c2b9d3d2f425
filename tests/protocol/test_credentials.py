"""Tokens and keys: made, signed, and recognised in one spelling only."""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Callable

import pytest

from service.credentials import (
    Keyring,
    RandomToken,
    RefreshToken,
    digest_token,
    make_access_token,
    make_authorization_code,
    make_first_refresh_token,
    parse_access_token,
    parse_authorization_code,
)

OLD, NEW = b"an old key of 32 bytes or more for tests", b"a new key of 32 bytes or more for tests!"
KEYRING = Keyring([NEW])
TOKEN = RefreshToken("0a3", bytes(range(16)), 7)


@pytest.mark.clause("6749-10.10-unguessable", "6749-10.10-unguessable-by-far", "6819-5.1.4.2.2-entropy")
@pytest.mark.clause("decided-token-alphabet", "6749-a.12-token-characters", "6750-5.2-unguessable")
@pytest.mark.parametrize(("make", "prefix"), [(make_access_token, "tsat1_"), (make_authorization_code, "tsac1_")])
def test_a_random_token_carries_264_bits_that_never_come_again(make: Callable[[str], RandomToken], prefix: str) -> None:
    tokens = [make("0a3") for _ in range(500)]

    for token in tokens:
        assert re.fullmatch(rf"{prefix}0a3[A-Za-z0-9_-]{{44}}", token.text)
        assert len(urlsafe_b64decode(token.text[9:])) * 8 == 264
        assert token.digest == digest_token(token.text)
    for position in range(9, 53):
        assert len({token.text[position] for token in tokens}) > 32
    assert len({token.text for token in tokens}) == 500


@pytest.mark.clause("decided-token-canonical-spelling")
@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda text: text + "=", id="padding"),
        pytest.param(lambda text: text + "A", id="a character more"),
        pytest.param(lambda text: text[:-1], id="a character less"),
        pytest.param(lambda text: text + "\n", id="a line end"),
        pytest.param(lambda text: " " + text, id="a space"),
        pytest.param(lambda text: text.replace("_", "-", 1), id="another prefix"),
        pytest.param(lambda text: text[:6] + "0A3" + text[9:], id="the shard in capitals"),
        pytest.param(lambda text: text[:6] + "0g3" + text[9:], id="a shard that is not hexadecimal"),
        pytest.param(lambda text: text[:6] + "٣٣٣" + text[9:], id="a shard in other digits"),
        pytest.param(lambda text: text[:-1] + "+", id="the other Base64"),
        pytest.param(lambda text: text[:-1] + "é", id="not ASCII"),
        pytest.param(lambda text: "", id="nothing"),
    ],
)
def test_only_the_canonical_spelling_parses(change: Callable[[str], str]) -> None:
    access_token, code = make_access_token("0a3"), make_authorization_code("0a3")
    refresh_token = KEYRING.sign_refresh_token(TOKEN)

    assert parse_access_token(access_token.text) == access_token
    assert parse_authorization_code(code.text) == code
    assert KEYRING.parse_refresh_token(refresh_token) == TOKEN
    assert parse_access_token(change(access_token.text)) is None
    assert parse_authorization_code(change(code.text)) is None
    assert KEYRING.parse_refresh_token(change(refresh_token)) is None


@pytest.mark.clause("decided-refresh-token-is-no-bearer")
def test_one_kind_of_token_is_never_taken_for_another() -> None:
    access_token, code = make_access_token("0a3").text, make_authorization_code("0a3").text
    refresh_token = KEYRING.sign_refresh_token(TOKEN)

    assert [parse_access_token(text) for text in (code, refresh_token)] == [None, None]
    assert [parse_authorization_code(text) for text in (access_token, refresh_token)] == [None, None]
    assert [KEYRING.parse_refresh_token(text) for text in (access_token, code)] == [None, None]


@pytest.mark.clause("6749-10.4-unforgeable", "6819-5.1.5.9-refresh-token-authenticated", "6750-5.2-integrity")
def test_every_character_of_a_refresh_token_is_under_its_mac() -> None:
    text = KEYRING.sign_refresh_token(TOKEN)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

    for position, character in enumerate(text):
        for other in set(alphabet) - {character}:
            assert KEYRING.parse_refresh_token(text[:position] + other + text[position + 1 :]) is None


@pytest.mark.clause("6749-10.4-unforgeable", "6749-10.10-unguessable", "6819-5.1.4.2.2-entropy")
def test_no_generation_can_be_told_from_another_without_the_key() -> None:
    first, second = (KEYRING.sign_refresh_token(TOKEN._replace(generation=number)) for number in (1, 2))
    first_mac, second_mac = (urlsafe_b64decode(text[9:])[-16:] for text in (first, second))

    assert KEYRING.sign_refresh_token(TOKEN._replace(generation=1)) == first
    assert first_mac != second_mac
    assert Keyring([OLD]).sign_refresh_token(TOKEN._replace(generation=1)) != first
    assert len(first_mac) * 8 == 128


@pytest.mark.parametrize("generation", [1, 255, 256, 65_536, 2**32 - 1])
def test_a_generation_comes_back_as_it_was_signed(generation: int) -> None:
    token = TOKEN._replace(generation=generation)

    assert KEYRING.parse_refresh_token(KEYRING.sign_refresh_token(token)) == token


@pytest.mark.clause("6749-10.10-unguessable")
def test_families_are_random_and_begin_with_generation_one() -> None:
    tokens = [make_first_refresh_token("0a3") for _ in range(500)]

    assert len({token.family_id for token in tokens}) == 500
    assert {(token.generation, token.shard, len(token.family_id) * 8) for token in tokens} == {(1, "0a3", 128)}
    assert len({token.family_digest for token in tokens}) == 500


@pytest.mark.clause("decided-secret-key-rotation")
def test_the_first_key_makes_and_all_verify() -> None:
    old, rotating, rotated, new = Keyring([OLD]), Keyring([OLD, NEW]), Keyring([NEW, OLD]), Keyring([NEW])
    by_old, by_new = old.sign_refresh_token(TOKEN), new.sign_refresh_token(TOKEN)

    assert rotating.sign_refresh_token(TOKEN) == by_old
    assert rotated.sign_refresh_token(TOKEN) == by_new
    for keyring in (rotating, rotated):
        assert keyring.parse_refresh_token(by_old) == keyring.parse_refresh_token(by_new) == TOKEN
    assert new.parse_refresh_token(by_old) is None
    assert old.parse_refresh_token(by_new) is None


@pytest.mark.clause("decided-seed-digest-keyed")
def test_a_seed_digest_is_keyed_and_recognised_after_a_rotation() -> None:
    digest = Keyring([OLD]).digest_seed(b"an entry")

    assert Keyring([NEW]).digest_seed(b"an entry") != digest
    assert Keyring([NEW, OLD]).recognises_seed(digest, b"an entry")
    assert not Keyring([NEW, OLD]).recognises_seed(digest, b"another entry")
    assert not Keyring([NEW]).recognises_seed(digest, b"an entry")


def test_an_encrypted_secret_opens_under_its_own_name_and_key_only() -> None:
    sealed = Keyring([OLD]).encrypt("a secret é", "cep")

    assert Keyring([NEW, OLD]).decrypt(sealed, "cep") == "a secret é"
    assert Keyring([OLD]).decrypt(sealed, "other") is None
    assert Keyring([NEW]).decrypt(sealed, "cep") is None
    assert Keyring([OLD]).encrypt("a secret é", "cep") != sealed
    for position in range(4, len(sealed) - 4):
        other = "A" if sealed[position] != "A" else "B"
        assert Keyring([OLD]).decrypt(sealed[:position] + other + sealed[position + 1 :], "cep") is None
