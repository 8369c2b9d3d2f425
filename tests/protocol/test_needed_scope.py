"""Parsing of the scope that a gateway requires."""

from __future__ import annotations

import pytest

from service.protocol.errors import InsufficientScope
from service.web.api.verify import parse_needed_scope


@pytest.mark.clause("decided-verify-scope")
@pytest.mark.parametrize(
    ("query", "scope"),
    [(b"", ""), (b"x=1", ""), (b"scope=", ""), (b"scope", ""), (b"scope=a+b%20c%3Ad&x=1", "a b c:d"), (b"SCOPE=a", "")],
)
def test_the_needed_scope_stands_in_the_query(query: bytes, scope: str) -> None:
    assert parse_needed_scope(query) == scope


@pytest.mark.clause("decided-verify-scope")
@pytest.mark.parametrize("query", [b"scope=a&scope=a", b"scope=&scope=", b"scope=%", b"x=%zz", b"scope=%ff", b"\xe9"])
def test_a_query_that_cannot_be_read_is_insufficient_scope(query: bytes) -> None:
    with pytest.raises(InsufficientScope) as caught:
        parse_needed_scope(query)

    assert (caught.value.reason, caught.value.scope) == ("needed_scope_malformed", "")


@pytest.mark.clause("decided-verify-scope")
def test_a_query_of_too_many_parameters_is_refused_in_their_words() -> None:
    with pytest.raises(InsufficientScope) as caught:
        parse_needed_scope(b"&".join([b"a=b"] * 129))

    assert caught.value.reason == "parameters_too_many"
    assert str(caught.value.description) == "The form or the query has more than 128 parameters."
