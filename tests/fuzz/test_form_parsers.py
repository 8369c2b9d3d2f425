"""Two form parsers agree: the service's own and a slow one in plain Python, on many hostile bodies."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from random import Random
from typing import Final
from urllib.parse import unquote_plus

import pytest

from service.protocol.authorization import parse_query
from service.protocol.errors import InvalidRequest
from service.protocol.parameters import MAX_FIELDS, parse_form, read_fields

BODIES: Final = 40_000
SEED: Final = 20_261_125

KNOWN: Final = frozenset({"a", "b", "scope", "="})
PIECES: Final = (
    *(b"a", b"b", b"scope", b"A", b"x", b"7", b"f", b"", b"a=", b"a=1", b"b=2", b"scope=a+b", b"&a=1", b"&&", b"&=&"),
    *(b"&", b"&", b"&", b"=", b"=", b"==", b";", b";a=1", b"+", b"+", b" ", b"\n", b"\r\n", b"\t", b"\0", b"#", b"?"),
    *(b"%", b"%4", b"%4g", b"%%", b"%%41", b"%25", b"%2541", b"%41", b"%61", b"%62", b"%3D", b"%3d", b"%26", b"%2B"),
    *(b"%00", b"%0A", b"%0D%0A", b"%20", b"%7F", b"%80", b"%FF", b"%ff", b"%C3%A9", b"%C3", b"%A9", b"%C3=%A9"),
    *(b"%ED%A0%80", b"%F0%9F%97%9D", b"%F5%80%80%80", b"%C0%AF", b"%EF%BB%BF", b"%u0041", b"%\xc3\xa9", b"%=41"),
    *(b"=41", b"=3D", b"=\n", b"=\r\n", b"\xff", b"\xc3\xa9", b"\x80", b"\xe2\x80\xa8", b"--", b"_", b"[]", b'"'),
)
"""Each means something to some form parser, or to the decoder of quoted-printable."""

Fields = list[tuple[str | None, str | None]]
TOO_MANY: Final = ("parameters_too_many", "The form or the query has more than 128 parameters.")

Verdict = tuple[str, str] | Mapping[str, str]
"""The form, or the reason and the description of the refusal."""


def read_fields_slowly(body: bytes) -> Fields:
    pieces = body.split(b"&")
    if len(pieces) > MAX_FIELDS:
        raise InvalidRequest("parameters_too_many")
    pairs = [piece.partition(b"=") for piece in pieces if piece]
    return [(decode_slowly(name), decode_slowly(value)) for name, _, value in pairs]


def decode_slowly(encoded: bytes) -> str | None:
    text = encoded.decode("latin-1")
    if re.search("%(?![0-9A-Fa-f]{2})|[^\0-\x7f]", text):
        return None
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        return None


def parse_form_slowly(body: bytes, known: Collection[str]) -> Mapping[str, str]:
    named: dict[str, str] = {}
    for name, value in read_fields_slowly(body):
        if name is None or value is None:
            raise InvalidRequest("form_malformed")
        if name in named:
            raise InvalidRequest("parameter_repeated", name=name)
        if name in known:
            named[name] = value
    return {name: value for name, value in named.items() if value}


def judge(parse: Callable[[bytes, Collection[str]], Mapping[str, str]], body: bytes) -> Verdict:
    try:
        return parse(body, KNOWN)
    except InvalidRequest as error:
        return error.reason, error.description


def make_body(random: Random) -> bytes:
    """Return a body of up to twelve pieces, or one of about MAX_FIELDS fields."""
    if random.random() < 0.01:
        separators = b"&" * random.randint(MAX_FIELDS - 3, MAX_FIELDS + 2)
        at = random.randint(0, len(separators))
        return separators[:at] + random.choice(PIECES) + separators[at:]
    return b"".join(random.choices(PIECES, k=random.randint(0, 12)))


def test_every_hostile_body_has_the_verdict_of_the_slow_parser() -> None:
    random = Random(SEED)
    seen = dict[str, int]()
    for _ in range(BODIES):
        body = make_body(random)
        verdict = judge(parse_form, body)

        assert verdict == judge(parse_form_slowly, body), body
        if verdict != TOO_MANY:
            assert list(read_fields(body)) == read_fields_slowly(body), body
        kind = verdict[0] if isinstance(verdict, tuple) else "form" if verdict else "nothing"
        seen[kind] = seen.get(kind, 0) + 1

    # Every verdict occurs often enough to mean something.
    assert seen.keys() == {"form", "nothing", "form_malformed", "parameter_repeated", "parameters_too_many"}
    assert min(seen.values()) > 30


@pytest.mark.clause("decided-most-parameters")
def test_too_many_fields_are_counted_before_the_parser(caplog: pytest.LogCaptureFixture) -> None:
    """The parser would log each empty field at the level debug."""
    caplog.set_level("DEBUG", "python_multipart")
    for parse in (parse_form, parse_query):
        parse(b"&" * (MAX_FIELDS - 1) + b"%41", KNOWN)
        assert caplog.messages
        caplog.clear()
        with pytest.raises(InvalidRequest, match="parameters_too_many"):
            parse(b"&" * MAX_FIELDS + b"%41", KNOWN)
        assert not caplog.messages
