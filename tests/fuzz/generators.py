"""Inputs for parsers: slightly changed valid texts, and garbage."""

from typing import Any, TypeVar

from hypothesis import strategies as st

Some = TypeVar("Some", str, bytes)
Bend = tuple[int, int, Some]


PIECES = (
    *("\0", "\t", "\n", "\r\n", " ", "  ", "\x7f", "\x85", "\xa0", "\u2028", "\ufeff", "\u202e"),
    *("%", "%2", "%00", "%0a", "%41", "%ff", "%ed%a0%80", "%c3%28", "+", "&", "=", ";", ",", ":", "::", "@", "/", "//"),
    *("?", "#", "[", "]", "{", "}", "~", ".", "..", "-", "_", "|", "*", "!", "<", ">", "'", '"', "\\", "$", "`"),
    *("é", "ÿ", "٣", "²", "Ⅷ", "İ", "😀", "e\u0301"),
    *("0", "-1", "00", "65536", "9" * 25, "9" * 5000, "1e9", "nan", "inf", "true", "null", "None"),
    *("A" * 44, "a" * 300, "0a3", "main", "realm:main", "role:enduser", "http://", "127.0.0.1", "[::1]", "tsat1_"),
)
"""Each means something to some parser, or to what stands behind it."""

text = st.one_of(st.text(max_size=30), st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
printable = st.text(st.characters(min_codepoint=0x20, max_codepoint=0x7E), min_size=1, max_size=40)
utf8 = st.text(st.characters(codec="utf-8"), max_size=30)
wild = st.one_of(text, st.text(st.characters(categories=("Cs", "Cc", "Co", "Nd", "Ll")), max_size=12))
"""Lone surrogates too: Python has them where a variable or an argument is no UTF-8."""

data = st.one_of(st.binary(max_size=60), text.map(lambda some: some.encode("utf-8", "replace")))
header = text.map(lambda some: some.encode("utf-8", "replace").decode("latin-1"))
"""Header values as servers hand them on."""

json_values: st.SearchStrategy[Any] = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(2**70), 2**70), st.floats(), utf8, st.sampled_from(PIECES)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(utf8, inner, max_size=3)),
    max_leaves=6,
)


def bends(pieces: st.SearchStrategy[Some]) -> st.SearchStrategy[list[Bend[Some]]]:
    """Generate up to three places to cut out or overwrite: position modulo the length, count, and replacement."""
    return st.lists(st.tuples(st.integers(0, 999), st.integers(0, 8), pieces), max_size=3)


def bend(good: Some, places: list[Bend[Some]]) -> Some:
    for where, count, piece in places:
        start = where % (len(good) + 1)
        good = good[:start] + piece + good[start + count :]
    return good


def bent(good: st.SearchStrategy[Some], pieces: st.SearchStrategy[Some]) -> st.SearchStrategy[Some]:
    return st.builds(bend, good, bends(pieces))


def bent_text(*good: str) -> st.SearchStrategy[str]:
    return bent(st.sampled_from(good), text)


def bent_bytes(*good: bytes) -> st.SearchStrategy[bytes]:
    return bent(st.sampled_from(good), data)
