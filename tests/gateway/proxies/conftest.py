"""The gateways of examples/gateways, before the real service, and before one that answers as a test says."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import httpx2
import pytest

from tests.conftest import environment_of
from tests.gateway.proxies.gateways import COMMANDS, Gateway, running_gateway
from tests.gateway.proxies.recorder import Arrived, Recorder, Reply
from tests.support.clients_and_users import PHONE_APP, REVOKE, TOKEN, UserCredentials, login_form
from tests.support.left_out import get_program
from tests.support.servers import ServiceProcess, running_service, start_redis, stop
from tests.support.waiting import MAX_WAIT_SECONDS

SEED = Path(__file__).parent / "seed.yaml"
NAMES = tuple(COMMANDS)


def answer_as_api(_: Arrived) -> Reply:
    return Reply(body=b"from the API", headers={"X-From": "api"})


def answer_as_live(_: Arrived) -> Reply:
    """Return the default response of the stand-in."""
    return Reply(headers={"X-Auth-Subject": "s", "X-Auth-Realm": "main", "X-Auth-User": "stand-in"})


@dataclass
class ProxyDeployment:
    """`start` returns a gateway before the service or `stand_in`, by its name and the port, and behind it is `api`."""

    service: ServiceProcess
    api: Recorder
    stand_in: Recorder
    start: Callable[[str, int], Gateway]

    def log_in(self, credentials: UserCredentials, scope: str) -> str:
        """An access token."""
        answer = httpx2.post(
            self.service.url + TOKEN,
            data=PHONE_APP.credentials | login_form(credentials, scope),
            timeout=MAX_WAIT_SECONDS,
        )
        assert answer.status_code == 200, answer.text
        token: str = json.loads(answer.content)["access_token"]
        return token

    def revoke(self, token: str) -> None:
        form = PHONE_APP.credentials | {"token": token}
        assert httpx2.post(self.service.url + REVOKE, data=form, timeout=MAX_WAIT_SECONDS).status_code == 200


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProxyDeployment]:
    with ExitStack() as running:
        redis = start_redis(tmp_path_factory.mktemp("redis"))
        running.callback(stop, redis.process)
        environment = environment_of(redis, TOKEN_SERVICE_SEED_FILE=str(SEED))
        api = running.enter_context(Recorder(answer_as_api).running())
        stand_in = running.enter_context(Recorder(answer_as_live).running())
        service = running.enter_context(running_service(tmp_path_factory.mktemp("service"), environment))

        @cache
        def start(name: str, port: int) -> Gateway:
            """Start the gateway, or return the one that runs."""
            get_program(COMMANDS[name][0])
            folder = tmp_path_factory.mktemp(name)
            gateway = running.enter_context(running_gateway(name, folder, port, api.port))
            api.arrived.clear()  # the wait for the gateway asks the API
            return gateway

        yield ProxyDeployment(service, api, stand_in, start)


@pytest.fixture(autouse=True)
def nothing_arrived(deployment: ProxyDeployment) -> None:
    deployment.api.arrived.clear()
    deployment.stand_in.arrived.clear()


@pytest.fixture(params=NAMES)
def name(request: pytest.FixtureRequest) -> str:
    """The name of each gateway. Leaves the test out for one that this machine lacks."""
    value: str = request.param
    get_program(COMMANDS[value][0])
    return value


@pytest.fixture
def gateway(deployment: ProxyDeployment, name: str) -> Gateway:
    """A gateway in front of the real service."""
    return deployment.start(name, deployment.service.port)


@pytest.fixture
def before_stand_in(deployment: ProxyDeployment, name: str) -> Gateway:
    return deployment.start(name, deployment.stand_in.port)


ALICE = UserCredentials("alice@example.com", "correct horse battery staple")


@pytest.fixture(scope="module")
def enduser(deployment: ProxyDeployment) -> str:
    """Alice's token without the role of partners."""
    return deployment.log_in(ALICE, "realm:main role:enduser")


@pytest.fixture(scope="module")
def partner(deployment: ProxyDeployment) -> str:
    """Alice's token with it."""
    return deployment.log_in(ALICE, "realm:main role:partner")
