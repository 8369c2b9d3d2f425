"""Abuse of a realm's login: guesses past the limits, and unbounded use of memory."""

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.realms.login_steps import log_in_with_password
from tests.support.clients_and_users import assert_error
from tests.support.fake_provider import PASSWORD, TOKEN, USERNAME, FakeProvider, Reply

SPELLINGS = ["zoe", "ZOE", "Zoe", " zoe", "zoe ", "\uff5aoe", "zo\u00e9", "zoe\u0301", "ZO\u00c9"]


@pytest.mark.clause("decided-external-throttle-first", "6749-4.3.2-brute-force")
@pytest.mark.parametrize("spellings", [SPELLINGS[:6], SPELLINGS[6:]], ids=["zoe", "zo\u00e9"])
async def test_spelling_of_the_name_gives_no_further_provider_guesses(
    provider: FakeProvider, http: httpx2.AsyncClient, cep: None, spellings: list[str]
) -> None:
    """Most providers take these spellings for one name, and would allow ten guesses for each of them."""
    for number in range(10):
        spelling = spellings[number % len(spellings)]
        assert_error(await log_in_with_password(http, spelling, "wrong"), 400, "invalid_grant")

    for spelling in spellings:
        assert_error(await log_in_with_password(http, spelling, "wrong"), 429, "invalid_grant")
    assert len(provider.calls(TOKEN)) == 10


REFUSALS = {
    "a firewall's": Reply(403, b"<html>"),
    "another error": Reply(400, {"error": "invalid_request"}),
    "too many requests": Reply(429),
}


@pytest.mark.clause("decided-external-isolated", "decided-external-throttle-first", "decided-external-realm-down")
@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_provider_requests_per_address_are_limited(
    provider: FakeProvider, make_settings: MakeSettings, clock: Clock, cep: None, refusal: Reply
) -> None:
    """Such requests use up no user's attempts, but could get our own address blocked at the provider."""
    settings = make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="5/minute")
    provider.answer(TOKEN, refusal)
    async with serving(settings, clock) as http:
        for number in range(8):
            response = await log_in_with_password(http, f"user{number}", "' or 1=1 --")
            assert_error(response, 503, "temporarily_unavailable")
            assert 1 <= int(response.headers["retry-after"]) <= 60
        assert len(provider.calls(TOKEN)) == 5
    provider.answer(TOKEN, None)

    async with serving(settings, clock, address="198.51.100.1") as http:
        assert (await log_in_with_password(http, USERNAME, PASSWORD)).status_code == 200
    clock.advance(60)
    async with serving(settings, clock) as http:
        assert (await log_in_with_password(http, USERNAME, PASSWORD)).status_code == 200


@pytest.mark.clause("decided-external-throttle-first", "6749-4.3.2-brute-force")
async def test_odd_provider_refusals_are_limited_per_user_name(
    provider: FakeProvider, make_settings: MakeSettings, clock: Clock, cep: None
) -> None:
    """If a provider reports a wrong password by another error, guesses from many addresses must still be limited."""
    settings = make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER="5/hour")
    provider.answer(TOKEN, Reply(400, {"error": "bad_credentials"}))
    for number in range(8):
        async with serving(settings, clock, address=f"198.51.100.{number}") as http:
            assert_error(await log_in_with_password(http, "zoe", "wrong"), 503, "temporarily_unavailable")

    assert len(provider.calls(TOKEN)) == 5
    async with serving(settings, clock) as http:
        assert_error(await log_in_with_password(http, "yan", "wrong"), 503, "temporarily_unavailable")
    assert len(provider.calls(TOKEN)) == 6
