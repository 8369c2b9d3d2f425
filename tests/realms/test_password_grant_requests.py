"""Requests of the password grant to the identity provider, and which attempts count."""

from __future__ import annotations

from base64 import b64encode
from pathlib import Path

import httpx2
import pytest
import redis
import yaml

from tests.conftest import SEED, Clock, MakeSettings, environment_of, serving
from tests.invariants.dumps import dump_everything, find_secrets
from tests.realms.login_steps import log_in_with_password
from tests.realms.password_logins import WRONG_ALICE, assert_provider_unavailable, guess, log_in, sign
from tests.support.clients_and_users import ALICE, PHONE_APP, assert_error
from tests.support.fake_provider import (
    CLIENT_SECRET,
    OPENID_METADATA,
    PASSWORD,
    TOKEN,
    USERNAME,
    Answer,
    Drop,
    FakeProvider,
    Hang,
    Raw,
    Reply,
    realm_of,
)
from tests.support.servers import RedisServer, free_port, running_service

BASIC = "Basic " + b64encode(b"token-service:secret+at+the+organisation").decode()


@pytest.mark.clause("6749-4.3.2-password-validated", "decided-cep-password-grant")
async def test_the_provider_is_sent_a_password_grant_and_nothing_more(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None
) -> None:
    document = Reply(200, provider.describe(), {"set-cookie": "pet=cat; Path=/"})
    provider.answer(OPENID_METADATA, document)

    assert (await log_in(http)).status_code == 200

    (request,) = provider.calls(TOKEN)
    assert (request.method, request.query) == ("POST", {})
    assert request.form == {
        "grant_type": "password",
        "username": USERNAME,
        "password": PASSWORD,
        "scope": "openid email",
    }
    headers = dict(request.headers)
    assert int(headers.pop("content-length")) > 0
    assert headers == {
        "host": provider.url.removeprefix("http://"),
        "accept": "application/json",
        "accept-encoding": "identity",
        "user-agent": "token-service",
        "content-type": "application/x-www-form-urlencoded",
        "authorization": BASIC,
    }


TEXTS = {
    "signs of forms and Unicode": "  Zoë&b=c+d%41%0D%0A e;f?g#h\t😀 ",
    "1024 characters of four bytes": "😀" * 1024,
}


@pytest.mark.clause("6749-b-utf-8-form", "decided-cep-password-grant")
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
async def test_user_names_and_passwords_arrive_unchanged(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, text: str
) -> None:
    assert_error(await log_in_with_password(http, text, text[::-1]), 400, "invalid_grant")

    (request,) = provider.calls(TOKEN)
    assert (request.form["username"], request.form["password"]) == (text, text[::-1])


