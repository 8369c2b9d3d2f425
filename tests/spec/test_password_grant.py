"""The password grant over HTTP: tokens for a user's name and password."""

from dataclasses import replace

import httpx2
import msgspec
import pytest
from argon2 import PasswordHasher

from service.crypto.password_hashing import hash_password
from service.protocol.user import identify_user
from service.worker import Worker
from tests.support.browser import change_user
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    GATEWAY,
    METER,
    PHONE_APP,
    READER,
    TOKEN,
    WEB_SHOP,
    UserCredentials,
    assert_error,
    login_form,
    tokens_of,
)
from tests.support.invalidations import await_invalidations


@pytest.mark.clause("6749-4.3.3-token-response", "spec-4.2-password-grant", "spec-5.2-user-by-password-grant")
@pytest.mark.clause("spec-1-authenticates-and-issues", "spec-4.2-password-email", "spec-2.2-realm-main")
async def test_a_user_gets_tokens_for_the_right_password(http: httpx2.AsyncClient) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))

    assert tokens["scope"] == "realm:main role:enduser"
    assert tokens["access_token"] != tokens["refresh_token"]


@pytest.mark.clause("decided-user-names-one-form")
@pytest.mark.parametrize("username", ["ALICE@EXAMPLE.COM", "Alice@example.com"])
async def test_user_names_are_case_insensitive_in_ascii(http: httpx2.AsyncClient, username: str) -> None:
    assert (await PHONE_APP.log_in(http, replace(ALICE, username=username))).status_code == 200


@pytest.mark.clause("decided-user-names-one-form")
async def test_capitals_in_a_registered_name_do_not_matter(http: httpx2.AsyncClient) -> None:
    meter = replace(METER, username="meter@example.com")

    assert (await PHONE_APP.log_in(http, meter, "realm:main role:device")).status_code == 200


@pytest.mark.clause("decided-user-names-one-form")
@pytest.mark.parametrize(
    "typed", [" alice@example.com", "alice@example.com\u200b", "alice@example.com\u00a0"], ids=ascii
)
async def test_blanks_around_a_user_name_are_ignored(http: httpx2.AsyncClient, typed: str) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, replace(ALICE, username=typed)))

    described = await AUDITOR.introspect(http, tokens["access_token"])
    assert described.json()["username"] == ALICE.username


async def test_a_user_name_is_not_completed(http: httpx2.AsyncClient) -> None:
    assert_error(await PHONE_APP.log_in(http, replace(ALICE, username="alice")), 400, "invalid_grant")


@pytest.mark.clause("decided-passwords-nfc")
async def test_the_letters_of_a_password_may_be_composed_or_not(http: httpx2.AsyncClient, worker: Worker) -> None:
    composed, decomposed = "p\u00e4ssw\u00f6rd of alice", "pa\u0308sswo\u0308rd of alice"
    for stored in (hash_password(decomposed), PasswordHasher(memory_cost=64, time_cost=1).hash(decomposed)):
        await change_user(worker, ALICE, password_hash=stored)
        for typed in (decomposed, composed):
            assert (await PHONE_APP.log_in(http, replace(ALICE, password=typed))).status_code == 200


@pytest.mark.clause("6749-5.2-invalid-grant", "decided-invalid-grant-400", "6749-4.3.2-password-validated")
@pytest.mark.parametrize("password", ["wrong", "Correct horse battery staple", "x" * 5000])
async def test_a_wrong_password_is_invalid_grant(http: httpx2.AsyncClient, password: str) -> None:
    assert_error(await PHONE_APP.log_in(http, replace(ALICE, password=password)), 400, "invalid_grant")


@pytest.mark.clause("decided-unknown-user-costs-the-same")
async def test_unknown_user_and_wrong_password_look_the_same(http: httpx2.AsyncClient) -> None:
    wrong = await PHONE_APP.log_in(http, replace(ALICE, password="wrong"))
    unknown = await PHONE_APP.log_in(http, UserCredentials("nobody@example.com", "wrong"))

    assert wrong.content == unknown.content
    assert (400, wrong.headers) == (unknown.status_code, unknown.headers)


