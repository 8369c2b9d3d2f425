"""A curl command as the first thing to try, printed when the service is ready."""

from __future__ import annotations

import contextlib
import os
import shlex
import ssl
import threading
import time
from http.client import HTTPException
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from service.config.settings import EXAMPLE_SEED, Settings, default_base_url
from service.observability.logs import EventLog

STDOUT = 1

TRIES = 60
PAUSE_SECONDS = 0.1
MAX_PAUSE_SECONDS = 2.0
ANSWER_SECONDS = 3

# Addresses that mean "all interfaces", each with the loopback address by which this machine reaches the service.
REACHABLE = {"0.0.0.0": "127.0.0.1", "::": "::1"}

# A token request with a client and a user of examples/seed.yaml.
EXAMPLE_LOGIN = {
    "grant_type": "password",
    "client_id": "phone-app",
    "username": "alice@example.com",
    "password": "correct horse battery staple",
    "scope": "realm:main role:enduser",
}

log = EventLog("service.serving.greeting")


def print_banner_when_ready(settings: Settings, tls: bool) -> None:
    """Print the banner when the service is ready, from a background thread, which gives up after TRIES attempts."""
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
    # The reader of stdout may have gone (`| head -1`), which must not fail the service. os.write leaves no buffer
    # whose flush at exit could fail.
    with contextlib.suppress(OSError):
        os.write(STDOUT, f"{line}\n".encode())


def local_address(settings: Settings, tls: bool) -> str:
    """Return the URL by which this machine reaches the service. The base URL may be a proxy's."""
    host = REACHABLE.get(settings.host, settings.host)
    return default_base_url(host, settings.port, "https" if tls else "http")


def make_banner(settings: Settings, address: str) -> str:
    """Return a shell command that works when it is pasted unchanged."""
    words = ["curl", "-sS"]
    if address.startswith("https:"):
        words.append("--insecure")  # the certificate names the public address, not this one
    if settings.embedded and settings.seed_file == EXAMPLE_SEED:
        words.append(f"{address}/oauth2/v1/token")
        for name, value in EXAMPLE_LOGIN.items():
            words += ["--data-urlencode", f"{name}={value}"]
    else:
        words += ["-i", f"{address}/readyz"]
    return shlex.join(words)


def _is_ready(address: str) -> bool:
    # The connection is to this service itself, so its certificate is not verified. It names the public address.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        opener.open(f"{address}/readyz", timeout=ANSWER_SECONDS).close()
    except (OSError, HTTPException):  # an HTTPError is an OSError
        return False
    return True
