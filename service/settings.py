"""What an operator can set: read once from the environment, checked, and frozen.

Every mistake is found before anything starts, and all of them are told at once.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

from service.store.redis_url import parse_redis_url, without_password

__all__ = [
    "EXAMPLE_SEED",
    "BadSettings",
    "HostPort",
    "Limit",
    "Settings",
    "default_base_url",
    "load_settings",
    "unknown_variables",
]

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLE_SEED = CHECKOUT / "examples" / "seed.yaml"

SECRET_KEY_BYTES = 32
LONGEST_SECONDS = 100 * 365 * 24 * 3600
WINDOWS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
SWITCHES = {"on": True, "off": False}
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("console", "json")
LONGEST_PAGE_NAME = 60
LOGO_TYPES = (".svg", ".png", ".jpg", ".jpeg", ".webp", ".gif")
LARGEST_LOGO_BYTES = 256 * 1024
CALM_BLUE = "#1f5fa8"

Network = IPv4Network | IPv6Network
HostPort = tuple[str, int]
Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Limit:
    """So many attempts in a window."""

    count: int
    window_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    redis_url: str | None = field(repr=False)  # None: the embedded store
    host: str
    port: int
    workers: int
    data_dir: Path
    base_url: str  # no trailing slash
    web_url: str  # the same; where people find the pages
    seed_file: Path | None
    secret_keys: tuple[bytes, ...] = field(repr=False)  # the first makes, all verify
    access_token_ttl_ms: int
    refresh_token_ttl_ms: int
    session_max_age_ms: int | None
    code_ttl_ms: int
    refresh_grace_ms: int
    login_session_ttl_ms: int
    stay_signed_in_ttl_ms: int
    login_attempts: Limit
    login_attempts_per_user: Limit
    login_attempts_per_address: Limit
    client_attempts: Limit
    trusted_proxies: tuple[Network, ...]
    verify_cache: bool
    metrics_address: HostPort | None  # None: the same port, for this machine alone
    page_name: str
    page_logo: Path | None
    page_accent: str  # as #rrggbb, lower case
    log_level: str
    log_format: str

    @property
    def embedded(self) -> bool:
        return self.redis_url is None


class BadSettings(Exception):
    """One line for each mistake: the variable, its value and what was expected."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


