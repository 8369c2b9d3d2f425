"""The command line of `./scripts/serve`: uvicorn's own arguments, with our defaults."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import click
import uvicorn
from click.core import ParameterSource
from uvicorn.config import create_ssl_context
from uvicorn.main import main as uvicorn_command

from service.config.settings import Settings, default_base_url
from service.serving.connections import HttpConnection

APPLICATION = "service.app:create_app"
GRACEFUL_SHUTDOWN_SECONDS = 10
HTTP = "httptools"

# Refused arguments, with the reason. They would set a second time what the environment sets, or log secrets.
REFUSED = {
    "access_log": "it would log query strings. Requests are logged by service.access.",
    "env_file": "settings are environment variables. Set them before you start the service.",
    "timeout_keep_alive": "use TOKEN_SERVICE_KEEP_ALIVE.",
    "log_config": "the log format is fixed. Use LOG_LEVEL and LOG_FORMAT.",
}

Arguments = dict[str, Any]


class BadArguments(Exception):
    """Error for arguments that cannot be used. The message is printed to stderr unchanged."""


def parse_arguments(arguments: list[str], settings: Settings, application: str = APPLICATION) -> Arguments:
    """Parse the command line with uvicorn's own command. Returns its parameters, with the name of the application.

    `--help` and `--version` are not among the arguments. Raises BadArguments if an argument is wrong or refused here.
    """
    try:
        context = uvicorn_command.make_context(
            "service",
            [application, *arguments],
            default_map=_defaults(settings),
            auto_envvar_prefix=None,
        )
    except click.ClickException as error:
        raise BadArguments(error.format_message()) from None
    for name, reason in REFUSED.items():
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE and context.params[name]:
            raise BadArguments(f"--{name.replace('_', '-')} is not supported: {reason}")
    return context.params


def apply_arguments(arguments: Arguments, environment: MutableMapping[str, str]) -> None:
    """Copy the arguments into the environment, from which worker processes read their settings."""
    environment["HOST"] = str(arguments["host"])
    environment["PORT"] = str(arguments["port"])
    environment["WEB_CONCURRENCY"] = str(arguments["workers"])
    if arguments["log_level"]:
        # uvicorn's level `trace` logs whole requests, with the tokens in them.
        environment["LOG_LEVEL"] = arguments["log_level"].replace("trace", "debug")


def apply_port(arguments: Arguments, port: int, environment: MutableMapping[str, str]) -> None:
    """Store the actual port in arguments and environment, since port 0 asks for any free one.

    If uvicorn has a certificate and no base URL is set, the base URL in the environment becomes an https one.
    """
    arguments["port"] = port
    environment["PORT"] = str(port)
    if arguments["ssl_certfile"] and not environment.get("TOKEN_SERVICE_BASE_URL"):
        environment["TOKEN_SERVICE_BASE_URL"] = default_base_url(arguments["host"], port, "https")


def make_configuration(arguments: Arguments) -> uvicorn.Config:
    """Return uvicorn's configuration, without its logging, which would show the query string of each request."""
    changed: Arguments = {
        "access_log": False,
        "log_config": None,
        "log_level": None,
        "headers": [tuple(header.split(":", 1)) for header in arguments["headers"]],
    }
    if arguments["http"] == HTTP:
        changed["http"] = HttpConnection
    kept = {name: value for name, value in arguments.items() if name != "app_dir"}
    return uvicorn.Config(**(kept | changed))


def _defaults(settings: Settings) -> dict[str, object]:
    return {
        "host": settings.host,
        "port": settings.port,
        "workers": settings.workers,
        "factory": True,
        "loop": "uvloop",
        "http": HTTP,
        "ws": "none",
        "proxy_headers": False,
        "server_header": False,
        "timeout_keep_alive": max(1, settings.keep_alive_ms // 1000),
        "timeout_graceful_shutdown": GRACEFUL_SHUTDOWN_SECONDS,
    }


def check_tls(arguments: Arguments) -> None:
    """Raise BadArguments if the TLS files cannot be used. Otherwise each worker would fail with a traceback."""
    names = ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs")
    given = {f"--{name.replace('_', '-')}": arguments[name] for name in names if arguments[name]}
    # OpenSSL would ask at the terminal for a missing password.
    own = {"password": arguments["ssl_keyfile_password"] or " ", "ssl_version": arguments["ssl_version"]}
    others = {name: arguments[f"ssl_{name}"] for name in ("certfile", "keyfile", "cert_reqs", "ca_certs", "ciphers")}
    try:
        if given:
            create_ssl_context(**own, **others)
    except (OSError, TypeError) as error:
        files = ", ".join(f"{option} {file}" for option, file in given.items())
        raise BadArguments(f"{files}: expected a certificate and its key in PEM files ({error})") from None
