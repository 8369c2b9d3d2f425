"""Parsing of client credentials: the possible readings of a request, and when there are too many."""

from base64 import b64encode

import pytest

from service.protocol.errors import InvalidClient
from service.protocol.parameters import ClientCredentials, parse_basic, parse_client_credentials


def header(text: str | bytes) -> str:
    return "Basic " + b64encode(text.encode() if isinstance(text, str) else text).decode()


@pytest.mark.clause("6749-2.3.1-basic-form-encoded", "decided-basic-encoded-and-raw")
@pytest.mark.clause("decided-public-client-empty-password")
@pytest.mark.parametrize(
    ("text", "readings"),
    [
        pytest.param("shop:secret", [("shop", "secret")], id="nothing to decode: one reading"),
        pytest.param("shop:", [("shop", None)], id="an empty password is no secret"),
        pytest.param("shop:a%3Ab", [("shop", "a:b"), ("shop", "a%3Ab")], id="an escape: encoded first, then raw"),
        pytest.param("shop:a+b", [("shop", "a b"), ("shop", "a+b")], id="a plus"),
        pytest.param("sh%6Fp:secret", [("shop", "secret"), ("sh%6Fp", "secret")], id="an escape in the client_id"),
        pytest.param("shop:100%", [("shop", "100%")], id="a percent sign that is no escape"),
        pytest.param("shop:%FF", [("shop", "%FF")], id="an escape that is not UTF-8 can only be raw"),
        pytest.param("shop:%0A", [("shop", "%0A")], id="an escaped line end can only be raw"),
    ],
)
def test_a_basic_credential_has_one_or_two_readings(text: str, readings: list[tuple[str, str | None]]) -> None:
    assert parse_basic(header(text)) == tuple(ClientCredentials(*reading) for reading in readings)


@pytest.mark.clause("decided-malformed-basic", "decided-other-authorization-scheme", "decided-bad-encoding")
@pytest.mark.parametrize(
    "text",
    [
        pytest.param("", id="nothing"),
        pytest.param("Basic c2hvcDpzZWNyZXQ*", id="a letter that is not Base64"),
        pytest.param("Basic c2hvcDpzZWNyZX", id="padding left out"),
        pytest.param("Basic é", id="not ASCII"),
        pytest.param(header("shop"), id="no colon"),
        pytest.param(header(":secret"), id="no client_id"),
        pytest.param(header(b"shop:\xff"), id="not UTF-8"),
        pytest.param(header("shop:sécret"), id="UTF-8 that is not ASCII"),
        pytest.param(header("shop:sec\nret"), id="a line end"),
        pytest.param(header("shop:secret").replace("Basic", "Bearer"), id="another scheme"),
    ],
)
def test_a_header_that_is_not_basic_is_malformed(text: str) -> None:
    with pytest.raises(InvalidClient) as caught:
        parse_basic(text)

    assert caught.value.reason == "basic_malformed"
    assert caught.value.challenge == 'Basic realm="token-service"'


@pytest.mark.clause("decided-basic-with-same-client-id")
def test_the_client_id_in_the_body_may_be_that_of_either_reading() -> None:
    for client_id in ("a b", "a+b"):
        readings = parse_client_credentials([header("a+b:s")], {"client_id": client_id})

        assert [reading.client_id for reading in readings] == [client_id]


@pytest.mark.clause("decided-basic-with-same-client-id", "decided-basic-and-body-differ")
def test_body_client_id_allows_every_reading_of_the_secret() -> None:
    readings = parse_client_credentials([header("shop:a+b")], {"client_id": "shop"})

    assert readings == (ClientCredentials("shop", "a b"), ClientCredentials("shop", "a+b"))


LONGEST, TOO_LONG = "i" * 255, "i" * 256


@pytest.mark.clause("6749-a.1-client-id-characters", "6749-a.2-client-secret-characters")
@pytest.mark.parametrize(
    ("authorization", "form"),
    [
        pytest.param([], {"client_id": TOO_LONG}, id="in the body"),
        pytest.param([header(f"{TOO_LONG}:s")], {}, id="in a header"),
        pytest.param([], {"client_id": "shop", "client_secret": "sécret"}, id="a secret in the body that is not ASCII"),
        pytest.param([], {"client_id": "shop", "client_secret": "s\x7f"}, id="a secret with a control character"),
        pytest.param([], {"client_id": "sh\x1fop"}, id="a client_id with a control character"),
    ],
)
def test_overlong_or_foreign_credentials_are_refused(authorization: list[str], form: dict[str, str]) -> None:
    with pytest.raises(InvalidClient) as caught:
        parse_client_credentials(authorization, form)

    assert caught.value.reason == "client_unknown"


@pytest.mark.clause("6749-a.1-client-id-characters")
def test_the_longest_client_id_is_read_in_each_of_its_readings() -> None:
    """The limit counts decoded characters, so an escaped client_id may be longer."""
    assert parse_client_credentials([], {"client_id": LONGEST}) == (ClientCredentials(LONGEST, None),)
    assert parse_basic(header(f"{LONGEST}:s")) == (ClientCredentials(LONGEST, "s"),)
    assert parse_basic(header(f"%69{LONGEST[1:]}:s")) == (ClientCredentials(LONGEST, "s"),)
