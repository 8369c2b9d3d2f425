"""An independent identity provider: oidc-provider as a process of its own; see provider.mjs."""

import json
import select
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urljoin

from tests.support.javascript import check_javascript
from tests.support.servers import free_port
from tests.support.waiting import MAX_WAIT_SECONDS

_NODE = Path(sys.executable).with_name("node")
_SCRIPT = Path(__file__).with_suffix(".mjs")

LOGIN = "zoe"
"""A user name at the provider, which accepts any password that is not empty."""
SUB = "zoe-4711"
LOGOUT = "/oauth2/v1/backchannel-logout/cep"


class Provider(NamedTuple):
    """A running oidc-provider. `url` is also its issuer."""

    url: str
    client_id: str = "token-service"
    client_secret: str = "a secret: with 100% + signs"


@contextmanager
def running_provider(redirect_uri: str, *, host: str = "127.0.0.1") -> Iterator[Provider]:
    """Run the provider at 127.0.0.1. Browsers take the name `localhost` for another site."""
    check_javascript()
    port = free_port()
    provider = Provider(f"http://{host}:{port}")
    settings = {
        "issuer": provider.url,
        "client_id": provider.client_id,
        "client_secret": provider.client_secret,
        "redirect_uris": [redirect_uri],
        "scopes": ["openid", "email", "profile"],
        "backchannel_logout_uri": urljoin(redirect_uri, LOGOUT),
    }
    with tempfile.TemporaryFile() as log:
        command = [str(_NODE), str(_SCRIPT), str(port)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log) as process:
            try:
                _send_settings(process, settings)
                assert _is_ready(process), f"oidc-provider does not start: {_read(log)}"
                yield provider
            finally:
                _end(process)
        assert process.returncode == 0, f"oidc-provider ended with {process.returncode}: {_read(log)}"


def realm_of_provider(provider: Provider, **changes: object) -> dict[str, object]:
    """Return the realm's entry in a seed file. None leaves a key out."""
    usual = {
        "name": "Example Provider",
        "issuer": provider.url,
        "client_id": provider.client_id,
        "client_secret": provider.client_secret,
        "scope": "openid email",
        "username_claim": "sub",
        "default_roles": ["enduser"],
    }
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def _send_settings(process: subprocess.Popen[bytes], settings: object) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError):  # the log says why it ended early
        process.stdin.write(json.dumps(settings).encode() + b"\n")
        process.stdin.flush()


def _is_ready(process: subprocess.Popen[bytes]) -> bool:
    assert process.stdout is not None
    readable, _, _ = select.select([process.stdout], [], [], MAX_WAIT_SECONDS)
    return bool(readable) and process.stdout.readline() == b"ready\n"


def _end(process: subprocess.Popen[bytes]) -> None:
    """Close the standard input of the process, which ends it."""
    assert process.stdin is not None
    with suppress(BrokenPipeError):
        process.stdin.close()
    try:
        process.wait(MAX_WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()


def _read(log: Any) -> str:
    log.seek(0)
    return str(log.read().decode())
