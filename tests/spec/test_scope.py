"""Scopes over HTTP: their syntax, the granted scope, and its spelling in the response."""

import re
from dataclasses import replace

import httpx2
import pytest

from service.protocol.scope import SCOPE_ITEMS
from service.worker import Worker
from tests.conftest import make_code
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    PHONE_CALLBACK,
    UserCredentials,
    assert_error,
    revoke_all,
    tokens_of,
)


@pytest.mark.clause(
    "spec-4.2-password-one-realm-one-role",
    "spec-8-one-realm-one-role",
    "decided-invalid-scope-400",
    "6819-4.4.3.2-unagreed-scope",
)
@pytest.mark.clause("6749-3.3-grammar", "6749-a.4-scope-characters", "6749-5.2-invalid-scope", "spec-2.2-items")
@pytest.mark.clause("spec-2.2-realms", "spec-2.2-roles")
@pytest.mark.parametrize(
    "scope",
    [
        pytest.param("realm:main", id="no role"),
        pytest.param("role:enduser", id="no realm"),
        pytest.param("realm:main role:enduser role:organisation", id="two roles"),
        pytest.param("realm:main realm:cep role:enduser", id="two realms"),
        pytest.param("realm:main  role:enduser", id="two spaces"),
        pytest.param("realm:other role:enduser", id="an unknown realm"),
        pytest.param("realm:main role:root", id="an unknown role"),
        pytest.param("realm:main role:enduser role:enduser", id="an item twice"),
    ],
)
async def test_login_scope_names_one_known_realm_and_one_known_role(http: httpx2.AsyncClient, scope: str) -> None:
    assert_error(await PHONE_APP.log_in(http, ALICE, scope), 400, "invalid_scope")


@pytest.mark.clause("decided-invalid-scope-names-the-item", "6749-5.2-description-characters")
@pytest.mark.parametrize(
    ("scope", "named"),
    [
        pytest.param("realm:main role:root", "role:root", id="unknown"),
        pytest.param("realm:main role:enduser role:enduser", "role:enduser", id="repeated"),
        pytest.param(" ".join([*SCOPE_ITEMS, "role:admin", "role:x"]), "role:admin", id="repeated at the end"),
        pytest.param("realm:main role:admin", "role:admin", id="beyond the client"),
        pytest.param("realm:cep role:enduser", "realm:cep", id="a realm without a login"),
        pytest.param("realm:main role:device", "role:device", id="beyond the user"),
    ],
)
async def test_an_invalid_scope_names_the_refused_item(http: httpx2.AsyncClient, scope: str, named: str) -> None:
    assert named in re.split(r"[ .]", (await PHONE_APP.log_in(http, ALICE, scope)).json()["error_description"])


@pytest.mark.clause("decided-invalid-scope-names-the-item", "decided-description-tells-no-secret")
async def test_a_refused_item_is_named_within_bounds(http: httpx2.AsyncClient) -> None:
    long = await PHONE_APP.log_in(http, ALICE, "x" * 60_000)
    hostile = await PHONE_APP.log_in(http, ALICE, 'realm:main "quoted"')
    before_password = await PHONE_APP.log_in(http, replace(ALICE, password="wrong"), "realm:main role:device")

    assert len(long.json()["error_description"]) < 120
    assert "quoted" not in hostile.json()["error_description"]
    assert before_password.json()["error"] == "invalid_grant"


@pytest.mark.clause("decided-same-name-in-two-realms")
async def test_users_of_one_name_in_two_realms_are_two_users(http: httpx2.AsyncClient, worker: Worker) -> None:
    namesake = UserCredentials(ALICE.username, "", realm="cep")
    code = await make_code(worker, namesake, scope="realm:cep role:enduser")
    theirs = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))
    ours = tokens_of(await PHONE_APP.log_in(http, ALICE))

    await revoke_all(http, ours["access_token"])

    assert theirs["scope"] == "realm:cep role:enduser"
    assert_error(await PHONE_APP.refresh(http, ours["refresh_token"]), 400, "invalid_grant")
    assert (await PHONE_APP.refresh(http, theirs["refresh_token"])).status_code == 200


@pytest.mark.clause("6749-3.3-granted-scope-told", "6749-3.3-order-free")
async def test_a_code_is_answered_with_the_scope_that_was_allowed(http: httpx2.AsyncClient, worker: Worker) -> None:
    scope = "realm:main role:enduser role:organisation"

    tokens = tokens_of(await PHONE_APP.exchange(http, await make_code(worker, scope=scope), PHONE_CALLBACK))

    assert tokens["scope"] == scope
