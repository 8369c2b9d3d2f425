"""The first thing to try: a curl line, printed once the service answers."""

from __future__ import annotations

import contextlib
import http.client
import os
import shlex
import ssl
import threading
import time
from urllib.parse import urlsplit

from service.config.settings import EXAMPLE_SEED, Settings, default_base_url
from service.observability.logs import EventLog

STDOUT = 1

TRIES = 60
PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 2.0
ANSWER_SECONDS = 3

# Who listens everywhere is reached here.
REACHABLE = {"0.0.0.0": "127.0.0.1", "::": "::1"}

# What examples/seed.yaml holds.
EXAMPLE_LOGIN = {
    "grant_type": "password",
    "client_id": "phone-app",
    "username": "alice@example.com",
    "password": "correct horse battery staple",
    "scope": "realm:main role:enduser",
}

log = EventLog("service.serving.greeting")


def print_banner_when_ready(settings: Settings, tls: bool) -> None:
    """In the background, and not for ever."""
    threading.Thread(target=_greet_when_ready, args=(settings, tls), daemon=True).start()


def _greet_when_ready(settings: Settings, tls: bool) -> None:
    address = local_address(settings, tls)
    for attempt in range(TRIES):
        if _is_ready(address):
            _tell(make_banner(settings, address))
            return
        time.sleep(min(PAUSE_SECONDS * (attempt + 1), MAX_PAUSE_SECONDS))
    log.warning("not ready yet", see=f"{address}/readyz")


def _tell(line: str) -> None:
    # Whoever read our output may have gone (`| head -1`); that must not fail the service, now or at its end.
    with contextlib.suppress(OSError):
        os.write(STDOUT, f"{line}\n".encode())


def local_address(settings: Settings, tls: bool) -> str:
    """Where this machine reaches us: not the base URL, which may be a proxy's."""
    host = REACHABLE.get(settings.host, settings.host)
    return default_base_url(host, settings.port, "https" if tls else "http")


def make_banner(settings: Settings, address: str) -> str:
    """A command line that works, to be pasted as it is."""
    words = ["curl", "-sS"]
    if address.startswith("https:"):
        words.append("--insecure")  # the certificate names the public address
    if settings.embedded and settings.seed_file == EXAMPLE_SEED:
        words.append(f"{address}/oauth2/v1/token")
        for name, value in EXAMPLE_LOGIN.items():
            words += ["--data-urlencode", f"{name}={value}"]
    else:
        words += ["-i", f"{address}/readyz"]
    return shlex.join(words)


def _is_ready(address: str) -> bool:
    connection = _connect(address)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == http.HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _connect(address: str) -> http.client.HTTPConnection:
    parts = urlsplit(address)
    host = parts.hostname or ""
    if parts.scheme == "http":
        return http.client.HTTPConnection(host, parts.port, timeout=ANSWER_SECONDS)
    # We ask ourselves; the certificate is for the others.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return http.client.HTTPSConnection(host, parts.port, timeout=ANSWER_SECONDS, context=context)
