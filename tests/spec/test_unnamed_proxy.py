"""A proxy that the settings do not name: the log reports it, and it never makes the metrics public."""

import logging
from collections.abc import Mapping
from ipaddress import ip_network
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from service.web.request.client_address import TrustedProxies
from tests.conftest import Clock, MakeSettings, serving
from tests.spec.wrong_logins import WRONG_ALICE
from tests.support.clients_and_users import PHONE_APP, TOKEN, login_form

FORWARDING = [{"X-Forwarded-For": "203.0.113.66"}, {"Forwarded": "for=203.0.113.66"}, {"X-Real-IP": "203.0.113.66"}]
LOGGER = "service.client_address"


async def receive_nothing(*_: Any) -> Any:
    return {}


class SettableClock:
    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


async def send_request(proxies: TrustedProxies, headers: Mapping[str, str], peer: str = "127.0.0.1") -> None:
    listed = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    await proxies(
        {"type": "http", "client": (peer, 0), "headers": listed, "scheme": "http"}, receive_nothing, receive_nothing
    )


async def empty_app(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start"})


@pytest.mark.clause("decided-unnamed-proxy")
@pytest.mark.parametrize("headers", FORWARDING)
async def test_unlisted_proxy_is_logged_at_most_hourly(
    caplog: pytest.LogCaptureFixture, headers: Mapping[str, str]
) -> None:
    clock = SettableClock()
    proxies = TrustedProxies(empty_app, [ip_network("10.0.0.0/8")], clock)
    with caplog.at_level(logging.WARNING, LOGGER):
        await send_request(proxies, {"Host": "x"})
        assert not caplog.records
        for _ in range(50):
            await send_request(proxies, headers)
        clock.seconds += 3_599
        await send_request(proxies, headers)
        assert len(caplog.records) == 1
        clock.seconds += 1
        await send_request(proxies, headers)

    assert len(caplog.records) == 2
    assert "203.0.113.66" not in caplog.text


@pytest.mark.clause("decided-unnamed-proxy", "decided-trusted-proxies")
@pytest.mark.parametrize("hop", ["unknown", "unix:", "127.0.0.1", "10.244.0.1, 10.244.0.2"])
async def test_proxy_that_hides_its_callers_is_reported(caplog: pytest.LogCaptureFixture, hop: str) -> None:
    """Behind SNAT a load balancer forwards the address of a node, which a trusted network may contain."""
    clock = SettableClock()
    proxies = TrustedProxies(empty_app, [ip_network("127.0.0.1"), ip_network("10.244.0.0/16")], clock)
    with caplog.at_level(logging.WARNING, LOGGER):
        for headers in ({"Host": "x"}, FORWARDING[0], FORWARDING[0] | FORWARDING[2]):
            await send_request(proxies, headers)
        assert not caplog.records
        for _ in range(10):
            await send_request(proxies, {"X-Forwarded-For": hop})
        clock.seconds += 3_600
        await send_request(proxies, {"X-Forwarded-For": hop})

    assert [record.name for record in caplog.records] == [LOGGER] * 2


@pytest.mark.clause("decided-unnamed-proxy", "decided-trusted-proxies", "decided-metrics")
@pytest.mark.parametrize("trusted", ["", "127.0.0.1"])
async def test_proxy_without_a_named_caller_gets_no_metrics(
    make_settings: MakeSettings, clock: Clock, registry: None, trusted: str
) -> None:
    settings = make_settings(TOKEN_SERVICE_TRUSTED_PROXIES=trusted)
    async with serving(settings, clock, address="127.0.0.1") as http:
        for headers in FORWARDING:
            assert (await http.get("/metrics", headers=headers)).status_code == 404
        assert (await http.get("/metrics")).status_code == 200


@pytest.mark.clause("decided-trusted-proxies", "decided-metrics")
@pytest.mark.parametrize("hop", ["unknown", "127.0.0.1.example"])
async def test_caller_unnamed_by_trusted_proxy_is_not_local(
    make_settings: MakeSettings, clock: Clock, registry: None, hop: str
) -> None:
    settings = make_settings(
        TOKEN_SERVICE_TRUSTED_PROXIES="127.0.0.1", TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute"
    )
    async with serving(settings, clock, address="127.0.0.1") as http:
        headers = {"X-Forwarded-For": hop}
        assert (await http.get("/metrics", headers=headers)).status_code == 404
        form = PHONE_APP.credentials | login_form(WRONG_ALICE)
        assert [(await http.post(TOKEN, data=form, headers=headers)).status_code for _ in range(2)] == [400, 429]
        # The proxy itself and its other callers have separate limits.
        assert (await http.post(TOKEN, data=form)).status_code == 400


@pytest.mark.clause("decided-metrics")
@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8000", 200),
        ("[::1]:8000", 200),
        ("id.example.com", 200),
        ("rebound.example:8000", 404),
        ("127.0.0.1.example:8000", 404),
        ("", 404),
    ],
)
async def test_dns_rebinding_page_cannot_read_metrics(
    make_settings: MakeSettings, clock: Clock, registry: None, host: str, status: int
) -> None:
    """DNS rebinding: the browser on this machine takes the attacker's page and our address for one site."""
    settings = make_settings(TOKEN_SERVICE_BASE_URL="https://id.example.com/tokens")
    async with serving(settings, clock, address="127.0.0.1") as http:
        assert (await http.get("/metrics", headers={"Host": host})).status_code == status
