"""The form body over HTTP: which parameters count, and how strictly they are parsed."""

import gzip
from collections.abc import AsyncIterator
from urllib.parse import urlencode

import anyio
import httpx2
import pytest

from service.protocol.parameters import TOKEN_PARAMETERS
from service.web.request import reading as form
from tests.support.clients_and_users import (
    ALICE,
    INTROSPECT,
    PHONE_APP,
    REVOKE,
    REVOKE_ALL,
    TOKEN,
    assert_error,
    bearer,
    login_form,
    tokens_of,
)
from tests.support.loop_time import SAME_SECONDS, STEP_SECONDS, LoopTime

FORM = "application/x-www-form-urlencoded"
LIMIT = 64 * 1024
LOGIN = urlencode(PHONE_APP.credentials | login_form(ALICE))


async def post(
    http: httpx2.AsyncClient, body: str | bytes, content_type: str | None = FORM, address: str = TOKEN
) -> httpx2.Response:
    content = body.encode() if isinstance(body, str) else body
    return await http.post(
        address, content=content, headers={} if content_type is None else {"Content-Type": content_type}
    )


@pytest.mark.clause("decided-wrong-content-type", "spec-1-form-encoded", "spec-4.2-form-body", "spec-4.3-form-body")
@pytest.mark.clause("decided-invalid-request-400")
@pytest.mark.parametrize("address", [TOKEN, REVOKE, INTROSPECT])
@pytest.mark.parametrize("content_type", [None, "application/json", f"{FORM}; charset=latin1"])
async def test_another_content_type_is_invalid_request(
    http: httpx2.AsyncClient, content_type: str | None, address: str
) -> None:
    assert_error(await post(http, LOGIN, content_type, address), 400, "invalid_request")


@pytest.mark.clause("decided-codings")
@pytest.mark.parametrize("coding", ["gzip", "identity, gzip", ""])
async def test_an_encoded_form_is_unsupported(http: httpx2.AsyncClient, coding: str) -> None:
    headers = {"Content-Type": FORM, "Content-Encoding": coding}
    response = await http.post(TOKEN, content=gzip.compress(LOGIN.encode()), headers=headers)
    plain = await http.post(TOKEN, content=LOGIN, headers=headers | {"Content-Encoding": "Identity"})

    assert_error(response, 415, "invalid_request")
    assert "Content-Encoding" in response.json()["error_description"]
    assert plain.status_code == 200


@pytest.mark.clause("decided-charset-parameter-allowed")
async def test_a_form_of_iso_8859_1_is_ascii(http: httpx2.AsyncClient) -> None:
    form = f"{FORM};charset=ISO-8859-1"

    assert (await post(http, LOGIN, form)).status_code == 200
    assert_error(await post(http, LOGIN.encode() + b"&x=\xe4", form), 400, "invalid_request")


async def test_an_empty_body_names_no_client(http: httpx2.AsyncClient) -> None:
    assert_error(await post(http, ""), 401, "invalid_client")


@pytest.mark.clause("6749-3.2-parameter-once", "6749-5.2-invalid-request", "decided-repeated-means-known")
@pytest.mark.parametrize("name", sorted(TOKEN_PARAMETERS))
async def test_repeated_known_parameter_is_invalid_request(http: httpx2.AsyncClient, name: str) -> None:
    value = (PHONE_APP.credentials | login_form(ALICE)).get(name, "x")
    once = LOGIN if f"{name}=" in LOGIN else f"{LOGIN}&{name}="

    assert_error(await post(http, f"{once}&{urlencode({name: value})}"), 400, "invalid_request")
    assert_error(await post(http, f"{LOGIN}&{name}=&{name}="), 400, "invalid_request")


@pytest.mark.clause("6749-3.2-parameter-once", "decided-repeated-means-known", "7009-2.2.1-error-format")
@pytest.mark.parametrize("name", ["token", "token_type_hint", "client_id"])
async def test_repeated_parameter_at_revoke_is_invalid_request(http: httpx2.AsyncClient, name: str) -> None:
    body = f"client_id=phone-app&token=x&token_type_hint=x&{name}=x"

    assert_error(await post(http, body, address=REVOKE), 400, "invalid_request")


