"""The password grant in an external realm: right and wrong passwords, and responses without a login."""

from __future__ import annotations

import httpx2
import pytest
import redis

from service.protocol.user import identify_user
from service.store.keys import login_key
from tests.realms.login_steps import CEP_SCOPE, EMAIL, SUB, RegisterRealm, log_in_with_password
from tests.realms.password_logins import (
    WRONG_ALICE,
    assert_provider_unavailable,
    count_sessions,
    guess,
    log_in,
    sign,
)
from tests.support.clients_and_users import (
    ALICE,
    PHONE_APP,
    access_name_of,
    assert_error,
    tokens_of,
    verify,
)
from tests.support.fake_provider import (
    TOKEN,
    USERNAME,
    FakeProvider,
    Reply,
    running_provider,
)


async def user_of(http: httpx2.AsyncClient, response: httpx2.Response) -> tuple[str, str]:
    """Return the realm and the user name that an API sees."""
    answer = await verify(http, tokens_of(response)["access_token"])
    return answer.headers["x-auth-realm"], answer.headers["x-auth-user"]


@pytest.mark.clause("spec-2.2-realm-cep", "decided-cep-password-grant", "spec-5.4-scope-selects")
async def test_the_right_pair_gives_tokens_of_the_user_whom_the_provider_names(
    http: httpx2.AsyncClient, cep: None
) -> None:
    response = await log_in(http)

    assert tokens_of(response)["scope"] == CEP_SCOPE
    assert await user_of(http, response) == ("cep", SUB)
    assert (await PHONE_APP.refresh(http, tokens_of(response)["refresh_token"])).status_code == 200


@pytest.mark.clause("decided-cep-password-grant")
async def test_what_was_typed_is_not_who_it_is(http: httpx2.AsyncClient, provider: FakeProvider, cep: None) -> None:
    """A provider that accepts several spellings of a name still identifies one user."""
    tokens = {"access_token": "t", "token_type": "Bearer", "id_token": sign(provider)}
    provider.answer(TOKEN, Reply(200, tokens))

    answers = [await log_in_with_password(http, name, "any") for name in ("zoe", "ZOE", EMAIL, ALICE.username)]

    assert {await user_of(http, answer) for answer in answers} == {("cep", SUB)}
    shards = {access_name_of(tokens_of(answer)["access_token"]).shard for answer in answers}
    assert shards == {identify_user("cep", SUB).shard}


@pytest.mark.clause("decided-invalid-grant-400", "6749-5.2-invalid-grant", "decided-cep-password-grant")
async def test_a_wrong_password_there_is_answered_in_the_words_of_a_wrong_password_here(
    http: httpx2.AsyncClient, cep: None, store: redis.Redis
) -> None:
    theirs, ours = await guess(http), await PHONE_APP.log_in(http, WRONG_ALICE)

    assert_error(theirs, 400, "invalid_grant")
    assert theirs.content == ours.content
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-username")
async def test_an_email_that_is_not_called_verified_is_nobody(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    register_realm: RegisterRealm,
    store: redis.Redis,
) -> None:
    await register_realm(username_claim="email")
    provider.claims["email_verified"] = False

    assert_error(await log_in(http), 400, "invalid_grant")
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-email-folded")
async def test_capitals_do_not_lead_round_the_record_of_a_user(
    http: httpx2.AsyncClient, provider: FakeProvider, register_realm: RegisterRealm
) -> None:
    """Otherwise another spelling would get the default role, as a user without an entry does."""
    await register_realm({"username": EMAIL, "realm": "cep", "roles": []}, username_claim="email")
    provider.claims["email"] = EMAIL.upper()

    assert_error(await log_in(http), 400, "invalid_scope")


@pytest.mark.clause("decided-external-realm-down")
async def test_a_provider_that_is_not_there_is_an_outage_until_it_is_back(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with provider.stopped():
        assert_provider_unavailable(await log_in(http))

    assert "it cannot be reached: " in caplog.text
    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
async def test_a_redirect_is_not_followed_and_takes_no_password_along(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None
) -> None:
    async with running_provider() as another:
        provider.answer(TOKEN, Reply(307, headers={"location": another.url + TOKEN}))

        assert_provider_unavailable(await log_in(http))

        assert another.requests == []
    assert len(provider.calls(TOKEN)) == 1


REFUSALS_OF_OURS = {
    "our secret is wrong": (401, {"error": "invalid_client"}),
    "no password grant there": (400, {"error": "unsupported_grant_type"}),
    "too many requests": (429, {"error": "invalid_grant"}),
}


REFUSALS_OF_A_LOGIN = {
    "an error of its own": (400, {"error": "consent_required"}),
    "a 403": (403, {"error": "access_denied"}),
}


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize(
    "reply", (REFUSALS_OF_A_LOGIN | REFUSALS_OF_OURS).values(), ids=REFUSALS_OF_A_LOGIN | REFUSALS_OF_OURS
)
async def test_only_a_refusal_that_may_hide_a_wrong_password_is_counted_and_apart_from_guesses(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    cep: None,
    store: redis.Redis,
    reply: tuple[int, dict[str, object]],
) -> None:
    provider.answer(TOKEN, Reply(*reply))

    assert_provider_unavailable(await log_in(http))

    of_the_login = [login_key(identify_user("cep", USERNAME), "refused")]
    assert list(store.scan_iter("login:*")) == (of_the_login if reply in REFUSALS_OF_A_LOGIN.values() else [])
    assert not list(store.scan_iter("address:*:login:*"))
