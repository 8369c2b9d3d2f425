"""/oauth2/v1/verify over HTTP: tells a proxy whether a request may pass and for which user, by 200, 401, 403 or 503."""

import re
from collections.abc import Mapping
from urllib.parse import unquote

import httpx2
import pytest
import redis

from service.protocol.user import User, identify_user
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, make_code, serving
from tests.support.clients_and_users import (
    ALICE,
    GATEWAY,
    PHONE_APP,
    PHONE_CALLBACK,
    VERIFY,
    WEB_SHOP,
    UserCredentials,
    access_key_of,
    assert_error,
    bearer,
    revoke_all,
    tokens_of,
    verify,
)
from tests.support.redis_monitor import ONE_SERVER, recording_commands
from tests.support.waiting import until_status

METHODS = ["GET", "HEAD", "POST", "OPTIONS", "get", "X-ANYTHING"]
NEEDED = "realm:main role:enduser"


def identity_of(response: httpx2.Response) -> dict[str, str]:
    return {name: value for name, value in response.headers.items() if name.startswith("x-auth-")}


async def exchange(
    http: httpx2.AsyncClient, worker: Worker, credentials: UserCredentials, scope: str = NEEDED
) -> Mapping[str, str]:
    code = await make_code(worker, credentials, scope=scope)
    return tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))


def rewrite(store: redis.Redis, access_token: str, line: int, text: str) -> None:
    """Change one line of the access token's record."""
    key = access_key_of(access_token)
    lines = str(store.get(key)).split("\n")
    store.set(key, "\n".join([*lines[:line], text, *lines[line + 1 :]]), keepttl=True)


