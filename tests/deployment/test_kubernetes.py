"""The files for Kubernetes: kustomize renders them, the schemas of Kubernetes accept them, and their values agree.

No cluster is used. The service and the console run with the environment that a rendered pod has.
"""

import base64
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx2
import kubernetes_validate
import pytest
import redis
import yaml

from examples.try_gateway import IDENTITY
from service.config.settings import load_settings, unknown_variables
from service.routes import make_routes
from service.serving.draining_server import DRAIN_SECONDS
from service.worker import Worker
from tests.conftest import SECRET_KEY, SEED
from tests.support.clients_and_users import ALICE, TOKEN, login_form
from tests.support.servers import CHECKOUT, RedisServer, free_port, running_service
from tests.support.waiting import MAX_WAIT_SECONDS

KUBERNETES = CHECKOUT / "deployment" / "kubernetes"
KUBECTL = Path(sys.executable).parent / "kubectl"
OLDEST, NEWEST = "1.31", "1.37"
SECRETS = ("redis_url", "secret_key", "seed.yaml")
APP = {"app.kubernetes.io/name": "token-service"}
MOUNT = "/run/secrets/token-service"
PENDING_SECONDS, IDLE_SECONDS = 10, 3
"""The time for pending requests and for idle connections at the end of an instance; see docs/how-to/upgrade.md."""

Resource = Mapping[str, Any]


@pytest.fixture(scope="module")
def secrets() -> dict[str, str]:
    return {"redis_url": "redis://:password@redis:6379/0\n", "secret_key": f"{SECRET_KEY}\n", "seed.yaml": "{}\n"}


