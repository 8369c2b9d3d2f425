"""The curl command that a start prints on stdout when the service is ready."""

from __future__ import annotations

import contextlib
import itertools
import os
import shlex
import ssl
import threading
import time
from collections.abc import Callable
from http.client import HTTPException
from urllib.parse import quote_plus
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from service import __version__
from service.config.settings import EXAMPLE_SEED, Settings, default_base_url
from service.observability.logs import EventLog

STDOUT = 1

PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 2.0
ANSWER_SECONDS = 3

# A token request with a client and a user of examples/seed.yaml.
EXAMPLE_LOGIN = {
    "grant_type": "password",
    "client_id": "phone-app",
    "username": "alice@example.com",
    "password": "correct horse battery staple",
    "scope": "realm:main role:enduser",
}

Greet = Callable[[Settings, str], None]
"""A function that is called with the settings and the local address when the service is ready."""

log = EventLog("service.serving.banner")


def greet_when_ready(greet: Greet, settings: Settings, tls: bool) -> None:
    """Wait in a background thread until /readyz is 200, then log the address and call `greet` with it."""
    threading.Thread(target=_greet_when_ready, args=(greet, settings, tls), daemon=True).start()


def _greet_when_ready(greet: Greet, settings: Settings, tls: bool) -> None:
    address = default_base_url(settings.host, settings.port, "https" if tls else "http")
    for attempts in itertools.count(1):
        if _is_ready(address):
            break
        time.sleep(min(PAUSE_SECONDS * attempts, MAX_PAUSE_SECONDS))
    log.info("ready", address=address, version=__version__)
    greet(settings, address)


def print_banner(settings: Settings, address: str) -> None:
    """Print the command."""
    # The reader of stdout may have gone (`| head -1`), which must not fail the service. os.write leaves no buffer
    # whose flush at exit could fail.
    with contextlib.suppress(OSError):
        os.write(STDOUT, f"{make_curl_command(settings, address)}\n".encode())


def make_curl_command(settings: Settings, address: str) -> str:
    """Return a shell command that works when it is pasted unchanged. Only public passwords are in it."""
    # The certificate names the public address, not this one.
    curl = ["curl", "-sS", *(["--insecure"] if address.startswith("https:") else [])]
    if not (settings.embedded and settings.seed_file == EXAMPLE_SEED):
        return shlex.join([*curl, "-i", f"{address}/readyz"])
    fields = [f"{name}={quote_plus(value, safe='@:')}" for name, value in EXAMPLE_LOGIN.items()]
    return shlex.join([*curl, f"{address}/oauth2/v1/token", *(word for field in fields for word in ("-d", field))])


def _is_ready(address: str) -> bool:
    # The connection is to this service itself, so its certificate is not verified. It names the public address.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with opener.open(f"{address}/readyz", timeout=ANSWER_SECONDS):
            return True
    except (OSError, HTTPException):
        return False
