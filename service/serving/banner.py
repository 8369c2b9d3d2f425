"""The text that a start prints on stdout when the service is ready: a block on a terminal, else a curl command."""

from __future__ import annotations

import contextlib
import os
import shlex
import ssl
import sys
import threading
import time
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import quote_plus
from urllib.request import HTTPSHandler, ProxyHandler, build_opener

from service import __version__
from service.config.settings import EXAMPLE_SEED, Settings, default_base_url, describe_store
from service.observability.logs import EventLog
from service.protocol.grammar import make_printable
from service.system.program_files import IS_INSTALLED, PROGRAM_FILES

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

log = EventLog("service.serving.banner")


def print_banner_when_ready(settings: Settings, tls: bool) -> None:
    """Print the banner when the service is ready, from a background thread.

    A service that answers but is not ready, for instance without its Redis, is logged as `listening`. After TRIES
    attempts a warning is logged, and the attempts continue.
    """
    threading.Thread(target=_greet_when_ready, args=(settings, tls), daemon=True).start()


def _greet_when_ready(settings: Settings, tls: bool) -> None:
    address = local_address(settings, tls)
    attempts, is_listening = 0, False
    while (status := _ask_readiness(address)) != 200:
        if status is not None and not is_listening:
            log.info("listening", address=address)
            is_listening = True
        attempts += 1
        if attempts == TRIES:
            log.warning("not ready yet", see=f"{address}/readyz")
        time.sleep(min(PAUSE_SECONDS * attempts, MAX_PAUSE_SECONDS))
    if settings.log_format == "console" and sys.stderr.isatty() and os.isatty(STDOUT):
        _tell(make_block(settings, address))
    else:
        log.info("ready", address=address, version=__version__)
        _tell(f"{make_curl_command(settings, address)}\n")


def _tell(text: str) -> None:
    # The reader of stdout may have gone (`| head -1`), which must not fail the service. os.write leaves no buffer
    # whose flush at exit could fail.
    with contextlib.suppress(OSError):
        os.write(STDOUT, text.encode())


def local_address(settings: Settings, tls: bool) -> str:
    """Return the URL by which this machine reaches the service. The base URL may be a proxy's."""
    host = REACHABLE.get(settings.host, settings.host)
    return default_base_url(host, settings.port, "https" if tls else "http")


def make_block(settings: Settings, address: str) -> str:
    """Return the lines for a person who started the service at a terminal. Only public passwords are among them."""
    curl = make_curl_command(settings, address, line_end=" \\\n    ")
    request = "get a token in" if _has_example_login(settings) else "check it from"
    return f"""
Ready at {address}/

{_list_facts(settings)}

Open the address in a browser, or {request} another terminal:

  {curl}

"""


def _list_facts(settings: Settings) -> str:
    facts = {
        "Store": describe_store(settings, _shorten(settings.data_dir)),
        "Seed": "none" if settings.seed_file is None else _shorten(settings.seed_file),
    }
    if _has_example_login(settings):
        facts["Example login"] = f"{EXAMPLE_LOGIN['username']} / {EXAMPLE_LOGIN['password']}"
    facts |= {"Console": f"{_name_console()} --help", "Stop": "Ctrl-C"}
    return "\n".join(f"  {name:<13}  {make_printable(value)}" for name, value in facts.items())


def make_curl_command(settings: Settings, address: str, *, line_end: str = " ") -> str:
    """Return a shell command that works when it is pasted unchanged. Its parts are joined with `line_end`."""
    # The certificate names the public address, not this one.
    curl = ["curl", "-sS", *(["--insecure"] if address.startswith("https:") else [])]
    if not _has_example_login(settings):
        return shlex.join([*curl, "-i", f"{address}/readyz"])
    fields = [f"{name}={quote_plus(value, safe='@:')}" for name, value in EXAMPLE_LOGIN.items()]
    parts = [[*curl, f"{address}/oauth2/v1/token", *_as_data(fields[:1])], _as_data(fields[1:3]), _as_data(fields[3:])]
    return line_end.join(map(shlex.join, parts))


def _as_data(fields: Sequence[str]) -> list[str]:
    return [word for field in fields for word in ("-d", field)]


def _shorten(path: Path) -> str:
    """Return the path from the current folder if it lies inside, else the whole path."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _has_example_login(settings: Settings) -> bool:
    return settings.embedded and settings.seed_file == EXAMPLE_SEED


def _name_console() -> str:
    if IS_INSTALLED:
        return "token-service-admin"
    return "./scripts/admin" if Path.cwd() == PROGRAM_FILES else f"{PROGRAM_FILES}/scripts/admin"


def _ask_readiness(address: str) -> int | None:
    """Return the status of /readyz, or None if nothing answers."""
    # The connection is to this service itself, so its certificate is not verified. It names the public address.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=context))
    try:
        with opener.open(f"{address}/readyz", timeout=ANSWER_SECONDS) as answer:
            return int(answer.status)
    except HTTPError as refusal:
        refusal.close()
        return refusal.code
    except (OSError, HTTPException):
        return None
