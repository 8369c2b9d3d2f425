"""The header traceparent is read strictly."""

from __future__ import annotations

import pytest

from service.protocol.trace_context import parse_traceparent

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"
VALID = f"00-{TRACE_ID}-{PARENT_ID}-01"


@pytest.mark.parametrize(
    "value",
    [
        VALID,
        f"00-{TRACE_ID}-{PARENT_ID}-fc",
        f"01-{TRACE_ID}-{PARENT_ID}-01",
        f"fe-{TRACE_ID}-{PARENT_ID}-02",
        f"cc-{TRACE_ID}-{PARENT_ID}-01-what-the-future-will-be-like",
        f"cc-{TRACE_ID}-{PARENT_ID}-01-",
    ],
)
@pytest.mark.clause("decided-trace-id")
def test_a_valid_header_names_a_trace(value: str) -> None:
    assert parse_traceparent(value.encode()) == TRACE_ID


@pytest.mark.parametrize(
    "value",
    [
        "",
        "-",
        TRACE_ID,
        VALID[:-1],
        f"{VALID}-",
        f"{VALID}-what-the-future-will-be-like",
        f"{VALID}1",
        f"{VALID}\n",
        f"{VALID} ",
        f" {VALID}",
        f"{VALID}, {VALID}",
        f"{VALID},{VALID}",
        VALID.upper(),
        f"00-{TRACE_ID.upper()}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{PARENT_ID.upper()}-01",
        f"00-{TRACE_ID}-{PARENT_ID}-0A",
        f"ff-{TRACE_ID}-{PARENT_ID}-01",
        f"ff-{TRACE_ID}-{PARENT_ID}-01-more",
        f"0-{TRACE_ID}-{PARENT_ID}-01",
        f"000-{TRACE_ID}-{PARENT_ID}-01",
        f".0-{TRACE_ID}-{PARENT_ID}-01",
        f"cc-{TRACE_ID}-{PARENT_ID}-01.what",
        f"cc-{TRACE_ID}-{PARENT_ID}-011",
        f"cc-{TRACE_ID}-{PARENT_ID}-0",
        f"00-{'0' * 32}-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{'0' * 16}-01",
        f"00-{TRACE_ID[:-1]}-{PARENT_ID}-01",
        f"00-{TRACE_ID}0-{PARENT_ID}-01",
        f"00-{TRACE_ID}-{PARENT_ID}0-01",
        f"00-{TRACE_ID[:-1]}.-{PARENT_ID}-01",
        f"00_{TRACE_ID}_{PARENT_ID}_01",
        f"00-{TRACE_ID[:-2]}\r\n-{PARENT_ID}-01",
    ],
)
@pytest.mark.clause("decided-trace-id")
def test_a_malformed_header_names_no_trace(value: str) -> None:
    assert parse_traceparent(value.encode()) is None


def test_digits_outside_ascii_name_no_trace() -> None:
    value = VALID.replace("4", "\N{ARABIC-INDIC DIGIT FOUR}")
    assert parse_traceparent(value.encode()) is None
    assert parse_traceparent(VALID.encode().replace(b"4", b"\xb2")) is None
