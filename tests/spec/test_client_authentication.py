"""Client authentication over HTTP: by Basic or in the body, and by exactly one of them."""

import io
from dataclasses import replace
from urllib.parse import quote_plus

import httpx2
import pytest

from service.crypto.keyring import hash_generated_secret
from service.protocol.client import Client
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.support.clients_and_users import (
    ALICE,
    MADE_SECRET,
    PHONE_APP,
    READER,
    REVOKE,
    TOKEN,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    basic,
    login_form,
    tokens_of,
)

CHALLENGE = 'Basic realm="token-service"'
SECRET = "s" * 43


async def log_in_by_header(http: httpx2.AsyncClient, headers: dict[str, str], **extra: str) -> httpx2.Response:
    return await http.post(TOKEN, data=login_form(ALICE) | extra, headers=headers)


@pytest.mark.clause("6749-2.3.1-basic", "spec-4.2-basic", "spec-5.1-client-authentication")
@pytest.mark.clause("6749-2.3.1-body-credentials", "spec-4.2-body-credentials", "spec-2.3-client-record")
@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET, READER], ids=lambda client: client.client_id)
async def test_a_client_authenticates_by_basic_or_in_the_body(http: httpx2.AsyncClient, client: OAuthClient) -> None:
    assert (await log_in_by_header(http, client.basic)).status_code == 200
    assert (await client.log_in(http, ALICE)).status_code == 200


@pytest.mark.clause("6749-2.3.1-basic", "spec-4.2-basic", "spec-4.3-client-authenticates")
@pytest.mark.clause("spec-5.1-client-authentication")
async def test_basic_works_at_a_refresh_and_a_revocation_too(http: httpx2.AsyncClient) -> None:
    first = tokens_of(await log_in_by_header(http, WEB_SHOP.basic))["refresh_token"]
    form = {"grant_type": "refresh_token", "refresh_token": first}

    assert (await http.post(TOKEN, data=form, headers=WEB_SHOP.basic)).status_code == 200
    assert (await http.post(REVOKE, data={"token": first}, headers=WEB_SHOP.basic)).status_code == 200
    assert_error(await WEB_SHOP.refresh(http, first), 400, "invalid_grant")


@pytest.mark.clause("spec-4.2-client-without-secret", "6749-3.2.1-public-client-names-itself")
@pytest.mark.clause("6749-2.1-client-type-is-registered", "6819-5.2.3.1-public-clients-without-secret")
async def test_a_public_client_only_names_itself(http: httpx2.AsyncClient) -> None:
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    assert_error(await http.post(TOKEN, data=login_form(ALICE)), 401, "invalid_client")


@pytest.mark.clause("decided-public-client-empty-password")
async def test_a_public_client_may_send_basic_with_an_empty_password(http: httpx2.AsyncClient) -> None:
    assert (await log_in_by_header(http, basic("phone-app", ""))).status_code == 200
    assert (await log_in_by_header(http, basic("phone-app", ""), client_id="phone-app")).status_code == 200


@pytest.mark.clause(
    "decided-public-client-with-secret", "6749-2.1-client-type-is-registered", "6819-4.1.1-client-secret-taken"
)
async def test_a_public_client_that_sends_a_secret_is_refused(http: httpx2.AsyncClient, json_logs: io.StringIO) -> None:
    assert_error(await replace(PHONE_APP, client_secret="x").log_in(http, ALICE), 401, "invalid_client")
    assert_error(await log_in_by_header(http, basic("phone-app", "x")), 401, "invalid_client")
    assert json_logs.getvalue().count("client_secret_unexpected") == 2


@pytest.mark.clause("spec-4.2-client-without-secret", "decided-empty-parameter-omitted")
async def test_empty_secret_in_the_body_counts_as_missing(http: httpx2.AsyncClient, json_logs: io.StringIO) -> None:
    assert (await replace(PHONE_APP, client_secret="").log_in(http, ALICE)).status_code == 200
    assert_error(await replace(WEB_SHOP, client_secret="").log_in(http, ALICE), 401, "invalid_client")
    assert "client_secret_missing" in json_logs.getvalue()