def load_settings(environment: Mapping[str, str]) -> Settings:
    """Raises BadSettings with every mistake that the environment holds.

    With the embedded store and no key set, `secret_keys` is empty until the supervisor has made the key in
    the data folder.
    """
    read = _Reading(environment)
    redis_url = read.optional("REDIS_URL", parse_redis_address, shown=without_password)
    host = read.required("HOST", parse_host, "127.0.0.1")
    port = read.required("PORT", parse_port, "8000")
    data_dir = read.required("TOKEN_SERVICE_DATA_DIR", parse_folder, str(CHECKOUT / ".data"))
    local_url = default_base_url(host, port)
    base_url = read.required("TOKEN_SERVICE_BASE_URL", parse_base_url, local_url, shown=_without_user)
    embedded = not environment.get("REDIS_URL")
    seed_file = str(EXAMPLE_SEED) if embedded else None
    settings = Settings(
        redis_url=redis_url,
        host=host,
        port=port,
        workers=read.required("WEB_CONCURRENCY", parse_workers, "1"),
        data_dir=data_dir,
        base_url=base_url,
        web_url=read.required("TOKEN_SERVICE_WEB_URL", parse_base_url, base_url, shown=_without_user),
        seed_file=read.optional("TOKEN_SERVICE_SEED_FILE", parse_file, seed_file),
        secret_keys=_read_secret_keys(read, data_dir, embedded),
        access_token_ttl_ms=read.required("TOKEN_SERVICE_ACCESS_TOKEN_TTL", parse_duration_ms, "600"),
        refresh_token_ttl_ms=read.required("TOKEN_SERVICE_REFRESH_TOKEN_TTL", parse_duration_ms, "2592000"),
        session_max_age_ms=read.optional("TOKEN_SERVICE_SESSION_MAX_AGE", parse_duration_ms),
        code_ttl_ms=read.required("TOKEN_SERVICE_CODE_TTL", parse_duration_ms, "60"),
        refresh_grace_ms=read.required("TOKEN_SERVICE_REFRESH_GRACE", parse_grace_ms, "300"),
        login_session_ttl_ms=read.required("TOKEN_SERVICE_LOGIN_SESSION_TTL", parse_duration_ms, "3600"),
        stay_signed_in_ttl_ms=read.required("TOKEN_SERVICE_STAY_SIGNED_IN_TTL", parse_duration_ms, "2592000"),
        login_attempts=read.required("TOKEN_SERVICE_LOGIN_ATTEMPTS", parse_limit, "10/minute"),
        login_attempts_per_user=read.required("TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER", parse_limit, "100/hour"),
        login_attempts_per_address=read.required("TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS", parse_limit, "100/minute"),
        client_attempts=read.required("TOKEN_SERVICE_CLIENT_ATTEMPTS", parse_limit, "30/minute"),
        trusted_proxies=read.required("TOKEN_SERVICE_TRUSTED_PROXIES", parse_networks, ""),
        verify_cache=read.required("TOKEN_SERVICE_VERIFY_CACHE", parse_switch, "off"),
        metrics_address=read.optional("TOKEN_SERVICE_METRICS_ADDRESS", parse_address),
        page_name=read.required("TOKEN_SERVICE_PAGE_NAME", parse_page_name, "Token Service"),
        page_logo=read.optional("TOKEN_SERVICE_PAGE_LOGO", parse_logo),
        page_accent=read.required("TOKEN_SERVICE_PAGE_ACCENT", parse_colour, CALM_BLUE),
        log_level=read.required("LOG_LEVEL", parse_log_level, "info"),
        log_format=read.required("LOG_FORMAT", parse_log_format, _default_log_format()),
    )
    if read.mistakes:
        raise BadSettings(tuple(read.mistakes))
    return settings


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable that looks like one of ours and is none: most likely a typo."""
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in VARIABLES:
            nearest = _find_nearest(variable.removeprefix(PREFIX))
            yield f"{variable} is not a setting" + (f"; did you mean {nearest}?" if nearest else "")


def _find_nearest(name: str) -> str | None:
    """Compared without the prefix, which all names share and a few do not have."""
    known = {variable.removeprefix(PREFIX): variable for variable in (*PLAIN_VARIABLES, *VARIABLES)}
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return known[nearest[0]] if nearest else None


def default_base_url(host: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


PREFIX = "TOKEN_SERVICE_"
PLAIN_VARIABLES = ("HOST", "LOG_FORMAT", "LOG_LEVEL", "PORT", "REDIS_URL", "WEB_CONCURRENCY")
VARIABLES = (
    "TOKEN_SERVICE_ACCESS_TOKEN_TTL",
    "TOKEN_SERVICE_BASE_URL",
    "TOKEN_SERVICE_CLIENT_ATTEMPTS",
    "TOKEN_SERVICE_CODE_TTL",
    "TOKEN_SERVICE_DATA_DIR",
    "TOKEN_SERVICE_LOGIN_ATTEMPTS",
    "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS",
    "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER",
    "TOKEN_SERVICE_LOGIN_SESSION_TTL",
    "TOKEN_SERVICE_METRICS_ADDRESS",
    "TOKEN_SERVICE_PAGE_ACCENT",
    "TOKEN_SERVICE_PAGE_LOGO",
    "TOKEN_SERVICE_PAGE_NAME",
    "TOKEN_SERVICE_REFRESH_GRACE",
    "TOKEN_SERVICE_REFRESH_TOKEN_TTL",
    "TOKEN_SERVICE_SECRET_KEY",
    "TOKEN_SERVICE_SEED_FILE",
    "TOKEN_SERVICE_SESSION_MAX_AGE",
    "TOKEN_SERVICE_STAY_SIGNED_IN_TTL",
    "TOKEN_SERVICE_TRUSTED_PROXIES",
    "TOKEN_SERVICE_VERIFY_CACHE",
    "TOKEN_SERVICE_WEB_URL",
)


# Each parser raises ValueError with what it expected.


def parse_redis_address(text: str) -> str:
    parse_redis_url(text)
    return text


def parse_host(text: str) -> str:
    if not re.fullmatch(r"[^\s/\[\]@]+", text):
        raise ValueError("a host name or an address (IPv6 without brackets)")
    return text


def parse_port(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) > 65535:
        raise ValueError("a port between 0 and 65535 (0: any free one)")
    return int(text)


def parse_address(text: str) -> HostPort:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s/\[\]@:]+)):([0-9]{1,5})", text)
    if match is None or not 1 <= int(match[3]) <= 65535:
        raise ValueError("host:port (an IPv6 host in brackets, the port between 1 and 65535)")
    return match[1] or match[2], int(match[3])


def parse_workers(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,4}", text) or int(text) < 1:
        raise ValueError("a number of worker processes, 1 or more")
    return int(text)


def parse_folder(text: str) -> Path:
    folder = Path(text).expanduser().absolute()
    if folder.exists() and not folder.is_dir():
        raise ValueError("a folder")
    return folder


def parse_file(text: str) -> Path:
    file = Path(text).expanduser().absolute()
    if not (file.is_file() and os.access(file, os.R_OK)):
        raise ValueError("a file that exists and can be read")
    return file


def parse_base_url(text: str) -> str:
    expected = ValueError("an absolute http or https URL without user, query or fragment")
    try:
        parts = urlsplit(text)
        well_formed = parts.hostname and (parts.port is None or parts.port >= 0)
    except ValueError:
        raise expected from None
    if parts.scheme not in ("http", "https") or not well_formed or re.search(r"[\s@?#]", text):
        raise expected
    return text.rstrip("/")


def _without_user(text: str) -> str:
    return re.sub(r"//.*@", "//…@", text)


def parse_duration_ms(text: str) -> int:
    milliseconds = _milliseconds(text)
    if milliseconds is None or milliseconds < 1:
        raise ValueError("seconds, whole or fractional, more than 0")
    return milliseconds


def parse_grace_ms(text: str) -> int:
    milliseconds = _milliseconds(text)
    if milliseconds is None:
        raise ValueError("seconds, whole or fractional (0: no grace)")
    return milliseconds


def _milliseconds(text: str) -> int | None:
    if not re.fullmatch(r"[0-9]{1,12}(\.[0-9]{1,12})?", text) or Decimal(text) > LONGEST_SECONDS:
        return None
    return int(Decimal(text) * 1000)


def parse_limit(text: str) -> Limit:
    match = re.fullmatch(r"([0-9]{1,9})/(second|minute|hour|day)", text)
    if match is None or int(match[1]) < 1:
        raise ValueError("a limit such as 10/minute: a number, 1 or more, per second, minute, hour or day")
    return Limit(int(match[1]), WINDOWS_MS[match[2]])


def parse_networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(network.strip()) for network in text.split(",") if network.strip())
    except ValueError:
        raise ValueError("comma-separated addresses and networks, such as 10.0.0.0/8,::1") from None


def parse_switch(text: str) -> bool:
    if text.lower() not in SWITCHES:
        raise ValueError("on or off")
    return SWITCHES[text.lower()]


def parse_page_name(text: str) -> str:
    name = text.strip()
    if not 1 <= len(name) <= LONGEST_PAGE_NAME or not name.isprintable():
        raise ValueError(f"one line of text, 1 to {LONGEST_PAGE_NAME} characters")
    return name


def parse_logo(text: str) -> Path:
    """Its type is told by the name alone, as browsers are told it."""
    file = parse_file(text)
    if file.suffix.lower() not in LOGO_TYPES:
        raise ValueError(f"an image file whose name ends in {', '.join(LOGO_TYPES)}")
    if file.stat().st_size > LARGEST_LOGO_BYTES:
        raise ValueError(f"an image file of at most {LARGEST_LOGO_BYTES // 1024} KiB")
    return file


def parse_colour(text: str) -> str:
    if not re.fullmatch(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})", text):
        raise ValueError("a colour such as #1a2 or #11aa22")
    digits = text.lower().removeprefix("#")
    return "#" + (digits if len(digits) == 6 else "".join(digit * 2 for digit in digits))


def parse_log_level(text: str) -> str:
    if text.lower() not in LOG_LEVELS:
        raise ValueError(f"one of {', '.join(LOG_LEVELS)}")
    return text.lower()


def parse_log_format(text: str) -> str:
    if text.lower() not in LOG_FORMATS:
        raise ValueError(f"one of {', '.join(LOG_FORMATS)}")
    return text.lower()


def _default_log_format() -> str:
    return "console" if sys.stderr.isatty() else "json"


def parse_secret_keys(text: str) -> tuple[bytes, ...]:
    return tuple(key.strip().encode("utf-8", "surrogateescape") for key in text.split(","))


def _read_secret_keys(read: _Reading, data_dir: Path, embedded: bool) -> tuple[bytes, ...]:
    text = read.environment.get("TOKEN_SERVICE_SECRET_KEY")
    if not text and not embedded:
        read.mistake("TOKEN_SERVICE_SECRET_KEY", "not set", f"{SECRET_KEY_BYTES} bytes or more, where REDIS_URL is set")
        return ()
    keys = parse_secret_keys(text) if text else _kept_secret_keys(read, data_dir)
    for position, key in enumerate(keys, start=1):
        if len(key) < SECRET_KEY_BYTES:
            found = f"key {position} of {len(keys)} has {len(key)} bytes"
            read.mistake("TOKEN_SERVICE_SECRET_KEY", found, f"{SECRET_KEY_BYTES} bytes or more in each key")
    return keys


def _kept_secret_keys(read: _Reading, data_dir: Path) -> tuple[bytes, ...]:
    try:
        return ((data_dir / "secret_key").read_bytes().strip(),)
    except FileNotFoundError:
        return ()
    except OSError as error:
        found = f"{str(data_dir / 'secret_key')!r} cannot be read ({error.strerror})"
        read.mistake("TOKEN_SERVICE_DATA_DIR", found, "a data folder of our own")
        return ()


class _Reading:
    """Reads variable after variable and remembers the mistakes, so that all are told at once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.mistakes: list[str] = []

    def mistake(self, variable: str, found: str, expected: str) -> None:
        self.mistakes.append(f"{variable}: {found}: expected {expected}")

    def required(
        self, variable: str, parse: Callable[[str], Value], default: str, *, shown: Callable[[str], str] = str
    ) -> Value:
        """The value, or that of the default where the variable is unset, empty or wrong."""
        text = self.environment.get(variable)
        if not text:
            return parse(default)
        try:
            return parse(text)
        except ValueError as expected:
            self.mistake(variable, repr(shown(text)), str(expected))
            return parse(default)

    def optional(
        self,
        variable: str,
        parse: Callable[[str], Value],
        default: str | None = None,
        *,
        shown: Callable[[str], str] = str,
    ) -> Value | None:
        text = self.environment.get(variable) or default
        if text is None:
            return None
        try:
            return parse(text)
        except ValueError as expected:
            self.mistake(variable, repr(shown(text)), str(expected))
            return None
