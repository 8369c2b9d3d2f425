"""Scope in a refresh over HTTP: it may narrow the access token, and never widens it."""

import httpx2
import pytest

from service.worker import Worker
from tests.conftest import make_code
from tests.support.clients_and_users import ALICE, PHONE_APP, PHONE_CALLBACK, assert_error, tokens_of

WIDE = "realm:main role:enduser role:organisation"


async def make_wide_session(http: httpx2.AsyncClient, worker: Worker) -> str:
    """Return a refresh token for two roles, which only a code can grant."""
    code = await make_code(worker, scope=WIDE)
    return tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["refresh_token"]


@pytest.mark.clause("6749-6-scope-omitted", "6749-3.3-granted-scope-told")
async def test_refresh_without_scope_gives_the_granted_scope(http: httpx2.AsyncClient, worker: Worker) -> None:
    refresh_token = await make_wide_session(http, worker)

    assert tokens_of(await PHONE_APP.refresh(http, refresh_token))["scope"] == WIDE
    assert tokens_of(await PHONE_APP.refresh(http, refresh_token, scope=""))["scope"] == WIDE


@pytest.mark.clause("decided-narrowing-keeps-the-grant", "6749-6-new-token-same-scope", "spec-2.1-final-scope")
async def test_a_scope_narrows_the_access_token_and_not_the_family(http: httpx2.AsyncClient, worker: Worker) -> None:
    narrow = "realm:main role:organisation"
    refresh_token = await make_wide_session(http, worker)

    narrowed = tokens_of(await PHONE_APP.refresh(http, refresh_token, scope=narrow))
    afterwards = tokens_of(await PHONE_APP.refresh(http, narrowed["refresh_token"]))

    assert narrowed["scope"] == narrow
    assert afterwards["scope"] == WIDE


@pytest.mark.clause("decided-narrowing-keeps-the-grant")
async def test_a_retry_is_narrowed_by_its_own_scope(http: httpx2.AsyncClient, worker: Worker) -> None:
    refresh_token = await make_wide_session(http, worker)
    await PHONE_APP.refresh(http, refresh_token, scope="realm:main role:organisation")

    assert tokens_of(await PHONE_APP.refresh(http, refresh_token))["scope"] == WIDE
    retried = tokens_of(await PHONE_APP.refresh(http, refresh_token, scope="realm:main role:enduser"))
    assert retried["scope"] == "realm:main role:enduser"


@pytest.mark.clause("decided-narrowing-without-role")
async def test_a_scope_without_a_role_is_invalid(http: httpx2.AsyncClient) -> None:
    refresh_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]

    assert_error(await PHONE_APP.refresh(http, refresh_token, scope="realm:main"), 400, "invalid_scope")


@pytest.mark.clause("6749-6-scope-not-wider", "6749-5.2-invalid-scope", "decided-invalid-scope-400")
@pytest.mark.clause("decided-reserved-roles")
@pytest.mark.parametrize(
    "scope",
    [
        pytest.param("realm:main role:organisation", id="a role that the user has but did not grant"),
        pytest.param("realm:main role:enduser role:organisation", id="one role more"),
        pytest.param("realm:cep role:enduser", id="another realm"),
        pytest.param("realm:main realm:cep role:enduser", id="one realm more"),
        pytest.param("realm:main role:device", id="a reserved role"),
        pytest.param("realm:main role:admin", id="a role beyond the client"),
        pytest.param("realm:main role:root", id="an unknown role"),
        pytest.param("realm:main  role:enduser", id="two spaces"),
    ],
)
async def test_refused_scope_does_not_spend_the_token(http: httpx2.AsyncClient, scope: str) -> None:
    first = tokens_of(await PHONE_APP.log_in(http, ALICE))["refresh_token"]

    refused = await PHONE_APP.refresh(http, first, scope=scope)
    assert_error(refused, 400, "invalid_scope")
    if scope == "realm:main role:enduser role:organisation":
        assert refused.json()["error_description"] == "role:organisation was not part of the original grant."
    second = tokens_of(await PHONE_APP.refresh(http, first))["refresh_token"]
    assert (await PHONE_APP.refresh(http, second)).status_code == 200
