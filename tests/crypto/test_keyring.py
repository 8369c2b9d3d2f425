"""Tokens and keys: made, signed, and recognised in one spelling only."""

import re
import secrets
import string
from base64 import urlsafe_b64decode
from collections.abc import Callable

import pytest
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from service.crypto.keyring import (
    Keyring,
    derive_key,
    make_access_token,
    make_browser_secret,
    make_browser_session,
    make_consent,
    make_first_refresh_token,
    make_refresh_token,
)
from service.protocol.token_form import (
    RandomToken,
    digest_token,
    parse_access_token,
    parse_authorization_code,
    parse_browser_session,
    parse_consent,
)

OLD, NEW = b"an old key of 32 bytes or more for tests", b"a new key of 32 bytes or more for tests!"
KEYRING = Keyring([NEW])
TOKEN = make_refresh_token("0a3", bytes(range(16)), 7)


def make_code(shard: str) -> RandomToken:
    """Make a code from the name of a consent, as the page does."""
    return KEYRING.derive_code(make_consent(shard))


RANDOM_TOKENS: tuple[tuple[str, Callable[[str], RandomToken], Callable[[str], RandomToken | None]], ...] = (
    ("tsat1_", make_access_token, parse_access_token),
    ("tsac1_", make_code, parse_authorization_code),
    ("tspc1_", make_consent, parse_consent),
    ("tsbs1_", make_browser_session, parse_browser_session),
)


@pytest.mark.clause(
    "6749-10.10-unguessable",
    "6749-10.10-unguessable-by-far",
    "6819-5.1.4.2.2-entropy",
    "6819-4.6.3-access-token-guessed",
)
@pytest.mark.clause("decided-token-alphabet", "6749-a.12-token-characters", "6750-5.2-unguessable")
@pytest.mark.parametrize(("make", "prefix"), [(make, prefix) for prefix, make, _ in RANDOM_TOKENS[:4]])
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
    for _, make, parse in RANDOM_TOKENS:
        token = make("0a3")
        assert parse(token.text) == token
        assert parse(change(token.text)) is None
    refresh_token = KEYRING.sign_refresh_token(TOKEN)

    assert KEYRING.parse_refresh_token(refresh_token) == TOKEN
    assert KEYRING.parse_refresh_token(change(refresh_token)) is None


@pytest.mark.clause("decided-refresh-token-is-no-bearer")
def test_one_kind_of_token_is_never_taken_for_another() -> None:
    made = {prefix: make("0a3").text for prefix, make, _ in RANDOM_TOKENS}
    refresh_token = KEYRING.sign_refresh_token(TOKEN)

    for prefix, _, parse in RANDOM_TOKENS:
        others = [text for other, text in made.items() if other != prefix]
        assert [parse(text) for text in (*others, refresh_token)] == [None] * 4
    assert [KEYRING.parse_refresh_token(text) for text in made.values()] == [None] * 4


@pytest.mark.clause("6749-10.10-unguessable")
def test_a_browser_secret_is_256_random_bits() -> None:
    made = {make_browser_secret() for _ in range(500)}

    assert len(made) == 500
    assert all(re.fullmatch("[A-Za-z0-9_-]{43}", secret) for secret in made)


@pytest.mark.clause("6749-10.10-unguessable", "6749-10.10-unguessable-by-far", "6819-5.1.4.2.2-entropy")
def test_code_is_derived_from_consent_and_key() -> None:
    consents = [make_consent("0a3") for _ in range(200)]
    codes = [KEYRING.derive_code(consent) for consent in consents]

    assert codes == [KEYRING.derive_code(consent) for consent in consents]
    assert len({code.text for code in codes}) == 200
    for consent, code in zip(consents, codes, strict=True):
        assert code.shard == consent.shard
        assert parse_authorization_code(code.text) == code
        assert code.text != Keyring([OLD]).derive_code(consent).text
        assert code.text == Keyring([NEW, OLD]).derive_code(consent).text
        # The code shows nothing of the page's name, which stands in forms and addresses.
        assert code.text[9:] not in consent.text
        assert consent.text[9:] not in code.text


@pytest.mark.parametrize(
    ("purpose", "parts"),
    [
        pytest.param("form consent", ("browser", "name"), id="another purpose"),
        pytest.param("form login", ("browser", "other"), id="another part"),
        pytest.param("form login", ("name", "browser"), id="another order"),
        pytest.param("form login", ("browsername",), id="the parts run together"),
        pytest.param("form login", ("browser",), id="a part less"),
        pytest.param("form login", ("browser", "name", ""), id="a part more"),
        pytest.param("form", ("login", "browser", "name"), id="a purpose cut elsewhere"),
    ],
)
def test_signature_is_valid_for_one_purpose_and_its_parts_only(purpose: str, parts: tuple[str, ...]) -> None:
    signature = KEYRING.sign_for_page("form login", "browser", "name")

    assert KEYRING.recognises_for_page(signature, "form login", "browser", "name")
    assert not KEYRING.recognises_for_page(signature, purpose, *parts)
    for other in ("", signature[:-1], signature + "A", "é" + signature[1:], signature.lower()):
        assert not KEYRING.recognises_for_page(other, "form login", "browser", "name")


