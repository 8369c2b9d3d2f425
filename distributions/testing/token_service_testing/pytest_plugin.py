"""A pytest plugin with the fixture `token_service`. pytest finds it by itself where this distribution is installed."""

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import pytest


@dataclass
class TokenService:
    """The running program. `url` is the base URL of its service, and `redis_url` names its store.

    Each command is a method with keyword arguments. It returns the answer, and raises RuntimeError if it is refused.

    - tokens(username, client_id, scope, realm) logs a user in without a password, and returns the token response. The
      last two have defaults.
    - advance(seconds) moves the clock of the service and of the store.
    - end(username, realm) revokes everything that a user has.
    - lose(answers) drops so many responses of the token endpoint after their work is done.
    - outage(is_on) begins or ends an outage of the store.
    - reset() brings the service back to its state after the start.
    """

    url: str
    redis_url: str

    def __getattr__(self, command: str) -> Callable[..., Any]:
        return lambda **arguments: self._run(command, arguments)

    def _run(self, command: str, arguments: dict[str, object]) -> Any:
        request = Request(f"{self.url}/_test/{command}", json.dumps(arguments).encode())
        try:
            return json.load(build_opener(ProxyHandler({})).open(request, timeout=60))
        except HTTPError as refusal:
            raise RuntimeError(f"{command}: {refusal.read().decode()}") from None


def pytest_addoption(parser: pytest.Parser) -> None:
    start = [sys.executable, "-m", "token_service_testing"]
    parser.addini("token_service_command", "the command that starts the service for tests", type="args", default=start)
    parser.addini("token_service_seed", "its seed file, relative to the root directory of pytest")


@pytest.fixture(scope="session")
def _started_token_service(pytestconfig: pytest.Config) -> Iterator[TokenService]:
    command, seed = pytestconfig.getini("token_service_command"), pytestconfig.getini("token_service_seed")
    command = [*command, "--seed", str(pytestconfig.rootpath / seed)] if seed else command
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        addresses = process.stdout.readline()  # type: ignore[union-attr]
        assert addresses, "the token service did not start; its stderr has the reason"
        yield TokenService(**json.loads(addresses))


@pytest.fixture
def token_service(_started_token_service: TokenService) -> TokenService:
    """The token service in its state after the start. The first test that uses it starts it."""
    _started_token_service.reset()
    return _started_token_service