async def test_no_proxy_of_the_environment_hears_of_a_login(
    http: httpx2.AsyncClient, cep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    nobody = f"http://127.0.0.1:{free_port()}"
    for name in ("http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.setenv(name, nobody)
        monkeypatch.setenv(name.upper(), nobody)
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)

    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-tokens-dropped", "decided-i5-nothing-presentable-at-rest")
@pytest.mark.clause("decided-i5-organisation-secret-encrypted", "spec-2.2-realm-cep")
@pytest.mark.clause("6819-5.1.4.1.3-realm-secret-encrypted")
async def test_neither_redis_nor_the_log_at_its_lowest_level_learns_a_secret_of_the_provider(
    provider: FakeProvider, redis_server: RedisServer, store: redis.Redis, tmp_path: Path
) -> None:
    """This covers successful logins, all failing ones, and secrets that the provider repeats."""
    seed = yaml.safe_load(SEED.read_text()) | {"realms": {"cep": realm_of(provider)}}
    file = tmp_path / "seed.yaml"
    file.write_text(yaml.safe_dump(seed))
    guessed = "a guess for the organisation"
    id_token = sign(provider)
    handed_out = {"access_token": "an-access-token-of-theirs", "refresh_token": "a-refresh-token-of-theirs"}
    quoting: list[Answer | None] = [
        None,
        Reply(400, {"error": guessed, "error_description": guessed}),
        Reply(400, {"error": "invalid_request", "error_description": guessed}),
        Reply(400, guessed.encode()),
        Reply(500, guessed.encode()),
        Reply(200, {"error": guessed}),
        Reply(302, headers={"location": provider.url + "/?password=" + guessed.replace(" ", "+")}),
        Raw(f"{guessed}\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 200 OK\r\n{guessed}\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 {guessed} OK\r\n\r\n".encode()),
        Raw(f"HTTP/1.1 200 OK\r\ncontent-length: {guessed}\r\n\r\n".encode()),
        Drop(),
    ]
    variables = {"LOG_LEVEL": "debug", "TOKEN_SERVICE_SEED_FILE": str(file)}
    with running_service(tmp_path, environment_of(redis_server, **variables)) as service:
        async with httpx2.AsyncClient(base_url=service.url, timeout=30) as http:
            provider.token_response = {**handed_out, "id_token": id_token}
            assert (await log_in(http)).status_code == 200
            statuses = []
            for answer in quoting:
                provider.answer(TOKEN, answer)
                statuses.append((await log_in_with_password(http, "a name that was typed", guessed)).status_code)
            provider.answer(TOKEN, None)
            provider.id_token_claims = {"iss": guessed}
            provider.token_response = dict(handed_out)
            assert (await log_in(http)).status_code == 503
        log = service.log.read_text()

    assert statuses == [400] + [503] * (len(quoting) - 1)
    assert '"level":"debug"' in log
    assert "the identity provider of realm cep fails" in log
    secrets = [PASSWORD, guessed, CLIENT_SECRET, BASIC.removeprefix("Basic "), id_token, *id_token.split(".")]
    secrets += [*handed_out.values(), PASSWORD.replace(" ", "+"), guessed.replace(" ", "+")]
    assert find_secrets(log.encode(), secrets) == set()
    assert find_secrets(dump_everything(store), secrets) == set()
    assert "a name that was typed" not in log


@pytest.mark.clause("decided-login-limit", "decided-limit-stops-checking", "6749-4.3.2-brute-force")
@pytest.mark.clause("decided-order-throttle-before-password", "decided-external-throttle-first")
async def test_past_ten_wrong_passwords_the_provider_is_not_asked_any_more(
    http: httpx2.AsyncClient, provider: FakeProvider, cep: None, clock: Clock
) -> None:
    for _ in range(10):
        assert_error(await guess(http), 400, "invalid_grant")

    for response in (await guess(http), await log_in(http)):
        assert_error(response, 429, "invalid_grant")
        assert 1 <= int(response.headers["retry-after"]) <= 60
    assert len(provider.calls(TOKEN)) == 10
    clock.advance(60)
    assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-isolated", "decided-only-failures-count")
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Reply(500), id="500"),
        pytest.param(Drop(), id="a dropped connection"),
        pytest.param(Reply(200, b"?"), id="garbage"),
        pytest.param(Reply(401, {"error": "invalid_client"}), id="a refusal of ours"),
        pytest.param(Hang(), id="a hanging organisation"),
    ],
)
async def test_failures_of_the_provider_use_up_nobodys_attempts(
    make_settings: MakeSettings,
    clock: Clock,
    provider: FakeProvider,
    cep: None,
    store: redis.Redis,
    time_passes_while_waiting: None,
    answer: Answer,
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute",
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER="1/minute",
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="4/minute",
    )
    async with serving(settings, clock) as http:
        provider.answer(TOKEN, answer)
        for _ in range(3):
            assert_provider_unavailable(await guess(http))

        assert not list(store.scan_iter("login:*")) + list(store.scan_iter("address:*:login:*"))
        provider.answer(TOKEN, None)
        assert (await log_in(http)).status_code == 200


@pytest.mark.clause("decided-external-isolated", "decided-login-limit-per-address", "decided-login-limit")
async def test_guesses_in_one_realm_do_not_count_in_the_other(
    make_settings: MakeSettings, clock: Clock, provider: FakeProvider, cep: None
) -> None:
    """This holds for a name that exists in both realms, and for an address that uses both."""
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS="1/minute", TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute"
    )
    async with serving(settings, clock) as http:
        assert_error(await guess(http, ALICE.username), 400, "invalid_grant")
        assert_error(await guess(http, ALICE.username), 429, "invalid_grant")
        assert_error(await guess(http, "another"), 429, "invalid_grant")
        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        clock.advance(60)

        assert_error(await PHONE_APP.log_in(http, WRONG_ALICE), 400, "invalid_grant")
        assert_error(await PHONE_APP.log_in(http, ALICE), 429, "invalid_grant")
        assert_error(await guess(http, ALICE.username), 400, "invalid_grant")
        clock.advance(60)
        assert_error(await PHONE_APP.log_in(http, WRONG_ALICE), 400, "invalid_grant")
        assert (await log_in(http)).status_code == 200