@pytest.mark.clause(
    "6749-10.4-unforgeable",
    "6819-5.1.5.9-refresh-token-authenticated",
    "6750-5.2-integrity",
    "6819-4.5.3-refresh-token-guessed",
)
def test_every_character_of_a_refresh_token_is_under_its_mac() -> None:
    text = KEYRING.sign_refresh_token(TOKEN)
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-"

    for position, character in enumerate(text):
        for other in set(alphabet) - {character}:
            assert KEYRING.parse_refresh_token(text[:position] + other + text[position + 1 :]) is None


@pytest.mark.clause("6749-10.4-unforgeable", "6749-10.10-unguessable", "6819-5.1.4.2.2-entropy")
def test_generations_are_indistinguishable_without_the_key() -> None:
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


@pytest.mark.clause("decided-secret-key-rotation", "decided-seed-digest-keyed")
@pytest.mark.parametrize(
    ("make", "accepts"),
    [
        pytest.param(
            lambda ring: ring.sign_refresh_token(TOKEN),
            lambda ring, made: ring.parse_refresh_token(made) == TOKEN,
            id="refresh token",
        ),
        pytest.param(
            lambda ring: ring.sign_for_page("form login", "name"),
            lambda ring, made: ring.recognises_for_page(made, "form login", "name"),
            id="signature",
        ),
        pytest.param(
            lambda ring: ring.seal("form login", b"x"),
            lambda ring, made: ring.open_sealed("form login", made) == b"x",
            id="sealed page",
        ),
        pytest.param(
            lambda ring: ring.digest_seed(b"an entry"),
            lambda ring, made: (
                ring.recognises_seed(made, b"an entry") and not ring.recognises_seed(made, b"another entry")
            ),
            id="seed digest",
        ),
    ],
)
def test_the_first_key_makes_and_all_keys_verify(
    make: Callable[[Keyring], str], accepts: Callable[[Keyring, str], bool]
) -> None:
    for keys in ([OLD, NEW], [NEW, OLD]):
        assert accepts(Keyring(keys), make(Keyring([OLD])))
        assert accepts(Keyring([keys[0]]), make(Keyring(keys)))
        assert not accepts(Keyring([keys[1]]), make(Keyring(keys)))


@pytest.mark.clause("decided-nothing-kept-for-strangers")
@pytest.mark.parametrize("content", [b"", b"x", b"xy", b"xyz", bytes(range(256)) * 40])
def test_seal_opens_for_its_purpose_only(content: bytes) -> None:
    sealed = KEYRING.seal("login form", content)

    assert KEYRING.open_sealed("login form", sealed) == content
    assert KEYRING.open_sealed("login at an organisation", sealed) is None
    assert Keyring([OLD]).open_sealed("login form", sealed) is None or KEYRING is Keyring([OLD])
    assert content not in urlsafe_b64decode(sealed + "==") or len(content) < 2
    assert KEYRING.seal("login form", content) != sealed
    assert re.fullmatch(r"[A-Za-z0-9_-]+", sealed)


def test_sealed_text_has_one_spelling_and_every_bit_matters() -> None:
    sealed = KEYRING.seal("login form", b"x")  # its last character has two bits that no byte uses
    others = {
        sealed[:place] + other + sealed[place + 1 :]
        for place in range(len(sealed))
        for other in f"{string.ascii_letters}{string.digits}-_"
        if sealed[place] != other
    }

    assert {KEYRING.open_sealed("login form", text) for text in others} == {None}
    for text in ("", sealed[:-1], f"{sealed}A", f"{sealed}=", f" {sealed}", "A" * 61, "A" * 3, "é" * 80):
        assert KEYRING.open_sealed("login form", text) is None


@pytest.mark.parametrize("length", [1, 3, 31, 32])
def test_both_libraries_derive_the_same_key(length: int) -> None:
    for secret_bytes in (1, 32, 64, 65, 200):
        secret, purpose = secrets.token_bytes(secret_bytes), secrets.token_bytes(length % 70)

        assert derive_key(secret, purpose, length) == HKDF(SHA256(), length, salt=None, info=purpose).derive(secret)