@pytest.mark.clause("6749-3.2-empty-parameter-omitted", "decided-empty-parameter-omitted")
async def test_a_parameter_without_a_value_counts_as_left_out(http: httpx2.AsyncClient) -> None:
    refresh_token = tokens_of(await post(http, f"{LOGIN}&client_secret=&code="))["refresh_token"]

    assert (await PHONE_APP.refresh(http, refresh_token, scope="")).status_code == 200
    assert_error(await post(http, LOGIN.replace("password=correct", "password=&x=")), 400, "invalid_request")
    assert_error(await post(http, "client_id=phone-app&token=", address=REVOKE), 400, "invalid_request")
    assert_error(await post(http, "client_id=&token=x", address=REVOKE), 401, "invalid_client")


@pytest.mark.clause(
    "decided-parameters-in-query",
    "6749-2.3.1-no-credentials-in-uri",
    "6750-5.3-no-token-in-url",
    "6819-4.3.1-access-tokens-on-the-wire",
    "6819-4.3.3-client-credentials-on-the-wire",
    "6819-4.4.3.4-passwords-on-the-wire",
)
@pytest.mark.parametrize(
    ("address", "query"),
    [(TOKEN, "client_secret=x"), (TOKEN, "client_id=phone-app"), (TOKEN, "p%61ssword=x"), (REVOKE, "token=x")],
)
async def test_a_known_parameter_in_the_query_is_invalid_request(
    http: httpx2.AsyncClient, address: str, query: str
) -> None:
    assert_error(await post(http, LOGIN, address=f"{address}?{query}"), 400, "invalid_request")


@pytest.mark.clause("6749-3.2-unknown-parameter-ignored")
async def test_an_unknown_parameter_in_the_query_is_ignored(http: httpx2.AsyncClient) -> None:
    assert (await post(http, LOGIN, address=f"{TOKEN}?trace=1&trace=2")).status_code == 200


@pytest.mark.clause("decided-body-limit")
@pytest.mark.parametrize("address", [TOKEN, REVOKE])
async def test_a_body_over_64_kib_is_too_large(http: httpx2.AsyncClient, address: str) -> None:
    body = f"{LOGIN}&token=x&x=".ljust(LIMIT, "x")

    assert (await post(http, body, address=address)).status_code == 200
    assert_error(await post(http, body + "x", address=address), 413, "invalid_request")


@pytest.mark.clause("decided-body-limit")
async def test_a_body_that_is_sent_in_chunks_has_the_same_limit(http: httpx2.AsyncClient) -> None:
    async def chunks(count: int) -> AsyncIterator[bytes]:
        yield f"{LOGIN}&x=".ljust(1024, "x").encode()
        for _ in range(count - 1):
            yield b"x" * 1024

    headers = {"Content-Type": FORM}

    assert (await http.post(TOKEN, content=chunks(64), headers=headers)).status_code == 200
    assert_error(await http.post(TOKEN, content=chunks(65), headers=headers), 413, "invalid_request")


@pytest.mark.clause("decided-body-limit")
async def test_a_body_that_lies_about_its_length_has_the_same_limit(http: httpx2.AsyncClient) -> None:
    headers = {"Content-Type": FORM, "Content-Length": "10"}

    assert_error(await http.post(TOKEN, content=b"x" * (LIMIT + 1), headers=headers), 413, "invalid_request")


@pytest.mark.clause("decided-slow-body")
async def test_a_body_that_does_not_arrive_in_time_is_invalid_request(
    held_time: LoopTime, http: httpx2.AsyncClient
) -> None:

    async def never_ending() -> AsyncIterator[bytes]:
        yield LOGIN.encode()
        await anyio.sleep_forever()

    asking = http.post(TOKEN, content=never_ending(), headers={"Content-Type": FORM})
    began = held_time.read()
    response = await held_time.advance_until_done(asking)
    waited = held_time.read() - began

    assert -SAME_SECONDS <= waited - form.BODY_SECONDS <= STEP_SECONDS + SAME_SECONDS
    assert_error(response, 408, "invalid_request")
    assert "did not arrive in time" in response.text
    assert response.headers["Connection"] == "close"


@pytest.mark.clause("spec-4.4-no-body")
@pytest.mark.parametrize("content_type", [None, "application/json", "text/plain"])
async def test_revoke_all_reads_no_body(http: httpx2.AsyncClient, content_type: str | None) -> None:
    access_token = tokens_of(await post(http, LOGIN))["access_token"]
    headers = bearer(access_token) | ({} if content_type is None else {"Content-Type": content_type})

    assert (await http.post(REVOKE_ALL, content=b"{not a form", headers=headers)).status_code == 200
