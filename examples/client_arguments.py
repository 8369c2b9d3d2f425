"""The arguments of the example client. They need no packages, so `--help` works before anything is installed."""

from __future__ import annotations

import argparse

DESCRIPTION = (
    "An example client: a small web application that signs people in with the token service and shows their tokens."
)


def parse_arguments() -> argparse.Namespace:
    """Return the arguments of the command line. Wrong ones end the process with status 2, and `--help` with 0."""
    parser = argparse.ArgumentParser(prog="example-client", description=DESCRIPTION)
    parser.add_argument(
        "--issuer", default="http://127.0.0.1:8000", help="base URL of the service (default: %(default)s)"
    )
    parser.add_argument("--client-id", default="web-shop", help="client_id of this client (default: %(default)s)")
    parser.add_argument(
        "--client-secret", default="web-shop-secret", help="empty for a public client (default: %(default)s)"
    )
    parser.add_argument(
        "--port", type=int, default=9000, help="port of the registered redirect_uri (default: %(default)s)"
    )
    parser.add_argument(
        "--scope", default="realm:main role:enduser", help="empty for the client's default scope (default: %(default)s)"
    )
    return parser.parse_args()


if __name__ == "__main__":
    parse_arguments()
