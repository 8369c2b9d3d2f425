"""The address of a caller over HTTP, shown by which requests the throttle counts together."""

import httpx2
import pytest

from tests.conftest import Clock, MakeSettings, serving
from tests.spec.wrong_logins import WRONG_ALICE
from tests.support.clients_and_users import BOB, PHONE_APP, TOKEN, login_form

PROXY = "10.0.0.1"


async def counts_as(http: httpx2.AsyncClient, forwarded_for: str | list[str], same_as: str | list[str] | None) -> bool:
    """Return True if a failure under one header uses up the only guess under another."""
    first, second = ([("X-Forwarded-For", hops) for hops in listed(header)] for header in (forwarded_for, same_as))
    failed = await http.post(TOKEN, data=PHONE_APP.credentials | login_form(WRONG_ALICE), headers=first)
    following = await http.post(TOKEN, data=PHONE_APP.credentials | login_form(BOB), headers=second)

    assert failed.status_code == 400
    assert following.status_code in (200, 429)
    return following.status_code == 429


def listed(header: str | list[str] | None) -> list[str]:
    return [header] if isinstance(header, str) else header or []


@pytest.mark.clause("decided-no-trusted-proxies-by-default")
@pytest.mark.parametrize("peer", ["203.0.113.7", "127.0.0.1"])
async def test_no_proxy_is_trusted_by_default(
    make_settings: MakeSettings, clock: Clock, registry: None, peer: str
) -> None:
    settings = make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute")
    async with serving(settings, clock, address=peer) as http:
        assert await counts_as(http, "198.51.100.1", same_as="198.51.100.2")


@pytest.mark.clause("decided-trusted-proxies")
async def test_forwarded_headers_of_untrusted_peers_are_ignored(
    make_settings: MakeSettings, clock: Clock, registry: None
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute", TOKEN_SERVICE_TRUSTED_PROXIES="10.0.0.0/8"
    )
    async with serving(settings, clock, address="203.0.113.7") as http:
        assert await counts_as(http, "198.51.100.1", same_as="198.51.100.2")


@pytest.mark.clause("decided-trusted-proxies")
@pytest.mark.parametrize(
    ("forwarded_for", "other", "counts_together"),
    [
        pytest.param("198.51.100.1", "198.51.100.1", True, id="one client"),
        pytest.param("198.51.100.1", "198.51.100.2", False, id="two clients"),
        pytest.param("198.51.100.9, 198.51.100.1", "198.51.100.1", True, id="what the client wrote itself"),
        pytest.param("198.51.100.1, 10.0.0.2, 10.0.0.3", "198.51.100.1", True, id="a chain of trusted proxies"),
        pytest.param("10.9.9.9, 198.51.100.1, 10.0.0.2", "198.51.100.1", True, id="a trusted name further left"),
        pytest.param(["198.51.100.9", "198.51.100.1"], "198.51.100.1", True, id="the header twice"),
        pytest.param("198.51.100.1:4711", "198.51.100.1", True, id="a port"),
        pytest.param("[2001:db8::1]:4711", "2001:db8::2", True, id="IPv6 with brackets and port, one /64"),
        pytest.param("::ffff:198.51.100.1", "198.51.100.1", True, id="IPv4 inside IPv6"),
        pytest.param("unknown", None, False, id="no address: not the proxy itself"),
        pytest.param("198.51.100.1, unknown", "unknown", True, id="what stands left of no address is not believed"),
        pytest.param("", None, True, id="an empty header"),
    ],
)
async def test_rightmost_untrusted_hop_is_the_client(
    make_settings: MakeSettings,
    clock: Clock,
    registry: None,
    forwarded_for: str | list[str],
    other: str | None,
    counts_together: bool,
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute", TOKEN_SERVICE_TRUSTED_PROXIES="10.0.0.0/8, ::1"
    )
    async with serving(settings, clock, address=PROXY) as http:
        assert await counts_as(http, forwarded_for, same_as=other) is counts_together


@pytest.mark.clause("decided-trusted-proxies")
@pytest.mark.parametrize("header", ["Forwarded", "X-Real-IP"])
async def test_other_forwarding_headers_are_ignored(
    make_settings: MakeSettings, clock: Clock, registry: None, header: str
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute", TOKEN_SERVICE_TRUSTED_PROXIES="10.0.0.0/8"
    )
    async with serving(settings, clock, address=PROXY) as http:
        await http.post(TOKEN, data=PHONE_APP.credentials | login_form(WRONG_ALICE), headers={header: "198.51.100.1"})
        response = await http.post(
            TOKEN, data=PHONE_APP.credentials | login_form(BOB), headers={header: "198.51.100.2"}
        )

        assert response.status_code == 429
