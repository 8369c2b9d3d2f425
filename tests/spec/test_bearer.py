"""The bearer of revokeAll over HTTP: an access token in the Authorization header, and nowhere else."""

import re

import httpx2
import pytest

from service.worker import Worker
from tests.conftest import Clock, make_code
from tests.support.clients_and_users import ALICE, PHONE_APP, REVOKE_ALL, WEB_SHOP, assert_error, revoke_all, tokens_of

CHALLENGE = re.compile(
    r'Bearer realm="[^"\\]+"(, error="[a-z_]+", error_description="[\x20-\x21\x23-\x5B\x5D-\x7E]+")?'
)


def assert_challenged(response: httpx2.Response, error: str | None) -> None:
    """Check a Bearer challenge: each attribute stands once, and the error is in challenge and body, or in neither."""
    challenge = response.headers["www-authenticate"]
    attributes = re.findall(r"(\w+)=", challenge)

    assert CHALLENGE.fullmatch(challenge)
    assert len(set(attributes)) == len(attributes)
    assert (f'error="{error}"' in challenge) is (error is not None)


@pytest.mark.clause("6750-2.1-authorization-header", "spec-5.3-bearer-at-revoke-all", "decided-client-scheme-any-case")
@pytest.mark.clause("6819-5.4.1-authorization-header")
@pytest.mark.parametrize("scheme", ["Bearer", "bEARER"])
async def test_the_scheme_is_bearer_in_any_letter_case(http: httpx2.AsyncClient, scheme: str) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    response = await http.post(REVOKE_ALL, headers={"Authorization": f"{scheme} {access_token}"})

    assert response.status_code == 200


@pytest.mark.clause("decided-bearer-missing", "6750-3-challenge", "6750-3-scheme-bearer", "6750-3-attributes-once")
@pytest.mark.clause("6750-3.1-no-error-without-credentials", "spec-7.5-revoke-all-always-200", "decided-error-statuses")
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer"}, {"Authorization": ""}, WEB_SHOP.basic])
async def test_missing_bearer_gets_a_bare_challenge(http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    response = await http.post(REVOKE_ALL, headers=headers)

    assert (response.status_code, response.content) == (401, b"")
    assert response.headers["www-authenticate"] == 'Bearer realm="token-service"'
    assert_challenged(response, None)
    assert response.headers["cache-control"] == "no-store, no-cache"


@pytest.mark.clause("decided-bearer-invalid", "6750-3.1-invalid-token-401", "6750-3-error-attribute")
@pytest.mark.clause("6750-3-characters", "6750-2.1-syntax", "6750-3-attributes-once", "6750-3-challenge")
@pytest.mark.clause("6749-10.3-unforgeable")
@pytest.mark.parametrize(
    "bearer",
    [
        pytest.param("x", id="nonsense"),
        pytest.param("tsat1_" + "0" * 47, id="an unknown one"),
        pytest.param('"quoted"', id="quotation marks"),
        pytest.param("tsat1_é", id="not ASCII"),
        pytest.param("x" * 8000, id="a very long one"),
    ],
)
async def test_bearer_without_live_access_token_is_invalid_token(http: httpx2.AsyncClient, bearer: str) -> None:
    response = await http.post(REVOKE_ALL, headers=[(b"Authorization", b"Bearer " + bearer.encode())])

    assert_error(response, 401, "invalid_token")
    assert_challenged(response, "invalid_token")


@pytest.mark.clause("decided-refresh-token-is-no-bearer", "6750-3.1-invalid-token-401")
async def test_refresh_token_and_code_are_refused_as_bearer(http: httpx2.AsyncClient, worker: Worker) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]

    assert_error(await revoke_all(http, refresh_token), 401, "invalid_token")
    assert_error(await revoke_all(http, await make_code(worker)), 401, "invalid_token")
    assert (await PHONE_APP.refresh(http, refresh_token)).status_code == 200


@pytest.mark.clause("decided-bearer-invalid", "6750-3.1-invalid-token-401", "6750-5.2-lifetime-limited")
async def test_an_expired_or_revoked_access_token_is_invalid_token(http: httpx2.AsyncClient, clock: Clock) -> None:
    expired = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    clock.advance(600)
    revoked = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    await PHONE_APP.revoke(http, revoked)

    for access_token in (expired, revoked):
        response = await revoke_all(http, access_token)
        assert_error(response, 401, "invalid_token")
        assert_challenged(response, "invalid_token")


@pytest.mark.clause("6750-2-one-method", "6750-2.2-no-token-in-body", "6750-2.3-no-token-in-query")
@pytest.mark.clause("6750-5.3-no-token-in-url")
async def test_access_token_in_body_or_query_is_refused(http: httpx2.AsyncClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    in_body = await http.post(REVOKE_ALL, data={"access_token": access_token})
    in_query = await http.post(f"{REVOKE_ALL}?access_token={access_token}")
    in_cookie = await http.post(REVOKE_ALL, headers={"Cookie": f"access_token={access_token}"})

    assert [in_body.status_code, in_query.status_code, in_cookie.status_code] == [401] * 3
    assert (await revoke_all(http, access_token)).status_code == 200


@pytest.mark.clause("6750-3-challenge", "6750-3.1-invalid-request-400")
async def test_two_bearers_are_invalid_request(http: httpx2.AsyncClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    response = await http.post(REVOKE_ALL, headers=[("Authorization", f"Bearer {access_token}")] * 2)

    assert_error(response, 400, "invalid_request")
    assert_challenged(response, "invalid_request")
    assert (await revoke_all(http, access_token)).status_code == 200
