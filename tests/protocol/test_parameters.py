"""Parsing of the form body into parameters."""

import re
from urllib.parse import unquote_plus

import pytest
from hypothesis import example, given

from service.protocol.authorization import parse_query
from service.protocol.errors import InvalidRequest
from service.protocol.parameters import (
    FORM_CONTENT_TYPE,
    MAX_FIELDS,
    check_content_type,
    check_query,
    check_text,
    parse_form,
    read_fields,
)
from tests.fuzz.generators import bent_bytes

KNOWN = frozenset({"a", "b"})


@pytest.mark.clause("6749-3.2-empty-parameter-omitted", "6749-3.2-unknown-parameter-ignored", "6749-b-utf-8-form")
@pytest.mark.parametrize(
    ("body", "form"),
    [
        pytest.param(b"", {}, id="nothing"),
        pytest.param(b"a=&b=2", {"b": "2"}, id="an empty value counts as none"),
        pytest.param(b"a&b=2", {"b": "2"}, id="no value counts as none"),
        pytest.param(b"a=1&c=3&c=4", {"a": "1"}, id="unknown ones are ignored, repeated or not"),
        pytest.param(b"A=1", {}, id="names are case-sensitive"),
        pytest.param(b"a=x+y%20z", {"a": "x y z"}, id="two ways to write a space"),
        pytest.param(b"a=x%2By", {"a": "x+y"}, id="an escaped plus"),
        pytest.param(b"a=%C3%A9%F0%9F%97%9D", {"a": "é🗝"}, id="UTF-8"),
        pytest.param(b"a=x=y", {"a": "x=y"}, id="an equals sign in a value"),
        pytest.param(b"&&a=1&&", {"a": "1"}, id="empty pairs"),
        pytest.param(b"a=1;b=2", {"a": "1;b=2"}, id="a semicolon separates nothing"),
        pytest.param(b"%61=1", {"a": "1"}, id="an escaped name"),
        pytest.param(b"a=%00", {"a": "\x00"}, id="control characters are judged elsewhere"),
    ],
)
def test_known_parameters_with_a_value_are_read(body: bytes, form: dict[str, str]) -> None:
    assert parse_form(body, KNOWN) == form


@pytest.mark.clause("6749-3.2-parameter-once", "decided-repeated-means-known", "decided-bad-encoding")
@pytest.mark.parametrize(
    ("body", "reason"),
    [
        pytest.param(b"a=1&a=1", "parameter_repeated", id="twice the same"),
        pytest.param(b"a=1&a=", "parameter_repeated", id="the second one empty"),
        pytest.param(b"a=1&%61=2", "parameter_repeated", id="the second one escaped"),
        pytest.param(b"a=\xff", "form_malformed", id="a raw byte"),
        pytest.param("a=é".encode(), "form_malformed", id="raw UTF-8"),
        pytest.param(b"a=%FF", "form_malformed", id="no UTF-8"),
        pytest.param(b"c=%FF", "form_malformed", id="no UTF-8 in an unknown parameter"),
        pytest.param(b"a=%ED%A0%80", "form_malformed", id="a surrogate"),
        pytest.param(b"a=%", "form_malformed", id="a percent sign at the end"),
    ],
)
def test_repeated_and_badly_encoded_parameters_are_refused(body: bytes, reason: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        parse_form(body, KNOWN)

    assert caught.value.reason == reason


@pytest.mark.clause("decided-most-parameters")
def test_too_many_parameters_are_refused_before_they_are_decoded() -> None:
    allowed = b"&".join(b"c%d=%%41" % number for number in range(MAX_FIELDS - 1))

    assert parse_form(allowed + b"&a=1", KNOWN) == {"a": "1"}
    check_query(allowed + b"&c", KNOWN)
    for parse in (parse_form, check_query, parse_query):
        with pytest.raises(InvalidRequest, match="parameters_too_many"):
            parse(allowed + b"&&a=1", KNOWN)


@given(bent_bytes(b"%C3%A9%F0%9F%97%9D+a=b%2Bc%00%5C%5Cx41", b"=41=3D=0A=\n=", b"%3D%0D%0A"))
@example(bytes(range(256)))
def test_texts_are_decoded_as_the_standard_library_does(encoded: bytes) -> None:
    """`unquote_plus` keeps an invalid escape, and the service refuses the text."""
    text = encoded.replace(b"&", b"").decode("latin-1")
    try:
        expected = None if re.search("%(?![0-9A-Fa-f]{2})|[^\0-\x7f]", text) else unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        expected = None

    assert list(read_fields(b"a=" + text.encode("latin-1"))) == [("a", expected)]


@pytest.mark.clause("decided-wrong-content-type")
def test_long_content_type_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="content_type_differs"):
        check_content_type("application/x-www-form-urlencoded" + ";" * 60_000, FORM_CONTENT_TYPE)


@pytest.mark.clause("decided-wrong-content-type", "decided-charset-parameter-allowed")
@pytest.mark.parametrize(
    ("content_type", "accepted"),
    [
        ("application/x-www-form-urlencoded", True),
        ("application/x-www-form-urlencoded;charset=UTF-8", True),
        ("APPLICATION/X-WWW-FORM-URLENCODED ; charset=utf-8", True),
        ('application/x-www-form-urlencoded; charset="utf-8"', True),
        ('application/x-www-form-urlencoded; charset="UTF8"', True),
        ("application/x-www-form-urlencoded; boundary=x", True),
        ("application/x-www-form-urlencoded; charset=ISO-8859-1", True),
        ("application/x-www-form-urlencoded; charset=US-ASCII", True),
        ("application/x-www-form-urlencoded; charset=iso-8859-15", False),
        ("application/x-www-form-urlencoded; charset=utf-16", False),
        ("application/x-www-form-urlencoded; charset=", False),
        ("application/x-www-form-urlencoded; charset=utf-8; charset=utf-16", False),
        ("multipart/form-data", False),
        ("", False),
        (None, False),
    ],
)
def test_only_one_content_type_is_a_form(content_type: str | None, accepted: bool) -> None:
    if accepted:
        check_content_type(content_type, FORM_CONTENT_TYPE)
    else:
        with pytest.raises(InvalidRequest, match="content_type_differs"):
            check_content_type(content_type, FORM_CONTENT_TYPE)


@pytest.mark.clause("6749-a.15-username-characters", "6749-a.16-password-characters")
@pytest.mark.parametrize("character", ["\n", "\r", "\x00", "\x1f", "\x7f", "\ufffe", "\uffff"], ids=ascii)
def test_control_characters_are_refused_in_text(character: str) -> None:
    check_text({"a": "\t é \u2028 🗝 ~"}, "a")
    with pytest.raises(InvalidRequest, match="parameter_malformed"):
        check_text({"a": f"x{character}y"}, "a")
