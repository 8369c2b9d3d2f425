"""The settings of an operator, read once from the environment, checked, and frozen.

All mistakes are found before anything starts, and are reported together.

A field of `Settings` defines a setting: its variable, its parser and its default. docs/reference/settings.md
explains each.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import partial
from pathlib import Path
from typing import cast

import msgspec

from service.config import parsers
from service.config.parsers import HostPort, Limit, Network
from service.config.reading import BadSettings, Reading, Setting, read_secret_file, setting
from service.embedded.data_folder import socket_path
from service.protocol.client import Lifetimes
from service.protocol.uri import is_local, is_loopback
from service.protocol.user import MIN_PASSWORD_CHARACTERS
from service.redis_client.url import MEMORY, Durability, RedisUrl, parse_redis_url, without_password
from service.system.program_files import IS_INSTALLED, PROGRAM_FILES

EXAMPLE_SEED = PROGRAM_FILES / "examples" / "seed.yaml"

PREFIX = "TOKEN_SERVICE_"


# Defaults that depend on settings which were read before.


def _data_folder(read: Reading) -> str:
    """Return the folder in the checkout. Files of a wheel may be read-only, and the next installation removes them."""
    if not IS_INSTALLED:
        return str(PROGRAM_FILES / ".data")
    state = read.environment.get("XDG_STATE_HOME") or f"{read.environment.get('HOME', '')}/.local/state"
    return f"{state}/token-service"


def _local_url(read: Reading) -> str:
    return default_base_url(read.values["host"], read.values["port"])


def _example_seed_where_embedded(read: Reading) -> str | None:
    return str(EXAMPLE_SEED) if read.uses_embedded_store else None


def _log_format_of_the_terminal(_: Reading) -> str:
    return "console" if sys.stderr.isatty() else "json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """All settings, in the order of reading. A default may depend on a setting above it."""

    redis_url: str | None = setting("REDIS_URL", parsers.parse_redis_address, None, secret=True)
    redis_url_file: Path | None = setting("REDIS_URL_FILE", parsers.parse_file, None)
    host: str = setting("HOST", parsers.parse_host, "127.0.0.1")
    port: int = setting("PORT", parsers.parse_port, "8000")
    workers: int = setting("WEB_CONCURRENCY", parsers.parse_workers, "1")
    data_dir: Path = setting("TOKEN_SERVICE_DATA_DIR", parsers.parse_folder, _data_folder)
    base_url: str = setting("TOKEN_SERVICE_BASE_URL", parsers.parse_base_url, _local_url)
    web_url: str = setting("TOKEN_SERVICE_WEB_URL", parsers.parse_base_url, lambda read: str(read.values["base_url"]))
    seed_file: Path | None = setting("TOKEN_SERVICE_SEED_FILE", parsers.parse_file, _example_seed_where_embedded)
    secret_keys: tuple[bytes, ...] = setting("TOKEN_SERVICE_SECRET_KEY", parsers.parse_secret_keys, None, secret=True)
    min_password_characters: int = setting(
        "TOKEN_SERVICE_PASSWORD_MIN_LENGTH", parsers.parse_password_length, str(MIN_PASSWORD_CHARACTERS)
    )
    durability: Durability = setting("TOKEN_SERVICE_DURABILITY", parsers.parse_durability, "memory")
    access_token_ms: int = setting("TOKEN_SERVICE_ACCESS_TOKEN_TTL", parsers.parse_duration_ms, "600")
    refresh_token_ms: int = setting("TOKEN_SERVICE_REFRESH_TOKEN_TTL", parsers.parse_duration_ms, "2592000")
    session_max_age_ms: int | None = setting("TOKEN_SERVICE_SESSION_MAX_AGE", parsers.parse_duration_ms, None)
    sessions_per_user: int = setting("TOKEN_SERVICE_SESSIONS_PER_USER", parsers.parse_sessions, "1000")
    code_ms: int = setting("TOKEN_SERVICE_CODE_TTL", parsers.parse_duration_ms, "60")
    refresh_grace_ms: int = setting("TOKEN_SERVICE_REFRESH_GRACE", parsers.parse_duration_or_zero_ms, "300")
    login_session_ttl_ms: int = setting("TOKEN_SERVICE_LOGIN_SESSION_TTL", parsers.parse_duration_ms, "3600")
    stay_signed_in_ttl_ms: int = setting("TOKEN_SERVICE_STAY_SIGNED_IN_TTL", parsers.parse_duration_ms, "2592000")
    login_attempts: Limit = setting("TOKEN_SERVICE_LOGIN_ATTEMPTS", parsers.parse_limit, "10/minute")
    login_attempts_per_user: Limit = setting("TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER", parsers.parse_limit, "100/hour")
    login_attempts_per_address: Limit = setting(
        "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS", parsers.parse_limit, "100/minute"
    )
    client_attempts: Limit = setting("TOKEN_SERVICE_CLIENT_ATTEMPTS", parsers.parse_limit, "30/minute")
    pages_per_address: Limit = setting("TOKEN_SERVICE_PAGES_PER_ADDRESS", parsers.parse_limit, "300/minute")
    trusted_proxies: tuple[Network, ...] = setting("TOKEN_SERVICE_TRUSTED_PROXIES", parsers.parse_networks, "")
    keep_alive_ms: int = setting("TOKEN_SERVICE_KEEP_ALIVE", parsers.parse_duration_ms, "75s")
    verify_cache: bool = setting("TOKEN_SERVICE_VERIFY_CACHE", parsers.parse_switch, "off")
    metrics_address: HostPort | None = setting("TOKEN_SERVICE_METRICS_ADDRESS", parsers.parse_address, None)
    page_name: str = setting("TOKEN_SERVICE_PAGE_NAME", parsers.parse_page_name, "Token Service")
    page_logo: Path | None = setting("TOKEN_SERVICE_PAGE_LOGO", parsers.parse_logo, None)
    page_accent: str = setting("TOKEN_SERVICE_PAGE_ACCENT", parsers.parse_colour, "#1f5fa8")
    page_help_url: str | None = setting("TOKEN_SERVICE_PAGE_HELP_URL", parsers.parse_link, None)
    page_register_url: str | None = setting("TOKEN_SERVICE_PAGE_REGISTER_URL", parsers.parse_link, None)
    page_privacy_url: str | None = setting("TOKEN_SERVICE_PAGE_PRIVACY_URL", parsers.parse_link, None)
    page_legal_url: str | None = setting("TOKEN_SERVICE_PAGE_LEGAL_URL", parsers.parse_link, None)
    log_level: str = setting("LOG_LEVEL", parsers.one_of("debug", "info", "warning", "error", "critical"), "info")
    log_format: str = setting("LOG_FORMAT", parsers.one_of("console", "json"), _log_format_of_the_terminal)

    @property
    def embedded(self) -> bool:
        return self.redis_url is None

    @property
    def store_name(self) -> str:
        """The store as it may be shown: the embedded one with its folder, or the URL without its password."""
        return f"the embedded store in {self.data_dir}" if self.redis_url is None else without_password(self.redis_url)

    @property
    def has_public_example_seed(self) -> bool:
        """True if callers from other machines may log in with the passwords of the example seed."""
        return self.seed_file == EXAMPLE_SEED and self.find_public_setting() is not None

    def find_public_setting(self) -> str | None:
        """Return the first setting by which other machines may reach the service, with its value, or None."""
        if not is_loopback(self.host):
            return f"HOST {self.host!r}"
        for variable, url in (("TOKEN_SERVICE_BASE_URL", self.base_url), ("TOKEN_SERVICE_WEB_URL", self.web_url)):
            if not is_local(url):
                return f"{variable} {url!r}"
        for network in self.trusted_proxies:
            if not network.is_loopback:
                return f"TOKEN_SERVICE_TRUSTED_PROXIES {str(network)!r}"
        return None


SETTINGS: Mapping[str, Setting] = {each.name: each.metadata["setting"] for each in fields(Settings)}
VARIABLES = frozenset(
    {setting.variable for setting in SETTINGS.values()}
    | {setting.file_variable for setting in SETTINGS.values() if setting.secret}
)


def load_settings(environment: Mapping[str, str], *, handed_socket: int | None = None) -> Settings:
    """Return the settings in the environment. Raises BadSettings with every mistake.

    With the embedded store and no key set, `secret_keys` is empty until the supervisor has made the key in the data
    folder. `handed_socket` is the descriptor of a socket that another process opened. Its address is unknown.
    """
    read = Reading(environment)
    for name, each in SETTINGS.items():
        read.values[name] = _read_secret_keys(read, each) if name == "secret_keys" else read.value_of(each)
    if read.uses_embedded_store and (durability := read.values["durability"]).level == "replica":
        read.mistake(
            "TOKEN_SERVICE_DURABILITY", f"'{durability}'", "REDIS_URL to be set: the embedded store has no replicas"
        )
    settings = Settings(**read.values)
    _check_example_seed(read, settings.find_public_setting(), handed_socket)
    if read.mistakes:
        raise BadSettings(tuple(dict.fromkeys(read.mistakes)))  # a wrong REDIS_URL_FILE is read twice
    return settings


def _read_secret_keys(read: Reading, setting: Setting) -> tuple[bytes, ...]:
    """Return the keys that are set, or else the key in the data folder.

    Returns an empty tuple if there is no key yet, or a key is wrong.
    """
    if not (read.environment.get(setting.variable) or read.environment.get(setting.file_variable)):
        kept = read.values["data_dir"] / "secret_key"
        if not read.uses_embedded_store:
            needed = f"{parsers.SECRET_KEY_BYTES} bytes or more, because REDIS_URL is set"
            read.mistake(setting.variable, "not set", f"{needed}. Make a key: head -c 48 /dev/urandom | base64")
        if not read.uses_embedded_store or not os.path.lexists(kept):
            return ()
        read.environment = {**read.environment, setting.file_variable: str(kept)}
    return cast("tuple[bytes, ...] | None", read.value_of(setting)) or ()


def _check_example_seed(read: Reading, public: str | None, handed_socket: int | None) -> None:
    """Refuse the example seed at a public address unless the operator named it, since its passwords are public."""
    variable = SETTINGS["seed_file"].variable
    if public is None and handed_socket is not None:
        public = f"the socket of --fd {handed_socket}"
    if read.uses_embedded_store and public and not read.environment.get(variable):
        expected = f"your own seed file, because {public} is reachable from other machines"
        read.mistake(variable, "not set", f"{expected} (to use the example seed anyway, set this to {EXAMPLE_SEED})")


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each variable that has our prefix but is not a setting, most likely a typing error."""
    # Names are compared without the prefix, which most of them share.
    known = {variable.removeprefix(PREFIX): variable for variable in sorted(VARIABLES)}
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in VARIABLES:
            nearest = difflib.get_close_matches(variable.removeprefix(PREFIX), known, n=1, cutoff=0.7)
            yield f"{variable} is not a setting" + (f"; did you mean {known[nearest[0]]}?" if nearest else "")


def default_base_url(host: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


# Values for the store and the protocol rules that follow from the settings.


def make_redis_url(settings: Settings) -> RedisUrl:
    if settings.redis_url is None:
        return RedisUrl(kind="single", path=str(socket_path(settings.data_dir)))
    url, file = parse_redis_url(settings.redis_url), settings.redis_url_file
    return replace(url, read_again=partial(_read_again, file)) if file else url


def _read_again(file: Path) -> RedisUrl:
    try:
        return parse_redis_url(read_secret_file(str(file)))
    except ValueError as expected:
        raise ConnectionError(f"REDIS_URL_FILE: {str(file)!r}: expected {expected}") from None


def choose_durability(settings: Settings) -> Durability:
    """Return what a durable write waits for after the answer of Redis.

    The embedded store needs no wait: with durability "disk" it answers only when a change is on the disk.
    """
    return MEMORY if settings.embedded else settings.durability


def make_lifetimes(settings: Settings) -> Lifetimes:
    """Return the lifetimes. Each is named as its setting."""
    return msgspec.convert(settings, Lifetimes, from_attributes=True)