@pytest.mark.clause("decided-unknown-client", "6749-5.2-invalid-client", "6749-5.2-basic-challenge")
@pytest.mark.clause("6749-2.2-identifier-alone-is-no-proof", "6749-3.2.1-client-authenticates")
@pytest.mark.parametrize(
    "client",
    [
        pytest.param(OAuthClient("web-shop", "wrong"), id="a wrong secret"),
        pytest.param(OAuthClient("web-shop", None), id="no secret"),
        pytest.param(OAuthClient("made-secret", "sha256:aVDfGWJwTq0gczQY35JMQNtnlmfD0qtWOFoT1tTwVaU"), id="its hash"),
        pytest.param(OAuthClient("nobody", "web-shop-secret"), id="an unknown client"),
        pytest.param(OAuthClient("WEB-SHOP", "web-shop-secret"), id="a client_id in other letter case"),
    ],
)
async def test_failed_client_authentications_get_the_same_answer(http: httpx2.AsyncClient, client: OAuthClient) -> None:
    reference = await http.post(TOKEN, data=login_form(ALICE) | {"client_id": "nobody", "client_secret": "nothing"})

    response = await client.log_in(http, ALICE)

    assert_error(response, 401, "invalid_client")
    assert response.headers["www-authenticate"] == CHALLENGE
    assert response.content == reference.content


@pytest.mark.clause("6749-2.3.1-basic-form-encoded", "decided-basic-encoded-and-raw")
async def test_basic_credentials_are_taken_raw_and_form_encoded(http: httpx2.AsyncClient) -> None:
    assert READER.client_secret == "a secret: with 100% + signs"
    assert (await log_in_by_header(http, basic("reader", READER.client_secret))).status_code == 200
    assert (await log_in_by_header(http, basic("reader", quote_plus(READER.client_secret)))).status_code == 200
    assert (await log_in_by_header(http, basic("%72eader", quote_plus(READER.client_secret)))).status_code == 200


@pytest.mark.clause("decided-basic-and-body-differ", "6749-2.3-one-method", "decided-invalid-request-400")
@pytest.mark.parametrize(
    "extra",
    [
        pytest.param({"client_id": "phone-app"}, id="another client_id"),
        pytest.param({"client_id": "web-shop", "client_secret": "web-shop-secret"}, id="all of it again"),
        pytest.param({"client_secret": "web-shop-secret"}, id="the secret again"),
    ],
)
async def test_basic_and_something_else_in_the_body_are_two_methods(
    http: httpx2.AsyncClient, extra: dict[str, str]
) -> None:
    assert_error(await log_in_by_header(http, WEB_SHOP.basic, **extra), 400, "invalid_request")


@pytest.mark.clause("6749-2.3-one-method")
async def test_two_authorization_headers_are_two_methods(http: httpx2.AsyncClient) -> None:
    headers = [("Authorization", WEB_SHOP.basic["Authorization"])] * 2

    assert_error(await http.post(TOKEN, data=login_form(ALICE), headers=headers), 400, "invalid_request")


@pytest.mark.clause("decided-client-scheme-any-case")
@pytest.mark.parametrize("scheme", ["basic", "bAsIc"])
async def test_the_scheme_is_recognised_in_any_letter_case(http: httpx2.AsyncClient, scheme: str) -> None:
    credentials = WEB_SHOP.basic["Authorization"].removeprefix("Basic ")

    assert (await log_in_by_header(http, {"Authorization": f"{scheme} {credentials}"})).status_code == 200


@pytest.mark.clause("decided-malformed-basic", "decided-other-authorization-scheme", "6749-5.2-basic-challenge")
@pytest.mark.clause("decided-bad-encoding")
@pytest.mark.parametrize("header", ["Basic", "Bearer web-shop-secret"])
async def test_non_basic_authorization_is_invalid_client(http: httpx2.AsyncClient, header: str) -> None:
    response = await log_in_by_header(http, {"Authorization": header})

    assert_error(response, 401, "invalid_client")
    assert response.headers["www-authenticate"] == CHALLENGE


@pytest.mark.clause("6749-2.3.1-basic-form-encoded", "decided-basic-and-body-differ")
@pytest.mark.clause("decided-basic-with-same-client-id")
async def test_body_client_id_selects_the_reading_of_basic(
    make_settings: MakeSettings, clock: Clock, worker: Worker
) -> None:
    """Two clients share one secret. Only the one with the plus sign in its id may use the password grant."""
    secret_hash = hash_generated_secret(SECRET)
    for client_id, grant_types in (("a b", ("refresh_token",)), ("a+b", ("password",))):
        client = Client(
            client_id=client_id,
            client_secret_hash=secret_hash,
            grant_types=grant_types,
            scope="realm:main role:enduser",
        )
        await worker.registry.clients.put(client)

    async with serving(make_settings(), clock) as http:
        header = basic("a+b", SECRET)
        assert (await log_in_by_header(http, header, client_id="a+b")).status_code == 200
        assert_error(await log_in_by_header(http, header, client_id="a b"), 400, "unauthorized_client")
        assert_error(await log_in_by_header(http, header, client_id="a%2Bb"), 400, "invalid_request")
