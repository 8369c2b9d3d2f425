"""nginx that announces a body to verify and never sends it: the next caller is not touched."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.gateway.proxies.conftest import ProxyDeployment
from tests.gateway.proxies.gateways import bearer, running_gateway

CARELESS = ('proxy_set_header Content-Length "";', "proxy_pass_request_headers off;")


@pytest.mark.clause("decided-early-answer-is-the-last")
@pytest.mark.parametrize("name", ["nginx"], indirect=True)
@pytest.mark.parametrize("size", [77, 1000])
def test_a_body_that_nginx_withholds_stops_nobody_else(
    deployment: ProxyDeployment, tmp_path: Path, name: str, enduser: str, size: int
) -> None:
    ports = (deployment.service.port, deployment.api.port, deployment.application.port)
    with running_gateway(name, tmp_path, *ports, without=CARELESS) as gateway:
        for token, status in ((None, 401), (enduser, 200)):
            answer = gateway.ask("POST", "/a", bearer(token), b"a" * size)
            assert answer.status == status
            assert gateway.get("/a", enduser).status == 200
