"""A Redis that is full refuses what makes tokens, wholly, and takes what ends them."""

from dataclasses import replace
from pathlib import Path

import httpx2
import pytest

from service.crypto.keyring import make_access_token
from service.protocol.client import Client
from service.protocol.user import identify_user
from service.worker import Worker
from tests.conftest import make_code
from tests.faults.deployment import KEYRING, Deployment, http_client_for
from tests.support.at_rest import give_sid
from tests.support.browser import (
    SESSION_COOKIE,
    SESSIONS,
    Browser,
    Page,
    assert_refused,
    authorization_response,
    authorization_url,
    is_consent_page,
    is_login_page,
)
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    MADE_SECRET,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    revoke_all,
    revoke_user,
    tokens_of,
)
from tests.support.servers import REDIS_6, other_servers, running_service

ON_EVERY_SERVER = {
    "test_refused_write_of_a_full_redis_is_503_without_changes",
    "test_full_redis_accepts_a_revocation",
    "test_full_redis_accepts_a_revoke_all",
}
"""The tests for every run but on Redis 6.2. With --all the others run, too."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Servers do not agree in all that they refuse when they are full."""
    is_quick = metafunc.function.__name__ in ON_EVERY_SERVER
    others = [
        pytest.param(name, marks=() if is_quick and name != REDIS_6 else (pytest.mark.long,))
        for name in other_servers()
    ]
    metafunc.parametrize("shared_deployment", ["found", *others], indirect=True)


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed", "decided-i10-outage-is-not-theft")
async def test_refused_write_of_a_full_redis_is_503_without_changes(
    deployment: Deployment, direct_http: httpx2.AsyncClient, worker: Worker
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(direct_http, ALICE))
    code = await make_code(worker)
    family = deployment.find_family(tokens["refresh_token"])

    with deployment.full():
        answers = [
            await PHONE_APP.log_in(direct_http, ALICE),
            await PHONE_APP.refresh(direct_http, tokens["refresh_token"]),
            await PHONE_APP.exchange(direct_http, code, PHONE_CALLBACK),
        ]
        for answer in answers:
            assert_error(answer, 503, "temporarily_unavailable")
            assert "cannot store anything" in answer.json()["error_description"]
            assert int(answer.headers["retry-after"]) >= 1
        assert deployment.find_family(tokens["refresh_token"]) == family
        assert deployment.knows_access_token(tokens["access_token"])

    assert (await PHONE_APP.exchange(direct_http, code, PHONE_CALLBACK)).status_code == 200
    assert (await PHONE_APP.refresh(direct_http, tokens["refresh_token"])).status_code == 200
    assert (await PHONE_APP.log_in(direct_http, ALICE)).status_code == 200


@pytest.mark.clause("decided-password-change-pending")
async def test_a_full_redis_refuses_a_new_password_wholly(
    deployment: Deployment, direct_http: httpx2.AsyncClient
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(direct_http, BOB))
    browser = Browser(direct_http)
    page = await browser.sign_in(BOB)
    new = "a new password"

    with deployment.full():
        fields = {"current": BOB.password, "new": new, "repeated": new}
        refused = await browser.submit(page, "/sessions/password", fields)
        assert_refused(refused, 503, "busy")

    assert (await PHONE_APP.refresh(direct_http, tokens["refresh_token"])).status_code == 200
    assert (await PHONE_APP.log_in(direct_http, BOB)).status_code == 200
    assert not is_login_page(await browser.open(SESSIONS))


@pytest.mark.clause("7009-2.1-immediate", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("client", [PHONE_APP, WEB_SHOP, MADE_SECRET])
async def test_full_redis_accepts_a_revocation(
    deployment: Deployment, direct_http: httpx2.AsyncClient, client: OAuthClient
) -> None:
    tokens, other = tokens_of(await client.log_in(direct_http, BOB)), tokens_of(await client.log_in(direct_http, BOB))

    with deployment.full():
        assert (await client.revoke(direct_http, tokens["access_token"])).status_code == 200
        assert not deployment.knows_access_token(tokens["access_token"])
        assert (await client.revoke(direct_http, other["refresh_token"])).status_code == 200
        assert deployment.find_family(other["refresh_token"]) is None
        assert not deployment.knows_access_token(other["access_token"])
        assert deployment.find_ending(other["refresh_token"]) == "revoked"

    assert deployment.find_family(tokens["refresh_token"]) is not None


@pytest.mark.clause("7009-2.1-immediate", "decided-i7-revocation-is-final", "7009-2.1-client-authenticated-first")
@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET])
async def test_full_redis_accepts_revocations_of_uncached_clients(
    deployment: Deployment, direct_http: httpx2.AsyncClient, tmp_path: Path, client: OAuthClient
) -> None:
    """A chosen secret that is not remembered is checked, for which room under the limit is reserved."""
    tokens, other = tokens_of(await client.log_in(direct_http, BOB)), tokens_of(await client.log_in(direct_http, BOB))

    with running_service(tmp_path, deployment.environment()) as fresh:
        async with http_client_for(fresh) as http:
            with deployment.full():
                wrong = await replace(client, client_secret="wrong").revoke(http, other["refresh_token"])
                answer = await client.revoke(http, tokens["refresh_token"])
                assert_error(await client.log_in(http, BOB), 503, "temporarily_unavailable")

    assert_error(wrong, 401, "invalid_client")
    assert answer.status_code == 200
    assert deployment.find_family(tokens["refresh_token"]) is None
    assert not deployment.knows_access_token(tokens["access_token"])
    assert deployment.find_family(other["refresh_token"]) is not None


