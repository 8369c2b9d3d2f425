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
    is_live,
    revoke_all,
    tokens_of,
    verify,
)
from tests.support.fake_provider import (
    CLIENT_SECRET,
    INTROSPECT,
    KEYS,
    OAUTH_METADATA,
    OPENID_METADATA,
    TOKEN,
    USERINFO,
    USERNAME,
    Answer,
    Drop,
    FakeProvider,
    Hang,
    Reply,
    running_provider,
)
from tests.support.servers import free_port


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


@pytest.mark.clause("decided-external-source", "decided-cep-password-grant")
@pytest.mark.parametrize(
    ("changes", "called_endpoints"),
    [
        pytest.param({}, [OPENID_METADATA, TOKEN, KEYS], id="the ID token"),
        pytest.param({"username_claim": "email"}, [OPENID_METADATA, TOKEN, KEYS], id="another claim of it"),
        pytest.param({"scope": "email"}, [OAUTH_METADATA, OPENID_METADATA, TOKEN, USERINFO], id="userinfo"),
        pytest.param(
            {"scope": None, "introspection_endpoint": INTROSPECT},
            [OAUTH_METADATA, OPENID_METADATA, TOKEN, INTROSPECT],
            id="introspection",
        ),
    ],
)
async def test_the_user_is_learnt_from_whatever_the_provider_has(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    register_realm: RegisterRealm,
    changes: dict[str, str | None],
    called_endpoints: list[str],
) -> None:
    whole = {key: provider.url + str(text) if key.endswith("_endpoint") else text for key, text in changes.items()}
    await register_realm(**whole)

    response = await log_in(http)

    assert await user_of(http, response) == ("cep", EMAIL if "username_claim" in changes else SUB)
    assert [request.path for request in provider.requests] == called_endpoints


@pytest.mark.clause("decided-same-name-in-two-realms")
async def test_a_user_there_with_the_name_of_one_of_ours_is_another_user(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, store: redis.Redis
) -> None:
    provider.claims["sub"] = ALICE.username
    theirs = tokens_of(await log_in(http))["access_token"]
    ours = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    assert (await revoke_all(http, theirs)).status_code == 200

    assert (is_live(store, theirs), is_live(store, ours)) == (False, True)


@pytest.mark.clause("decided-invalid-grant-400", "6749-5.2-invalid-grant", "decided-cep-password-grant")
async def test_a_wrong_password_there_is_answered_in_the_words_of_a_wrong_password_here(
    http: httpx2.AsyncClient, cep: None, store: redis.Redis
) -> None:
    theirs, ours = await guess(http), await PHONE_APP.log_in(http, WRONG_ALICE)

    assert_error(theirs, 400, "invalid_grant")
    assert theirs.content == ours.content
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize("verified", [False, None])
async def test_an_email_that_is_not_called_verified_is_nobody(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    register_realm: RegisterRealm,
    store: redis.Redis,
    verified: object,
) -> None:
    await register_realm(username_claim="email")
    provider.claims["email_verified"] = verified

    assert_error(await log_in(http), 400, "invalid_grant")
    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-email-folded")
@pytest.mark.parametrize(("listed", "named"), [(EMAIL, EMAIL.upper()), (EMAIL.upper(), EMAIL)])
async def test_capitals_do_not_lead_round_the_record_of_a_user(
    http: httpx2.AsyncClient, provider: FakeProvider, register_realm: RegisterRealm, listed: str, named: str
) -> None:
    """Otherwise another spelling would get the default role, as a user without an entry does."""
    await register_realm({"username": listed, "realm": "cep", "roles": []}, username_claim="email")
    provider.claims["email"] = named

    assert_error(await log_in(http), 400, "invalid_scope")


NONSENSE: dict[str, Answer] = {
    "no JSON": Reply(200, b"<html>Welcome</html>", {"content-type": "text/html"}),
    "a dropped connection": Drop(),
}


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("path", [OPENID_METADATA, TOKEN, KEYS])
@pytest.mark.parametrize("answer", [pytest.param(answer, id=name) for name, answer in NONSENSE.items()])
async def test_nonsense_is_an_outage_of_the_provider_and_no_login(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    cep: None,
    store: redis.Redis,
    caplog: pytest.LogCaptureFixture,
    path: str,
    answer: Answer,
) -> None:
    provider.answer(path, answer)

    assert_provider_unavailable(await log_in(http))

    assert count_sessions(store) == 0
    assert "the identity provider of realm cep fails: " in caplog.text
    provider.answer(path, None)
    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize("path", [OPENID_METADATA, TOKEN, KEYS])