@pytest.fixture(scope="module")
def rendered(tmp_path_factory: pytest.TempPathFactory, secrets: dict[str, str]) -> list[Resource]:
    """Return all resources, as `kubectl apply -k` sends them."""
    folder = tmp_path_factory.mktemp("kubernetes") / "kubernetes"
    shutil.copytree(KUBERNETES, folder)
    (folder / "secrets").mkdir()
    for name, text in secrets.items():
        (folder / "secrets" / name).write_text(text)
    done = subprocess.run([KUBECTL, "kustomize", folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(scope="module")
def of_kind(rendered: list[Resource]) -> Mapping[str, Any]:
    """Return the resource of each kind. There is one of each."""
    kinds = [resource["kind"] for resource in rendered]
    assert len(set(kinds)) == len(kinds)
    return dict(zip(kinds, rendered, strict=True))


@pytest.fixture(scope="module")
def pod(of_kind: Mapping[str, Any]) -> Any:
    return of_kind["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def container(pod: Any) -> Any:
    (container,) = pod["containers"]
    return container


@pytest.fixture(scope="module")
def protected_api() -> list[Resource]:
    return list(yaml.safe_load_all((KUBERNETES / "protected-api.yaml").read_text()))


def read_environment(of_kind: Mapping[str, Any], container: Any) -> dict[str, str]:
    """Return the environment of the container, without the variables of the image."""
    (source,) = container["envFrom"]
    assert source["configMapRef"]["name"] == of_kind["ConfigMap"]["metadata"]["name"]
    return {**of_kind["ConfigMap"]["data"], **{entry["name"]: entry["value"] for entry in container["env"]}}


def put_secrets(environment: Mapping[str, str], folder: Path, **secrets: str) -> dict[str, str]:
    """Write the secrets as files, and return the environment with their places."""
    for name, text in secrets.items():
        (folder / name).write_text(text)
    return {name: value.replace(MOUNT, str(folder)) for name, value in environment.items()}


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_schemas_accept_each_resource(
    rendered: list[Resource], protected_api: list[Resource], version: str
) -> None:
    own = [resource for resource in protected_api if resource["kind"] == "Ingress"]
    for resource in [*rendered, *own]:
        kubernetes_validate.validate(resource, version, strict=True)


def test_the_pod_is_locked_down(pod: Any, container: Any) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert f"USER {pod['securityContext']['runAsUser']}:" in (CHECKOUT / "deployment" / "Containerfile").read_text()
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["resources"]["limits"] == {"memory": "2Gi"}
    assert set(container["resources"]["requests"]) == {"cpu", "memory"}


def test_each_secret_is_a_file_that_only_the_service_reads(
    of_kind: Mapping[str, Any], pod: Any, container: Any, secrets: dict[str, str]
) -> None:
    data = {name: base64.b64decode(value).decode() for name, value in of_kind["Secret"]["data"].items()}
    assert data == secrets
    volumes = {volume["name"]: volume for volume in pod["volumes"]}
    mounts = {mount["mountPath"]: mount for mount in container["volumeMounts"]}
    assert volumes["secrets"]["secret"] == {"secretName": of_kind["Secret"]["metadata"]["name"], "defaultMode": 0o440}
    assert mounts[MOUNT] == {"name": "secrets", "mountPath": MOUNT, "readOnly": True}
    assert volumes[mounts["/tmp"]["name"]]["emptyDir"]["medium"] == "Memory"
    assert pod["securityContext"]["fsGroup"] == pod["securityContext"]["runAsUser"]
    environment = read_environment(of_kind, container)
    assert {value for value in environment.values() if value.startswith(MOUNT)} == {
        f"{MOUNT}/{name}" for name in SECRETS
    }
    assert "deployment/kubernetes/secrets/" in (CHECKOUT / ".gitignore").read_text().splitlines()


def test_the_settings_are_accepted(
    of_kind: Mapping[str, Any], container: Any, secrets: dict[str, str], tmp_path: Path
) -> None:
    environment = put_secrets(read_environment(of_kind, container), tmp_path, **secrets)
    assert list(unknown_variables(environment)) == []
    settings = load_settings(environment)
    assert settings.base_url == "https://" + of_kind["Ingress"]["spec"]["rules"][0]["host"]
    assert settings.trusted_proxies


@pytest.mark.parametrize("version", [OLDEST, NEWEST])
def test_the_callers_addresses_reach_the_service(of_kind: Mapping[str, Any], version: str) -> None:
    file = "deployment/kubernetes/traefik-service.yaml"
    patch = yaml.safe_load((CHECKOUT / file).read_text())
    service = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "traefik"}}
    spec = {"type": "LoadBalancer", "ports": [{"port": 443}]} | patch["spec"]
    kubernetes_validate.validate(service | {"spec": spec}, version, strict=True)
    (admitted,) = of_kind["NetworkPolicy"]["spec"]["ingress"][0]["from"]

    assert patch == {"spec": {"externalTrafficPolicy": "Local"}}
    assert f"--patch-file {file}" in (CHECKOUT / "docs" / "how-to" / "deploy-kubernetes.md").read_text()
    assert admitted["podSelector"]["matchLabels"] == {"app.kubernetes.io/name": "traefik"}


def test_a_pod_that_ends_has_time_for_its_requests(pod: Any, container: Any) -> None:
    _, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    needed = float(seconds) + DRAIN_SECONDS + IDLE_SECONDS + PENDING_SECONDS
    assert pod["terminationGracePeriodSeconds"] > needed


async def test_only_public_paths_are_public(of_kind: Mapping[str, Any], worker: Worker) -> None:
    (rule,) = of_kind["Ingress"]["spec"]["rules"]
    exact = {entry["path"] for entry in rule["http"]["paths"] if entry["pathType"] == "Exact"}
    prefixes = {entry["path"].rstrip("/") for entry in rule["http"]["paths"] if entry["pathType"] == "Prefix"}
    paths = {route.path for route in make_routes(worker)}
    public = {path for path in paths if path in exact or any(f"{path}/".startswith(f"{each}/") for each in prefixes)}
    assert paths - public == {"/healthz", "/readyz", "/metrics"}


@pytest.fixture
def environment(
    of_kind: Mapping[str, Any], container: Any, redis_server: RedisServer, store: redis.Redis, tmp_path: Path
) -> dict[str, str]:
    """The environment of a pod, with the Redis and the seed of the tests."""
    secrets = {"redis_url": redis_server.url, "secret_key": SECRET_KEY, "seed.yaml": SEED.read_text()}
    environment = put_secrets(read_environment(of_kind, container), tmp_path, **secrets)
    return environment | {"TOKEN_SERVICE_METRICS_ADDRESS": f"127.0.0.1:{free_port()}"}


def test_the_service_runs_as_in_a_pod_and_passes_its_probes(
    environment: dict[str, str], container: Any, tmp_path: Path
) -> None:
    with (
        running_service(tmp_path, environment) as service,
        httpx2.Client(base_url=service.url, timeout=MAX_WAIT_SECONDS) as http,
    ):
        probes = [container[f"{name}Probe"]["httpGet"] for name in ("startup", "liveness", "readiness")]
        statuses = [http.get(probe["path"]).status_code for probe in probes]
        form = {"client_id": "phone-app"} | login_form(ALICE, "realm:main role:enduser")
        granted = http.post(TOKEN, data=form)
        metrics = http.get(f"http://{environment['TOKEN_SERVICE_METRICS_ADDRESS']}/metrics")

    assert {probe["port"] for probe in probes} == {"http"}
    assert statuses == [200, 200, 200]
    assert (granted.status_code, metrics.status_code) == (200, 200)


def test_the_protected_api_has_the_middlewares_that_are_tried(protected_api: list[Resource]) -> None:
    tried = yaml.safe_load((CHECKOUT / "examples" / "gateways" / "traefik-routes.yaml").read_text())["http"]
    specs = {one["metadata"]["name"]: one["spec"] for one in protected_api if one["kind"] == "Middleware"}
    for spec in specs.values():
        if "forwardAuth" in spec:
            address = spec["forwardAuth"]["address"]
            assert address.startswith("http://token-service.token-service.svc/")
            spec["forwardAuth"]["address"] = address.replace("token-service.token-service.svc", "127.0.0.1:8000")
    # Traefik's own ping, which the example asks, fails while a pod ends.
    removed = specs.pop("without-identity")["headers"]["customRequestHeaders"]
    assert {name.lower(): value for name, value in removed.items()} == dict.fromkeys(IDENTITY, "")
    del tried["middlewares"]["without-identity"]
    assert specs == tried["middlewares"]

    for ingress in (one for one in protected_api if one["kind"] == "Ingress"):
        router = tried["routers"][ingress["metadata"]["name"]]
        (rule,) = ingress["spec"]["rules"]
        (path,) = rule["http"]["paths"]
        named = ingress["metadata"]["annotations"]["traefik.ingress.kubernetes.io/router.middlewares"]
        assert router["rule"].startswith(f"PathPrefix(`{path['path']}`) && !PathRegexp(")
        assert named == ",".join(f"api-{name}@kubernetescrd" for name in router["middlewares"])