@pytest.mark.clause(
    "decided-verify-answers",
    "decided-verify-headers",
    "6750-2.1-authorization-header-at-lookups",
    "6819-4.4.2.6-token-of-another-client",
)
async def test_live_token_is_200_with_user_and_client(http: httpx2.AsyncClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    response = await verify(http, access_token)

    assert (response.status_code, response.content) == (200, b"")
    identity = identity_of(response)
    assert 598 <= int(identity.pop("x-auth-expires-in")) <= 600
    assert identity == {
        "x-auth-subject": identify_user("main", ALICE.username).digest,
        "x-auth-realm": "main",
        "x-auth-user": ALICE.username,
        "x-auth-client": "phone-app",
        "x-auth-scope": NEEDED,
    }
    assert response.headers["cache-control"] == "no-store"
    assert response.headers["content-length"] == "0"


@pytest.mark.clause("decided-verify-answers", "decided-verify-any-method")
@pytest.mark.parametrize("method", METHODS)
async def test_all_methods_get_the_same_answer(http: httpx2.AsyncClient, method: str) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    passed = await http.request(method, VERIFY, headers=bearer(access_token))
    missing = await http.request(method, VERIFY)
    wrong = await http.request(method, VERIFY, headers=bearer("x"))
    out_of_scope = await http.request(method, f"{VERIFY}?scope=role:admin", headers=bearer(access_token))

    assert [each.status_code for each in (passed, missing, wrong, out_of_scope)] == [200, 401, 401, 403]
    assert identity_of(passed)["x-auth-user"] == ALICE.username


@pytest.mark.clause("decided-bearer-missing", "6750-3-challenge", "6750-3.1-no-error-without-credentials")
@pytest.mark.parametrize("headers", [{}, {"Authorization": "Bearer"}, {"Authorization": ""}, WEB_SHOP.basic])
async def test_missing_bearer_gets_a_bare_challenge(http: httpx2.AsyncClient, headers: dict[str, str]) -> None:
    response = await http.get(f"{VERIFY}?scope=role:admin", headers=headers)

    assert (response.status_code, response.content) == (401, b"")
    assert response.headers["www-authenticate"] == 'Bearer realm="token-service"'


@pytest.mark.clause("decided-bearer-invalid", "6750-3.1-invalid-token-401", "6750-3-error-attribute", "6750-2.1-syntax")
@pytest.mark.parametrize("text", ["x", "tsat1_" + "0" * 47, '"quoted"', "a b", "tsat1_é", "x" * 8000, "=", "a\tb"])
async def test_foreign_token_is_invalid_token(http: httpx2.AsyncClient, text: str) -> None:
    response = await http.get(VERIFY, headers=[(b"Authorization", b"Bearer " + text.encode())])

    assert_error(response, 401, "invalid_token")
    assert response.headers["www-authenticate"] == (
        'Bearer realm="token-service", error="invalid_token", '
        'error_description="The access token is unknown, expired or revoked."'
    )
    assert not identity_of(response)


@pytest.mark.clause("decided-bearer-invalid", "6750-3.1-invalid-token-401", "6749-7-token-validated")
async def test_revoked_or_expired_token_is_invalid(http: httpx2.AsyncClient, clock: Clock) -> None:
    revoked, ended, everything = [tokens_of(await PHONE_APP.log_in(http, ALICE)) for _ in range(3)]
    await PHONE_APP.revoke(http, revoked["access_token"])
    await PHONE_APP.revoke(http, ended["refresh_token"])

    assert (await verify(http, everything["access_token"])).status_code == 200
    for tokens in (revoked, ended):
        assert_error(await verify(http, tokens["access_token"]), 401, "invalid_token")
    await revoke_all(http, everything["access_token"])
    assert_error(await verify(http, everything["access_token"]), 401, "invalid_token")
    expired = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    clock.advance(600)
    assert_error(await verify(http, expired), 401, "invalid_token")


@pytest.mark.clause("6750-2.2-no-token-in-body", "6750-2.3-no-token-in-query", "6819-4.6.7-tokens-in-logs")
async def test_access_token_outside_the_header_is_refused(http: httpx2.AsyncClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    in_body = await http.post(VERIFY, data={"access_token": access_token})
    in_query = await http.get(VERIFY, params={"access_token": access_token})
    in_cookie = await http.get(VERIFY, headers={"Cookie": f"access_token={access_token}"})

    assert [in_body.status_code, in_query.status_code, in_cookie.status_code] == [401] * 3


@pytest.mark.clause("decided-verify-401-for-malformed", "decided-verify-answers")
async def test_two_authorization_headers_are_invalid_token(http: httpx2.AsyncClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    response = await http.get(VERIFY, headers=[("Authorization", f"Bearer {access_token}")] * 2)

    assert_error(response, 401, "invalid_token")
    assert 'error="invalid_token"' in response.headers["www-authenticate"]


@pytest.mark.clause("decided-verify-401-for-malformed", "decided-verify-answers")
async def test_a_head_over_64_kib_is_invalid_token(http: httpx2.AsyncClient) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    by_header = await http.get(VERIFY, headers=bearer(access_token) | {"Cookie": "a=b; " * 14_000})
    by_query = await http.get(f"{VERIFY}?{'x' * 60_000}", headers=bearer(access_token) | {"Cookie": "x" * 10_000})

    assert_error(by_header, 401, "invalid_token")
    assert_error(by_query, 401, "invalid_token")


@pytest.mark.clause(
    "decided-verify-scope",
    "6750-3.1-insufficient-scope-403",
    "6749-7-scope-covers",
    "6819-4.6.5-token-used-at-another-api",
)
@pytest.mark.clause("6749-7.2-error-told", "6750-3-scope-attribute", "6750-3-attributes-once", "6750-3-scheme-bearer")
@pytest.mark.parametrize(
    ("query", "status"),
    [
        ("", 200),
        ("?scope=role:enduser", 200),
        ("?scope=role:enduser+realm:main", 200),
        ("?scope=realm%3Amain%20role%3Aorganisation%20role%3Aenduser", 200),
        ("?scope=role:admin", 403),
        ("?scope=role:enduser+role:admin", 403),
    ],
)
async def test_verify_requires_the_whole_scope(
    http: httpx2.AsyncClient, worker: Worker, query: str, status: int
) -> None:
    access_token = (await exchange(http, worker, ALICE, "realm:main role:enduser role:organisation"))["access_token"]

    response = await http.get(VERIFY + query, headers=bearer(access_token))

    assert response.status_code == status
    if status == 403:
        assert_error(response, 403, "insufficient_scope")
        assert not identity_of(response)
        assert response.headers["www-authenticate"] == (
            'Bearer realm="token-service", error="insufficient_scope", '
            'error_description="The access token lacks part of the required scope.", '
            f'scope="{query.removeprefix("?scope=").replace("+", " ")}"'
        )


@pytest.mark.clause("decided-verify-scope", "6750-3-scope-attribute", "6750-3-characters")
@pytest.mark.parametrize(
    "query",
    [
        pytest.param("scope=role:enduser++role:admin", id="two spaces"),
        pytest.param("scope=role:admin%22%2C+x%3D%22y", id="quotation marks"),
        pytest.param("scope=role:admin%0D%0AX-Evil:1", id="a line end"),
        pytest.param("scope=role:enduser&scope=role:enduser", id="twice"),
        pytest.param("scope=role:enduser&x=%zz", id="broken encoding elsewhere"),
        pytest.param("scopes=role:admin", id="misspelt"),
        pytest.param("scope=", id="empty"),
        pytest.param("scope", id="without a value"),
        pytest.param("&", id="only a separator"),
        pytest.param("Scope=role:admin", id="a capital letter"),
        pytest.param("scope=role:enduser&page=2", id="the query of a caller"),
        pytest.param("scope=" + "+".join(["role:enduser"] * 100), id="very long"),
    ],
)
async def test_a_malformed_scope_is_403_and_never_repeated(http: httpx2.AsyncClient, query: str) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]

    response = await http.get(f"{VERIFY}?{query}", headers=bearer(access_token))

    assert_error(response, 403, "insufficient_scope")
    assert re.fullmatch(
        r'Bearer realm="token-service", error="insufficient_scope", error_description="The query [^"\\]+"',
        response.headers["www-authenticate"],
    )
    assert "admin" not in response.text + str(response.headers)


@pytest.mark.clause("decided-verify-scope")
async def test_the_bearer_is_judged_before_the_scope(http: httpx2.AsyncClient) -> None:
    assert (await http.get(f"{VERIFY}?scope=%zz")).status_code == 401
    assert_error(await verify(http, "x", "role:admin"), 401, "invalid_token")


@pytest.mark.clause("decided-verify-headers")
@pytest.mark.parametrize(
    ("username", "header"),
    [
        ("zoë@exämple.org", "zo%C3%AB@ex%C3%A4mple.org"),
        ("zo%C3%AB", "zo%25C3%25AB"),
        (" padded  ", "%20padded%20%20"),
        ("a\rX-Auth-Realm: cep", "a%0DX-Auth-Realm: cep"),
    ],
)
async def test_user_name_header_is_unambiguously_encoded(
    http: httpx2.AsyncClient, worker: Worker, username: str, header: str
) -> None:
    person = UserCredentials(username, "", realm="cep")
    tokens = await exchange(http, worker, person, "realm:cep role:enduser")

    response = await verify(http, tokens["access_token"])

    assert response.status_code == 200
    assert response.headers.raw.count((b"x-auth-user", header.encode())) == 1
    assert unquote(header) == username
    assert identity_of(response)["x-auth-realm"] == "cep"
    assert identity_of(response)["x-auth-subject"] == User(realm="cep", username=username).subject


@pytest.mark.clause("decided-verify-headers")
async def test_the_seconds_left_are_whole_and_never_negative(http: httpx2.AsyncClient, store: redis.Redis) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    rewrite(store, access_token, 2, "1000")

    response = await verify(http, access_token)

    assert (response.status_code, response.headers["x-auth-expires-in"]) == (200, "0")


@pytest.mark.clause("decided-verify-answers", "decided-i8-fail-closed", "decided-server-error")
async def test_anything_unforeseen_is_503_and_has_its_trace_in_the_log(
    http: httpx2.AsyncClient, store: redis.Redis, caplog: pytest.LogCaptureFixture
) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
    rewrite(store, access_token, 7, "a scope without a realm")

    response = await verify(http, access_token)

    assert_error(response, 503, "temporarily_unavailable")
    assert int(response.headers["retry-after"]) >= 1
    assert not re.search(r"Traceback|realm|ValueError|redis", response.text, re.IGNORECASE)
    assert [record for record in caplog.records if record.exc_info]


@pytest.mark.clause("decided-verify-cache", "decided-memory-follows-redis")
@ONE_SERVER
async def test_cached_lookup_sees_a_revocation_at_once(
    make_settings: MakeSettings, clock: Clock, registry: None, store: redis.Redis
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_VERIFY_CACHE="on"), clock) as http:
        access_token = tokens_of(await PHONE_APP.log_in(http, ALICE))["access_token"]
        first = await verify(http, access_token)
        await verify(http, access_token)  # cached from the second use on
        with recording_commands(store) as commands:
            again = await verify(http, access_token)
            introspected = await GATEWAY.introspect(http, access_token)
        await PHONE_APP.revoke(http, access_token)

        assert identity_of(again).keys() == identity_of(first).keys()
        assert introspected.json()["active"]
        assert not [command for command in commands if "access:" in command]
        await until_status(lambda: verify(http, access_token), 401)
        assert (await GATEWAY.introspect(http, access_token)).json() == {"active": False}