@pytest.mark.clause("decided-disabled-user")
async def test_a_disabled_user_is_answered_like_a_wrong_password(http: httpx2.AsyncClient, worker: Worker) -> None:
    wrong = await PHONE_APP.log_in(http, replace(ALICE, password="wrong"))
    alice = await worker.registry.users.find(identify_user("main", ALICE.username))
    assert alice is not None
    await worker.registry.users.put(msgspec.structs.replace(alice, disabled=True))
    await await_invalidations(worker)

    disabled = await PHONE_APP.log_in(http, ALICE)

    assert (400, wrong.content) == (disabled.status_code, disabled.content)


@pytest.mark.clause("decided-reserved-roles", "spec-2.2-roles")
async def test_device_role_needs_client_and_user(http: httpx2.AsyncClient) -> None:
    scope = "realm:main role:device"

    assert tokens_of(await PHONE_APP.log_in(http, METER, scope))["scope"] == scope
    assert_error(await PHONE_APP.log_in(http, ALICE, scope), 400, "invalid_scope")
    assert_error(await WEB_SHOP.log_in(http, METER, scope), 400, "invalid_scope")


@pytest.mark.clause("decided-realm-without-login", "spec-2.2-realms")
async def test_a_realm_without_a_login_is_refused_cleanly(http: httpx2.AsyncClient) -> None:
    assert_error(await PHONE_APP.log_in(http, ALICE, "realm:cep role:enduser"), 400, "invalid_scope")


@pytest.mark.clause(
    "spec-1-password-not-for-third-parties", "6749-10.7-password-grant-rare", "6819-4.1.4-embedded-browser"
)
@pytest.mark.clause("6749-5.2-unauthorized-client", "decided-unauthorized-client-400")
async def test_a_client_without_the_password_grant_cannot_use_it(http: httpx2.AsyncClient) -> None:
    assert_error(await GATEWAY.log_in(http, ALICE), 400, "unauthorized_client")


@pytest.mark.clause(
    "spec-1-short-access-long-refresh", "decided-refresh-needs-the-grant", "6819-4.4.3.3-access-kept-by-refreshing"
)
@pytest.mark.clause("6819-5.2.2.1-restricted-issuance", "6749-5.2-unauthorized-client")
async def test_refresh_token_needs_the_refresh_grant_to_be_used(http: httpx2.AsyncClient) -> None:
    tokens = tokens_of(await READER.log_in(http, ALICE))

    assert_error(await READER.refresh(http, tokens["refresh_token"]), 400, "unauthorized_client")


@pytest.mark.clause("6749-4.3.2-username-required", "6749-4.3.2-password-required", "6749-5.2-invalid-request")
@pytest.mark.parametrize("name", ["username", "password"])
async def test_a_login_without_name_or_password_is_invalid_request(http: httpx2.AsyncClient, name: str) -> None:
    form = PHONE_APP.credentials | login_form(ALICE)

    response = await http.post(TOKEN, data={key: value for key, value in form.items() if key != name})

    assert_error(response, 400, "invalid_request")


@pytest.mark.clause("6749-a.15-username-characters", "6749-a.16-password-characters", "6749-10.14-input-validated")
@pytest.mark.parametrize("character", ["\n", "\x00", "\ufffe"], ids=repr)
async def test_control_character_in_credentials_is_refused(http: httpx2.AsyncClient, character: str) -> None:
    name = replace(ALICE, username=f"alice{character}@example.com")
    password = replace(ALICE, password=f"correct horse{character}battery staple")

    assert_error(await PHONE_APP.log_in(http, name), 400, "invalid_request")
    assert_error(await PHONE_APP.log_in(http, password), 400, "invalid_request")


@pytest.mark.clause("6749-3.3-omitted-scope", "6749-5.2-invalid-scope", "decided-invalid-scope-400")
async def test_a_login_without_a_scope_is_invalid_scope(http: httpx2.AsyncClient) -> None:
    form = PHONE_APP.credentials | login_form(ALICE)

    response = await http.post(TOKEN, data={key: value for key, value in form.items() if key != "scope"})

    assert_error(response, 400, "invalid_scope")


@pytest.mark.clause("6749-4.3.2-client-authenticates", "spec-4.2-secret-supplied")
@pytest.mark.clause("6749-2.2-identifier-alone-is-no-proof")
async def test_a_client_with_a_secret_sends_it_with_a_password(http: httpx2.AsyncClient) -> None:
    assert_error(await replace(WEB_SHOP, client_secret=None).log_in(http, ALICE), 401, "invalid_client")
