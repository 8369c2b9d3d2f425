"""The rolling restart of docs/how-to/upgrade.md, here with a change of the secret key."""

import ssl
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from service.store.keys import registry_key
from tests.conftest import environment_of
from tests.deployment.proxies import running_haproxy, running_nginx
from tests.support.clients_and_users import ALICE, GATEWAY, INTROSPECT, PHONE_APP, TOKEN, VERIFY, login_form
from tests.support.metrics_scrape import Scrape
from tests.support.servers import RedisServer, ServiceProcess, free_port, running_service, stop
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

OLD, NEW = "the key of yesterday of 32 bytes or more", "the key of tomorrow of 32 bytes or more: a long one"
STEPS = (OLD, f"{OLD},{NEW}", f"{NEW},{OLD}", NEW)
LOGIN = PHONE_APP.credentials | login_form(ALICE, "realm:main role:enduser")
PLENTY = "1000000/minute"


class Load:
    """Users that send requests without pause, each in a thread. Every response other than 200 is recorded."""

    def __init__(self, url: httpx2.URL, trust: ssl.SSLContext) -> None:
        self.answered: Counter[str] = Counter()
        self.failures: list[str] = []
        self._url, self._trust = url, trust
        self._ends = threading.Event()
        users = (self._keep_session, self._keep_session, self._log_in, self._log_in_repeatedly)
        self._threads = [threading.Thread(target=user) for user in users]

    @contextmanager
    def running(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._ends.set()
            for thread in self._threads:
                thread.join()

    def client(self) -> httpx2.Client:
        return httpx2.Client(base_url=self._url, verify=self._trust, timeout=MAX_WAIT_SECONDS)

    def _keep_session(self) -> None:
        """Use one session from the first key to the last, and check its access token at every gateway."""
        with self.client() as http:
            tokens = http.post(TOKEN, data=LOGIN).json()
            while not self._ends.is_set():
                form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"]}
                tokens = self._ask(http, "refresh", "POST", TOKEN, data=PHONE_APP.credentials | form) or tokens
                bearer = {"Authorization": f"Bearer {tokens['access_token']}"}
                self._ask(http, "verify", "GET", VERIFY, headers=bearer)

    def _log_in(self) -> None:
        with self.client() as http:
            while not self._ends.wait(0.05):
                self._ask(http, "login", "POST", TOKEN, data=LOGIN)

    def _log_in_repeatedly(self) -> None:
        """Log in on a new connection each time."""
        while not self._ends.wait(0.02):
            with self.client() as http:
                self._ask(http, "introspect", "POST", INTROSPECT, data={"token": "x"}, headers=GATEWAY.basic)

    def _ask(self, http: httpx2.Client, kind: str, method: str, path: str, **request: object) -> dict[str, str] | None:
        try:
            response = http.request(method, path, **request)  # type: ignore[arg-type]
        except httpx2.TransportError as error:
            self.failures.append(f"{kind}: {error!r}")
            return None
        if response.status_code != 200:
            self.failures.append(f"{kind}: {response.status_code} {response.text}")
            return None
        self.answered[kind] += 1
        return response.json() if kind == "refresh" else None


@pytest.mark.long
@pytest.mark.parametrize("workers", ["1", "2"])
@pytest.mark.parametrize("running_proxy", [running_nginx, running_haproxy], ids=["nginx", "haproxy"])
@pytest.mark.clause("decided-restart-costs-no-request", "decided-secret-key-rotation")
def test_rolling_restart_loses_no_request(
    tmp_path: Path,
    own_redis: RedisServer,
    running_proxy: Callable[..., AbstractContextManager[httpx2.Client]],
    workers: str,
) -> None:
    with own_redis.connect() as store:
        store.delete(registry_key("secret_keys"))  # those of the other tests' key
    ports = (free_port(), free_port())
    services: dict[int, ServiceProcess] = {}

    def start(instance: ExitStack, port: int, keys: str) -> None:
        environment = environment_of(
            own_redis,
            TOKEN_SERVICE_SECRET_KEY=keys,
            WEB_CONCURRENCY=workers,
            TOKEN_SERVICE_LOGIN_ATTEMPTS=PLENTY,
            TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER=PLENTY,
            TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS=PLENTY,
        )
        services[port] = instance.enter_context(running_service(tmp_path, environment, port=port))

    with ExitStack() as first, ExitStack() as second, running_proxy(tmp_path / "proxy", *ports) as http:
        instances = tuple(zip((first, second), ports, strict=True))
        for instance, port in instances:
            start(instance, port, STEPS[0])
        wait_until(lambda: http.get("/.well-known/oauth-authorization-server").status_code == 200, "the proxy to start")
        trust = ssl.create_default_context(cafile=str(tmp_path / "proxy" / "tls" / "certificate.pem"))
        load = Load(http.base_url, trust)
        with load.running():
            for keys in STEPS[1:]:
                for instance, port in instances:
                    # SIGTERM, as an operator's service manager sends it
                    assert stop(services[port].process) == 0
                    instance.close()
                    start(instance, port, keys)
                    new = services[port]
                    wait_until(lambda new=new: load.failures or gets_requests(new), "the proxy to use the new instance")

    assert load.failures == []
    assert min(load.answered[kind] for kind in ("refresh", "verify", "login", "introspect")) > 20


def gets_requests(service: ServiceProcess) -> bool:
    """Return True if this instance has served each kind of request. Only the proxy sends it any."""
    scrape = Scrape(httpx2.get(f"{service.url}/metrics").text)
    kinds = ({"grant": "refresh_token"}, {"grant": "password"}, {"endpoint": "verify"}, {"endpoint": "introspect"})
    return all(scrape.sum("token_service_requests_total", outcome="ok", **kind) >= 5 for kind in kinds)
