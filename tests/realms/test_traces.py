"""Requests to an identity provider carry the trace of the request that caused them, and nothing else of it."""

from __future__ import annotations

import asyncio

import httpx2
import pytest

from service.protocol.trace_context import TraceContext, parse_traceparent
from tests.realms.login_steps import CEP_SCOPE
from tests.support.clients_and_users import PHONE_APP, TOKEN, UserCredentials, login_form
from tests.support.fake_provider import PASSWORD, USERNAME, FakeProvider
from tests.support.fake_provider import TOKEN as PROVIDER_TOKEN

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT_ID = "00f067aa0ba902b7"


async def log_in(http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    form = PHONE_APP.credentials | login_form(UserCredentials(USERNAME, PASSWORD, realm="cep"), CEP_SCOPE)
    assert (await http.post(TOKEN, data=form, headers=headers)).status_code == 200


@pytest.mark.clause("decided-trace-to-providers")
@pytest.mark.parametrize(("flags", "sent_flags"), [("00", 0), ("ff", 3)])
async def test_each_request_there_has_the_trace_id_and_a_new_parent_id(
    cep: None, provider: FakeProvider, http: httpx2.AsyncClient, flags: str, sent_flags: int
) -> None:
    await log_in(http, {"traceparent": f"00-{TRACE_ID}-{PARENT_ID}-{flags}", "tracestate": "vendor=tell-nobody"})
    sent = [request.headers["traceparent"] for request in provider.requests]
    parent_ids = {value.split("-")[2] for value in sent}

    assert len(sent) > 1
    assert {parse_traceparent(value.encode()) for value in sent} == {TraceContext(TRACE_ID, sent_flags)}
    assert {value[:2] for value in sent} == {"00"}
    assert len(parent_ids) == len(sent)
    assert PARENT_ID not in parent_ids
    assert not [request for request in provider.requests if "tracestate" in request.headers]


@pytest.mark.clause("decided-trace-to-providers")
async def test_logins_at_the_same_time_keep_their_traces_apart(
    cep: None, provider: FakeProvider, http: httpx2.AsyncClient
) -> None:
    trace_ids = {f"user{number}": f"{number:032x}" for number in range(1, 21)}

    async def fail_to_log_in(username: str, trace_id: str) -> None:
        form = PHONE_APP.credentials | login_form(UserCredentials(username, "wrong", realm="cep"), CEP_SCOPE)
        headers = {"traceparent": f"00-{trace_id}-{PARENT_ID}-01"}
        assert (await http.post(TOKEN, data=form, headers=headers)).status_code == 400

    await asyncio.gather(*(fail_to_log_in(*each) for each in trace_ids.items()))

    sent = {request.form["username"]: request.headers["traceparent"] for request in provider.calls(PROVIDER_TOKEN)}
    assert {username: traceparent.split("-")[1] for username, traceparent in sent.items()} == trace_ids


@pytest.mark.clause("decided-trace-to-providers")
@pytest.mark.parametrize(
    "headers",
    [{}, {"traceparent": "nonsense"}, {"tracestate": "vendor=tell-nobody"}],
    ids=["none", "bad", "state only"],
)
async def test_no_trace_begins_here(
    cep: None, provider: FakeProvider, http: httpx2.AsyncClient, headers: dict[str, str]
) -> None:
    await log_in(http, headers)

    assert provider.requests
    assert not [request for request in provider.requests if {"traceparent", "tracestate"} & request.headers.keys()]