@pytest.mark.clause("decided-redis-away", "decided-i8-fail-closed")
async def test_page_refused_by_a_full_redis_changes_nothing(
    deployment: Deployment, direct_http: httpx2.AsyncClient
) -> None:
    browser, signing_in = Browser(direct_http), Browser(direct_http)
    page, form = await browser.open_consent_page(authorization_url()), await signing_in.open(authorization_url())
    before = look_at_pages(deployment)

    with deployment.full():
        for answer in (await browser.allow(page), await browser.deny(page)):
            assert_refused(answer, 503, "busy")
            assert int(answer.headers["retry-after"]) >= 1
        assert (await signing_in.log_in(form)).status_code == 503
        assert authorization_response(await browser.open(authorization_url()))["error"] == "temporarily_unavailable"
        # Redis keeps nothing of a login page.
        assert is_login_page(await Browser(direct_http).open(authorization_url()))
        assert look_at_pages(deployment) == before

    assert SESSION_COOKIE not in signing_in.cookie_values
    assert is_consent_page(await signing_in.log_in(form))
    code = authorization_response(await browser.allow(page))["code"]
    assert tokens_of(await PHONE_APP.exchange(direct_http, code, PHONE_CALLBACK))


@pytest.mark.clause("decided-i7-revocation-is-final")
async def test_full_redis_accepts_a_sign_out_and_a_session_end(
    deployment: Deployment, direct_http: httpx2.AsyncClient
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(direct_http, ALICE))
    browser = Browser(direct_http)
    page = Page(await browser.sign_in())
    (entry,) = [form for form in page.forms if form.action == "/sessions/end"]

    with deployment.full():
        assert (await browser.send(entry.action, entry.fields)).status_code == 200
        assert deployment.find_family(tokens["refresh_token"]) is None
        assert not deployment.knows_access_token(tokens["access_token"])
        assert deployment.find_ending(tokens["refresh_token"]) == "signed_out"
        await browser.submit(page.response, "/sessions/sign-out", {})

    assert not list(deployment.store.scan_iter("browser:*"))
    assert is_login_page(await browser.open(SESSIONS))


def look_at_pages(deployment: Deployment) -> dict[str, str]:
    keys = [str(key) for kind in ("browser", "consent", "code") for key in deployment.store.scan_iter(f"{kind}:*")]
    return {key: str(deployment.store.get(key)) for key in sorted(keys)}


@pytest.mark.clause("decided-revoke-all-on-a-full-redis", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("caller", ["bearer", "client", "provider"])
async def test_full_redis_accepts_a_revoke_all(
    deployment: Deployment, direct_http: httpx2.AsyncClient, worker: Worker, caller: str
) -> None:
    """A provider ends one login there, from which the sessions came, but not the code."""
    sessions = [tokens_of(await client.log_in(direct_http, ALICE)) for client in (PHONE_APP, WEB_SHOP, MADE_SECRET)]
    code = await make_code(worker)
    alice = identify_user(ALICE.realm, ALICE.username)
    if caller == "provider":
        for key in deployment.store.scan_iter(f"family:{{{alice.shard}}}:*"):
            give_sid(deployment.store, key, "a-login")

    with deployment.full():
        if caller == "bearer":
            assert (await revoke_all(direct_http, sessions[0]["access_token"])).status_code == 200
        elif caller == "client":
            sub_id = {"format": "email", "email": ALICE.username}
            assert (await revoke_user(direct_http, sub_id)).status_code == 204
        else:
            await worker.revocations.end_provider_login(alice.shard, alice.digest, "a-login")
        for tokens in sessions:
            assert not deployment.knows_access_token(tokens["access_token"])
            assert deployment.find_family(tokens["refresh_token"]) is None
            reason = "provider_logout" if caller == "provider" else "revoke_all"
            assert deployment.find_ending(tokens["refresh_token"]) == reason

    exchanged = await PHONE_APP.exchange(direct_http, code, PHONE_CALLBACK)
    assert exchanged.status_code == (200 if caller == "provider" else 400)
    assert (await PHONE_APP.log_in(direct_http, ALICE)).status_code == 200


@pytest.mark.clause("decided-redis-away", "decided-ended-families", "decided-second-exchange-ends-family")
async def test_replay_on_a_full_redis_ends_the_session(
    deployment: Deployment, direct_http: httpx2.AsyncClient, worker: Worker
) -> None:
    code = await make_code(worker)
    exchanged = tokens_of(await PHONE_APP.exchange(direct_http, code, PHONE_CALLBACK))
    stolen = tokens_of(await PHONE_APP.log_in(direct_http, ALICE))
    await PHONE_APP.refresh(direct_http, stolen["refresh_token"])
    worker.redis.clock_offset_ms = lambda: 301_000
    name = KEYRING.parse_refresh_token(stolen["refresh_token"])
    assert name is not None

    with deployment.full():
        assert_error(await PHONE_APP.exchange(direct_http, code, PHONE_CALLBACK), 400, "invalid_grant")
        late = await worker.families.spend(
            name,
            client=Client(client_id=PHONE_APP.client_id, scope="realm:main role:enduser"),
            secret_used=False,
            wanted_scope="",
            access_token=make_access_token(name.shard),
        )
        assert late.verdict == "replayed"
        for tokens, reason in (exchanged, "code_replayed"), (stolen, "replayed"):
            assert deployment.find_family(tokens["refresh_token"]) is None
            assert not deployment.knows_access_token(tokens["access_token"])
            assert deployment.find_ending(tokens["refresh_token"]) == reason


@pytest.mark.clause("decided-readyz")
async def test_full_redis_counts_as_ready(deployment: Deployment, direct_http: httpx2.AsyncClient) -> None:
    with deployment.full():
        answer = await direct_http.get("/readyz")

    assert answer.status_code == 200
