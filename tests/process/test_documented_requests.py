"""The shell blocks of README.md and docs work, and print what the documents show."""

from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.conftest import environment_of
from tests.support.documented_commands import SHOWN_BASE, run_page
from tests.support.documents import PAGES
from tests.support.servers import CHECKOUT, ServiceProcess, running_service, start_redis, stop

LOGIN = {
    "grant_type": "password",
    "client_id": "phone-app",
    "username": "alice@example.com",
    "password": "correct horse battery staple",
    "scope": "realm:main role:enduser",
}
"""The login of the documents, with the example seed. Pages may use its access token as $ACCESS_TOKEN."""


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The settings of the service that all pages share. It has the example seed, as `./scripts/serve` starts it."""
    server = start_redis(tmp_path_factory.mktemp("redis"))
    seed = str(CHECKOUT / "examples" / "seed.yaml")
    yield environment_of(server, TOKEN_SERVICE_SEED_FILE=seed, TOKEN_SERVICE_BASE_URL=SHOWN_BASE)
    stop(server.process)


@pytest.fixture(scope="module")
def service(environment: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service"), environment) as service:
        yield service


@pytest.mark.parametrize(
    "page", [page for page in PAGES if "```sh" in page.read_text()], ids=lambda page: str(page.relative_to(CHECKOUT))
)
def test_shell_blocks_of_a_page_work(
    page: Path, service: ServiceProcess, environment: dict[str, str], tmp_path: Path
) -> None:
    answer = httpx2.post(f"{service.url}/oauth2/v1/token", data=LOGIN)
    given = {"ACCESS_TOKEN": answer.json()["access_token"], "REDIS_PASSWORD": "change-me"}

    assert run_page(page.read_text(), tmp_path, service.url, environment | given) == []
