"""What may follow `./scripts/serve`: uvicorn's own arguments, over our defaults."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Any

import click
import uvicorn
from click.core import ParameterSource
from uvicorn.main import main as uvicorn_command

from service.config.settings import Settings, default_base_url
from service.serving.uvicorn_protocol import HttpConnection

APPLICATION = "service.app:create_app"
GRACEFUL_SHUTDOWN_SECONDS = 10
HTTP = "httptools"

# These would bring a second place for what the environment says, or print what must not be printed.
REFUSED = {
    "access_log": "the access log would show query strings",
    "env_file": "set the environment instead",
    "log_config": "use LOG_LEVEL and LOG_FORMAT",
}

Arguments = dict[str, Any]


class BadArguments(Exception):
    """The message is for stderr, as it is."""


def parse_arguments(arguments: list[str], settings: Settings) -> Arguments | None:
    """What uvicorn's command line understood; None where that was all (`--help`, `--version`)."""
    try:
        context = uvicorn_command.make_context(
            "service",
            [APPLICATION, *arguments],
            default_map=_defaults(settings),
            auto_envvar_prefix=None,
        )
    except click.exceptions.Exit:
        return None
    except click.ClickException as error:
        raise BadArguments(error.format_message()) from None
    _check_refused(context)
    _check_readable(context)
    return context.params


def apply_arguments(arguments: Arguments, environment: MutableMapping[str, str]) -> None:
    """Workers read the environment, so it has to say what the arguments say."""
    environment["HOST"] = str(arguments["host"])
    environment["PORT"] = str(arguments["port"])
    environment["WEB_CONCURRENCY"] = str(arguments["workers"])
    if arguments["log_level"]:
        # uvicorn's `trace` prints whole requests, with their tokens.
        environment["LOG_LEVEL"] = arguments["log_level"].replace("trace", "debug")


def apply_port(arguments: Arguments, port: int, environment: MutableMapping[str, str]) -> None:
    """The port that we really have (0 asked for any), and https where uvicorn was given a certificate."""
    arguments["port"] = port
    environment["PORT"] = str(port)
    if arguments["ssl_certfile"] and not environment.get("TOKEN_SERVICE_BASE_URL"):
        environment["TOKEN_SERVICE_BASE_URL"] = default_base_url(arguments["host"], port, "https")


def make_configuration(arguments: Arguments) -> uvicorn.Config:
    """Ours is the logging; uvicorn's own would also print each request with its query string."""
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
        "timeout_graceful_shutdown": GRACEFUL_SHUTDOWN_SECONDS,
    }


def _check_refused(context: click.Context) -> None:
    for name, reason in REFUSED.items():
        given = context.get_parameter_source(name) is ParameterSource.COMMANDLINE
        if given and context.params[name]:
            raise BadArguments(f"--{name.replace('_', '-')} is not to be had here: {reason}")


def _check_readable(context: click.Context) -> None:
    """Workers would find out one by one, and with a traceback."""
    for name in ("ssl_certfile", "ssl_keyfile", "ssl_ca_certs"):
        file = context.params[name]
        if file is not None and not _is_readable(file):
            raise BadArguments(f"--{name.replace('_', '-')}: {file!r}: expected a file that exists and can be read")


def _is_readable(file: str) -> bool:
    try:
        return os.access(file, os.R_OK)
    except ValueError:  # a name that no file can have, with a NUL byte for instance
        return False
