"""The help and the version of `./scripts/serve`. This module works before any package is installed."""

from __future__ import annotations

import sys

from service import __version__
from service.system.program_files import IS_INSTALLED

COMMAND = "python -m service" if IS_INSTALLED else "./scripts/serve"

HELP = f"""\
Usage: {COMMAND} [OPTIONS]

Start the token service. Without REDIS_URL, it starts an embedded Redis server
and loads the example seed. When it is ready, it prints its URL and a curl
command. Ctrl-C or SIGTERM stops it after the requests in progress.

Options (these override the environment variables):
  --host ADDRESS        The address to listen on (HOST, 127.0.0.1).
  --port NUMBER         The port to listen on (PORT, 8000); 0: any free one.
  --workers NUMBER      The number of worker processes (WEB_CONCURRENCY, 1).
  --log-level LEVEL     debug, info, warning, error or critical (LOG_LEVEL).
  --uds PATH            Listen on a Unix domain socket.
  --fd NUMBER           Listen on an open socket, for example from systemd.
  --ssl-certfile FILE   The certificate for https, a PEM file.
  --ssl-keyfile FILE    The private key of the certificate, a PEM file.
  --version             Print the version and exit.
  -h, --help            Print this help and exit.

Uvicorn's other options work too, except --access-log, --env-file, --log-config
and --timeout-keep-alive. docs/reference/settings.md lists all settings.
Exit status: 0 stopped, 1 the store or workers failed, 2 wrong input.
"""


def find_answer(command_line: list[str]) -> str | None:
    """Return the text that the command line asks for, the help or the version. Returns None for a start."""
    if "--help" in command_line or "-h" in command_line:
        return HELP
    if "--version" in command_line:
        return f"token-service {__version__}\n"
    return None


if __name__ == "__main__":
    sys.stdout.write(find_answer(sys.argv[1:]) or HELP)
