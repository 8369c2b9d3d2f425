"""The caller's traceparent over HTTP: its trace id is in every log line and security event of that request."""

import asyncio
import io
import json
from collections import Counter
from typing import Any

import httpx2
import pytest

from tests.support.clients_and_users import ALICE, PHONE_APP, TOKEN, UserCredentials, login_form

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
TRACEPARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
OTHER_TRACEPARENT = f"00-{'a' * 32}-00f067aa0ba902b7-01"
WRONG_ALICE = UserCredentials(ALICE.username, "a wrong password")


def read_lines(json_logs: io.StringIO, *loggers: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in json_logs.getvalue().splitlines()]
    return [line for line in lines if line["logger"] in loggers]


def read_requests(json_logs: io.StringIO) -> list[dict[str, Any]]:
    """Return the security events and the lines of the access log."""
    return read_lines(json_logs, "service.audit", "service.access")


async def log_in(http: httpx2.AsyncClient, *traceparents: str, user: UserCredentials = ALICE) -> httpx2.Response:
    headers = [("traceparent", value) for value in traceparents]
    return await http.post(TOKEN, data=PHONE_APP.credentials | login_form(user), headers=headers)


@pytest.mark.clause("decided-trace-id")
async def test_each_line_of_a_request_has_its_trace_id(http: httpx2.AsyncClient, json_logs: io.StringIO) -> None:
    await log_in(http, TRACEPARENT)
    await log_in(http, TRACEPARENT, user=WRONG_ALICE)
    lines = read_requests(json_logs)

    assert [line["event"] for line in lines] == [*("login_succeeded", "tokens_issued"), "login_failed"]
    assert {line["trace_id"] for line in lines} == {TRACE_ID}


@pytest.mark.clause("decided-trace-id")
async def test_requests_at_the_same_time_keep_their_traces_apart(
    http: httpx2.AsyncClient, json_logs: io.StringIO
) -> None:
    trace_ids = [f"{number:032x}" for number in range(1, 51)]
    traceparents = [f"00-{trace_id}-00f067aa0ba902b7-00" for trace_id in trace_ids]
    responses = await asyncio.gather(*(log_in(http, traceparent) for traceparent in traceparents))
    lines = read_requests(json_logs)
    families = {line["session"]: line["trace_id"] for line in lines if "session" in line}

    assert {response.status_code for response in responses} == {200}
    assert Counter(line["trace_id"] for line in lines) == Counter(2 * trace_ids)
    assert sorted(families.values()) == trace_ids


@pytest.mark.clause("decided-trace-id")
@pytest.mark.parametrize(
    "traceparents",
    [[TRACEPARENT, OTHER_TRACEPARENT], [f"{TRACEPARENT}-more"], ["x" * 20_000], [f"00-{'0' * 32}-00f067aa0ba902b7-01"]],
    ids=["two", "longer", "long", "zeros"],
)
async def test_an_invalid_header_is_ignored(
    http: httpx2.AsyncClient, json_logs: io.StringIO, traceparents: list[str]
) -> None:
    response = await log_in(http, *traceparents)
    written = json_logs.getvalue()

    assert response.status_code == 200
    assert "trace_id" not in written
    assert not [value for value in traceparents if value and value in written]


@pytest.mark.clause("decided-trace-id")
async def test_a_refusal_before_the_path_is_known_has_the_trace_id(
    http: httpx2.AsyncClient, json_logs: io.StringIO
) -> None:
    await http.get("/", headers={"traceparent": TRACEPARENT, "cookie": "c" * 70_000})
    (line,) = read_requests(json_logs)

    assert (line["status"], line["trace_id"]) == (431, TRACE_ID)