async def test_a_provider_that_hangs_is_given_up_in_time(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    cep: None,
    time_passes_while_waiting: None,
    caplog: pytest.LogCaptureFixture,
    path: str,
) -> None:
    provider.answer(path, Hang())

    assert_provider_unavailable(await log_in(http))

    assert "no answer within 5 s" in caplog.text
    await provider.await_idle()


@pytest.mark.clause("decided-external-realm-down")
async def test_a_provider_that_is_not_there_is_an_outage_until_it_is_back(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, caplog: pytest.LogCaptureFixture
) -> None:
    async with provider.stopped():
        assert_provider_unavailable(await log_in(http))

    assert "it cannot be reached: " in caplog.text
    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize("host", ["nobody.invalid", "a..invalid"])
async def test_a_host_that_leads_nowhere_is_an_outage(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, host: str
) -> None:
    """A metadata document may contain a host that is not a valid name."""
    provider.metadata["token_endpoint"] = f"https://{host}:{free_port()}/token"

    assert_provider_unavailable(await log_in(http))


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("path", [OPENID_METADATA, TOKEN, KEYS])
async def test_a_redirect_is_not_followed_and_takes_no_password_along(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, path: str
) -> None:
    async with running_provider() as another:
        provider.answer(path, Reply(307, headers={"location": another.url + path}))

        assert_provider_unavailable(await log_in(http))

        assert another.requests == []
    assert len(provider.calls(path)) == 1


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


@pytest.mark.clause("decided-external-realm-down")
async def test_a_secret_of_ours_that_the_provider_does_not_know_is_told_to_the_operator(
    http: httpx2.AsyncClient, register_realm: RegisterRealm, caplog: pytest.LogCaptureFixture
) -> None:
    await register_realm(client_secret="not the one")

    assert_provider_unavailable(await log_in(http))

    assert "it answers with the error invalid_client" in caplog.text
    assert "not the one" not in caplog.text


UNBELIEVABLE: dict[str, dict[str, dict[str, object]]] = {
    "an ID token that is none": {"token_response": {"id_token": "x"}},
    "no claim": {"claims": {"sub": None}},
    "another audience": {"id_token_claims": {"aud": "another client"}},
    "metadata of another issuer": {"metadata": {"issuer": "https://evil.example"}},
    "metadata that leads to plain HTTP elsewhere": {"metadata": {"token_endpoint": "http://evil.example/token"}},
}


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked", "decided-external-username")
@pytest.mark.clause("decided-external-id-token", "8414-3.3-issuer-checked")
@pytest.mark.parametrize("changes", [pytest.param(changes, id=name) for name, changes in UNBELIEVABLE.items()])
async def test_an_answer_that_cannot_be_believed_is_an_outage_and_no_login(
    http: httpx2.AsyncClient,
    provider: FakeProvider,
    cep: None,
    store: redis.Redis,
    changes: dict[str, dict[str, object]],
) -> None:
    for name, changed in changes.items():
        getattr(provider, name).update(changed)

    assert_provider_unavailable(await log_in(http))

    assert count_sessions(store) == 0


@pytest.mark.clause("decided-external-id-token")
async def test_an_id_token_that_somebody_else_signed_is_not_believed(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None
) -> None:
    for key in (None, CLIENT_SECRET.encode()):
        provider.sign_with(key)
        assert_provider_unavailable(await log_in(http))


@pytest.mark.clause("decided-external-source", "decided-external-answer-checked")
async def test_userinfo_of_somebody_else_than_the_id_token_is_not_believed(
    http: httpx2.AsyncClient, provider: FakeProvider, register_realm: RegisterRealm
) -> None:
    await register_realm(username_claim="nickname")
    provider.userinfo = {"nickname": "zoe"}
    assert await user_of(http, await log_in(http)) == ("cep", "zoe")

    provider.userinfo |= {"sub": "another"}

    assert_provider_unavailable(await log_in(http))
