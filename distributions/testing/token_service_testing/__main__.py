"""The service for tests: `python -m token_service_testing [--seed FILE] [--port N]`.

It has a store in a temporary folder, and ends when standard input is closed. No variable of the environment is a
setting, so that each run is the same.
"""

import argparse
import json
import os
import signal
import sys
from tempfile import TemporaryDirectory

from redis import Redis

from service.config.settings import EXAMPLE_SEED, VARIABLES, Settings
from service.embedded.data_folder import socket_path
from service.serving.supervisor import serve
from token_service_testing import scripts


def announce(settings: Settings, address: str) -> None:
    """Print the addresses, and end the service when standard input is closed."""
    path = str(socket_path(settings.data_dir))
    Redis(unix_socket_path=path).eval(scripts.KEEP, 0)
    print(json.dumps({"url": address, "redis_url": f"unix://{path}"}), flush=True)  # noqa: T201
    while os.read(0, 65_536):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m token_service_testing")
    parser.add_argument("--seed", metavar="FILE", default=str(EXAMPLE_SEED), help="default: the example seed")
    parser.add_argument("--port", metavar="N", default="0", help="default: a free port")
    options = parser.parse_args()
    with TemporaryDirectory(prefix="token-service-") as folder:
        own = {"TOKEN_SERVICE_DATA_DIR": folder, "TOKEN_SERVICE_SEED_FILE": options.seed, "LOG_LEVEL": "error"}
        os.environ |= dict.fromkeys(VARIABLES, "") | own
        sys.exit(serve(["--port", options.port], application="token_service_testing.app:Application", greet=announce))
