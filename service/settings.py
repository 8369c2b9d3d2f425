"""What an operator can set: read once from the environment, checked, and frozen.

Every mistake is found before anything starts, and all of them are told at once.

A field of `Settings` is the one place of a setting: variable, parser, default and meaning stand there, and the tables
of docs/settings.md are made of them.
"""

from __future__ import annotations

import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path
from typing import Any, TypeVar, cast, get_args
from urllib.parse import urlsplit

from service.protocol.uri import is_loopback
from service.protocol.user import MIN_PASSWORD_CHARACTERS
from service.store.durability import Durability
from service.store.redis_url import parse_redis_url, without_password

__all__ = [
    "EXAMPLE_SEED",
    "SETTINGS",
    "BadSettings",
    "HostPort",
    "Limit",
    "Setting",
    "Settings",
    "default_base_url",
    "list_example_seed_mistakes",
    "load_settings",
    "unknown_variables",
]

CHECKOUT = Path(__file__).resolve().parent.parent
EXAMPLE_SEED = CHECKOUT / "examples" / "seed.yaml"

PREFIX = "TOKEN_SERVICE_"

SECRET_KEY_BYTES = 32
SECRET_KEY_DISTINCT_BYTES = 16
UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}
LONGEST_SECONDS = 100 * 365 * 24 * 3600
WINDOWS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}
SWITCHES = {"on": True, "off": False}
DURABILITIES: tuple[Durability, ...] = get_args(Durability)
LOG_LEVELS = ("debug", "info", "warning", "error", "critical")
LOG_FORMATS = ("console", "json")
LONGEST_PAGE_NAME = 60
MOST_PASSWORD_MIN_CHARACTERS = 128
LARGEST_SECRET_FILE_BYTES = 64 * 1024
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


# Each parser raises ValueError with what it expected.


def parse_redis_address(text: str) -> str:
    parse_redis_url(text)
    return text


def parse_host(text: str) -> str:
    if not (re.fullmatch(r"[A-Za-z0-9_.-]+", text) or _is_ipv6(text)):
        raise ValueError("a host name or an address (IPv6 without brackets)")
    return text


def _is_ipv6(text: str) -> bool:
    """Return True for an IPv6 address, which may have a zone (`fe80::1%eth0`). IPv6Address takes any text as a zone."""
    try:
        IPv6Address(text)
    except ValueError:
        return False
    return re.fullmatch(r"[0-9A-Fa-f:.]+(%[A-Za-z0-9_.-]+)?", text) is not None


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
    try:
        folder = Path(text).expanduser().absolute()
        is_other = folder.exists() and not folder.is_dir()
    except (OSError, RuntimeError):  # out of reach; or `~` of somebody without a home
        raise ValueError("a folder that can be reached") from None
    if is_other:
        raise ValueError("a folder")
    return folder


def parse_file(text: str) -> Path:
    try:
        file = Path(text).expanduser().absolute()
        is_readable = file.is_file() and os.access(file, os.R_OK)
    except (OSError, RuntimeError):
        is_readable = False
    if not is_readable:
        raise ValueError("a file that exists and can be read")
    return file


def parse_base_url(text: str) -> str:
    expected = ValueError("an absolute http or https URL without user, query or fragment")
    try:
        parts = urlsplit(text)
        well_formed = parts.hostname and (parts.port is None or parts.port >= 0)
    except ValueError:
        raise expected from None
    if parts.scheme not in ("http", "https") or not well_formed or re.search(r"[^\x21-\x7E]|[@?#]", text):
        raise expected
    return text.rstrip("/")


def _show_without_user(text: str) -> str:
    return repr(re.sub(r"(https?://)?.*@", r"\1…@", text, count=1, flags=re.DOTALL))


def _show_without_password(text: str) -> str:
    """Return the address without its password. A text that is no address may be the password itself."""
    return repr(without_password(text)) if "://" in text else "'…', without '://'"


def parse_duration_ms(text: str) -> int:
    milliseconds = _milliseconds(text)
    if milliseconds is None or milliseconds < 1:
        raise ValueError("seconds, or a number with s, m, h or d, such as 90, 1.5h or 30d; more than 0")
    return milliseconds


def parse_duration_or_zero_ms(text: str) -> int:
    milliseconds = _milliseconds(text)
    if milliseconds is None:
        raise ValueError("seconds, or a number with s, m, h or d, such as 90, 1.5h or 30d; 0: none")
    return milliseconds


def _milliseconds(text: str) -> int | None:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([smhd]?)", text)
    seconds = Decimal(match[1]) * UNIT_SECONDS[match[2]] if match else LONGEST_SECONDS + 1
    return int(seconds * 1000) if seconds <= LONGEST_SECONDS else None


def parse_password_length(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= MOST_PASSWORD_MIN_CHARACTERS:
        raise ValueError(f"a number of characters between 1 and {MOST_PASSWORD_MIN_CHARACTERS}")
    return int(text)


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


def parse_durability(text: str) -> Durability:
    for durability in DURABILITIES:
        if text == durability:
            return durability
    raise ValueError(f"one of {', '.join(DURABILITIES)}")


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


def parse_secret_keys(text: str) -> tuple[bytes, ...]:
    keys = _split_keys(text)
    if any(map(_find_key_weakness, keys)):
        raise ValueError(f"{SECRET_KEY_BYTES} bytes or more in each key, {SECRET_KEY_DISTINCT_BYTES} of them distinct")
    return keys


def _split_keys(text: str) -> tuple[bytes, ...]:
    return tuple(key.strip().encode("utf-8", "surrogateescape") for key in text.split(","))


def _find_key_weakness(key: bytes) -> str | None:
    """Return what is wrong with a key, which is never shown itself, or None.

    Hexadecimal text has at most 16 distinct characters however random it is, so its decoded bytes may count instead.
    """
    if len(key) < SECRET_KEY_BYTES:
        return f"has {len(key)} bytes"
    readings = [key, bytes.fromhex(key.decode())] if re.fullmatch(rb"(?:[0-9a-fA-F]{2})+", key) else [key]
    if all(len(set(reading)) < SECRET_KEY_DISTINCT_BYTES for reading in readings):
        return f"has {len(key)} bytes, of which too few are distinct"
    return None


def _tell_weak_keys(text: str) -> str:
    keys = _split_keys(text)
    weaknesses = ((position, _find_key_weakness(key)) for position, key in enumerate(keys, start=1))
    return ", ".join(f"key {position} of {len(keys)} {weakness}" for position, weakness in weaknesses if weakness)


class BadSettings(Exception):
    """One line for each mistake: the variable, its value and what was expected."""

    def __init__(self, mistakes: tuple[str, ...]) -> None:
        super().__init__("\n".join(mistakes))
        self.mistakes = mistakes


class _Reading:
    """Reads setting after setting and remembers the mistakes, so that all are told at once."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        self.environment = environment
        self.values: dict[str, Any] = {}
        self.mistakes: list[str] = []

    @property
    def embedded(self) -> bool:
        return not (self.environment.get("REDIS_URL") or self.environment.get("REDIS_URL_FILE"))

    def mistake(self, variable: str, found: str, expected: str) -> None:
        self.mistakes.append(f"{variable}: {found}: expected {expected}")

    def value_of(self, setting: Setting) -> object:
        """The value, or that of the default where the variable is unset, empty or wrong."""
        text = self.find_text(setting)
        if text:
            try:
                return setting.parse(text)
            except ValueError as expected:
                self.mistake(*self.describe_source(setting, text), str(expected))
        default = setting.default(self) if callable(setting.default) else setting.default
        return None if default is None else setting.parse(default)

    def find_text(self, setting: Setting) -> str | None:
        """Return what the variable holds, or the file that its `_FILE` form names; None where neither is set."""
        text, file = self.environment.get(setting.variable), self.environment.get(setting.file_variable)
        if not (setting.secret and file):
            return text
        if text:
            self.mistake(setting.file_variable, repr(file), f"only one of {setting.variable} and this")
            return None
        try:
            return _read_secret_file(file)
        except ValueError as expected:
            self.mistake(setting.file_variable, repr(file), str(expected))
            return None

    def describe_source(self, setting: Setting, text: str) -> tuple[str, str]:
        """Return the variable of a wrong value and what may be shown of it, with the file that it came from."""
        file = self.environment.get(setting.file_variable) if setting.secret else None
        if file:
            return setting.file_variable, f"{file!r}: {setting.shown(text)}"
        return setting.variable, setting.shown(text)


def _read_secret_file(name: str) -> str:
    file = parse_file(name)
    try:
        with file.open("rb") as opened:
            content = opened.read(LARGEST_SECRET_FILE_BYTES + 1)
        text = content.decode().strip()
    except (OSError, UnicodeDecodeError):
        raise ValueError("a file that can be read, with text in it") from None
    if not text or len(content) > LARGEST_SECRET_FILE_BYTES:
        raise ValueError("a file with nothing but the value in it")
    return text


Default = str | None | Callable[[_Reading], str | None]


@dataclass(frozen=True, slots=True)
class Setting:
    """What a field of `Settings` is read from, and what the manual says of it."""

    variable: str
    parse: Callable[[str], object]
    default: Default
    meaning: str  # no full stop at the end
    table: str  # the one of docs/settings.md where it stands
    default_told: str | None  # where the manual has to say more than the default's text
    shown: Callable[[str], str]  # what of a bad value is shown
    secret: bool  # a secret may come from a file, too

    @property
    def file_variable(self) -> str:
        return f"{self.variable}_FILE"


def _setting(
    variable: str,
    parse: Callable[[str], Value],
    default: Default,
    meaning: str,
    *,
    table: str,
    default_told: str | None = None,
    shown: Callable[[str], str] = repr,
    secret: bool = False,
) -> Value:
    """A field of `Settings`, to the type checker what its parser makes."""
    found = Setting(variable, parse, default, meaning, table, default_told, shown, secret)
    return cast(Value, field(repr=not secret, metadata={"setting": found}))


# Defaults that follow from what was read before.


def _local_url(read: _Reading) -> str:
    return default_base_url(read.values["host"], read.values["port"])


def _base_url(read: _Reading) -> str:
    return str(read.values["base_url"])


def _example_seed_where_embedded(read: _Reading) -> str | None:
    return str(EXAMPLE_SEED) if read.embedded else None


def _log_format_of_the_terminal(_: _Reading) -> str:
    return "console" if sys.stderr.isatty() else "json"


# The tables of docs/settings.md, by the headings above them.
PLACES, SECRETS, LIFETIMES, LOOK, THROTTLES = "Where and how", "Secrets", "Lifetimes", "Look of the pages", "Throttles"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Read in this order: a default may follow from what stands above it."""

    redis_url: str | None = _setting(
        "REDIS_URL",
        parse_redis_address,
        None,
        "where the state lies; see [below](#redis_url)",
        table=PLACES,
        default_told="unset: the embedded store",
        shown=_show_without_password,
        secret=True,
    )
    host: str = _setting(
        "HOST", parse_host, "127.0.0.1", "where to listen. A name listens on all its addresses", table=PLACES
    )
    port: int = _setting("PORT", parse_port, "8000", "`0`: any free one, named in the log", table=PLACES)
    workers: int = _setting("WEB_CONCURRENCY", parse_workers, "1", "worker processes", table=PLACES)
    data_dir: Path = _setting(
        "TOKEN_SERVICE_DATA_DIR",
        parse_folder,
        str(CHECKOUT / ".data"),
        "the embedded store and its key; made with mode 0700. Not used where `REDIS_URL` is set",
        table=PLACES,
        default_told="`.data` in the checkout",
    )
    base_url: str = _setting(
        "TOKEN_SERVICE_BASE_URL",
        parse_base_url,
        _local_url,
        "the public address. A trailing slash is dropped. A path in it is served beside the bare one",
        table=PLACES,
        default_told="`http://HOST:PORT`",
        shown=_show_without_user,
    )
    web_url: str = _setting(
        "TOKEN_SERVICE_WEB_URL",
        parse_base_url,
        _base_url,
        "the public address of the pages, where it is another. A trailing slash is dropped. A path in it is served "
        "beside the bare one",
        table=PLACES,
        default_told="the base URL",
        shown=_show_without_user,
    )
    seed_file: Path | None = _setting(
        "TOKEN_SERVICE_SEED_FILE",
        parse_file,
        _example_seed_where_embedded,
        "[the seed file](seed-file.md)",
        table=PLACES,
        default_told="embedded store: `examples/seed.yaml`, on this machine only; with `REDIS_URL`: none",
    )
    secret_keys: tuple[bytes, ...] = _setting(
        "TOKEN_SERVICE_SECRET_KEY",
        parse_secret_keys,
        None,
        "one key or several, separated by commas; each 32 bytes or more, 16 of them distinct. The first makes, all "
        "verify",
        table=SECRETS,
        default_told="embedded store: made once, kept in the data folder as `secret_key`; with `REDIS_URL`: required",
        shown=_tell_weak_keys,
        secret=True,
    )
    min_password_characters: int = _setting(
        "TOKEN_SERVICE_PASSWORD_MIN_LENGTH",
        parse_password_length,
        str(MIN_PASSWORD_CHARACTERS),
        "the least number of characters of a password that is set from now on, in the seed file or at the console. "
        "A start is refused while the seed file has a shorter one in plain text. Hashes are taken as they are",
        table=SECRETS,
    )
    durability: Durability = _setting(
        "TOKEN_SERVICE_DURABILITY",
        parse_durability,
        "memory",
        "what a code exchange, a revocation and a revokeAll wait for: `memory`: nothing; `replica`: one replica that "
        "has the change; `disk`: the append-only file. See [the levels](operations.md#how-durable-an-answer-is)",
        table=PLACES,
    )
    access_token_ttl_ms: int = _setting(
        "TOKEN_SERVICE_ACCESS_TOKEN_TTL",
        parse_duration_ms,
        "600",
        "an access token; never longer than its family",
        table=LIFETIMES,
    )
    refresh_token_ttl_ms: int = _setting(
        "TOKEN_SERVICE_REFRESH_TOKEN_TTL",
        parse_duration_ms,
        "2592000",
        "a refresh token, counted anew at each refresh, not at a replay",
        table=LIFETIMES,
        default_told="`2592000` (30 days)",
    )
    session_max_age_ms: int | None = _setting(
        "TOKEN_SERVICE_SESSION_MAX_AGE",
        parse_duration_ms,
        None,
        "a family, from its login on, however active it is",
        table=LIFETIMES,
        default_told="unset: none",
    )
    code_ttl_ms: int = _setting(
        "TOKEN_SERVICE_CODE_TTL",
        parse_duration_ms,
        "60",
        "an authorization code. RFC 6749 advises ten minutes at most",
        table=LIFETIMES,
    )
    refresh_grace_ms: int = _setting(
        "TOKEN_SERVICE_REFRESH_GRACE",
        parse_duration_or_zero_ms,
        "300",
        "how long a spent refresh token may come again, from its first use; `0`: not at all",
        table=LIFETIMES,
    )
    login_session_ttl_ms: int = _setting(
        "TOKEN_SERVICE_LOGIN_SESSION_TTL",
        parse_duration_ms,
        "3600",
        'a browser\'s login, where "stay signed in" is not ticked',
        table=LIFETIMES,
    )
    stay_signed_in_ttl_ms: int = _setting(
        "TOKEN_SERVICE_STAY_SIGNED_IN_TTL",
        parse_duration_ms,
        "2592000",
        "a browser's login, where it is",
        table=LIFETIMES,
        default_told="`2592000` (30 days)",
    )
    login_attempts: Limit = _setting(
        "TOKEN_SERVICE_LOGIN_ATTEMPTS",
        parse_limit,
        "10/minute",
        "failed password checks of one user name from one address",
        table=THROTTLES,
    )
    login_attempts_per_user: Limit = _setting(
        "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_USER",
        parse_limit,
        "100/hour",
        "failed password checks of one user name from all addresses; in an external realm also what its organisation "
        "refuses otherwise for that name",
        table=THROTTLES,
    )
    login_attempts_per_address: Limit = _setting(
        "TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS",
        parse_limit,
        "100/minute",
        "failed password checks from one address; in an external realm also what its organisation refuses otherwise, "
        "made-up codes for example",
        table=THROTTLES,
    )
    client_attempts: Limit = _setting(
        "TOKEN_SERVICE_CLIENT_ATTEMPTS",
        parse_limit,
        "30/minute",
        "failed authentications of one client from one address; and three times that from one address for all clients",
        table=THROTTLES,
    )
    pages_per_address: Limit = _setting(
        "TOKEN_SERVICE_PAGES_PER_ADDRESS",
        parse_limit,
        "300/minute",
        "pages that begin a login, kept or not, from one address",
        table=THROTTLES,
    )
    trusted_proxies: tuple[Network, ...] = _setting(
        "TOKEN_SERVICE_TRUSTED_PROXIES",
        parse_networks,
        "",
        "comma-separated addresses and networks whose `X-Forwarded-For` and `X-Forwarded-Proto` are believed",
        table=PLACES,
        default_told="none",
    )
    verify_cache: bool = _setting(
        "TOKEN_SERVICE_VERIFY_CACHE",
        parse_switch,
        "off",
        "`on`: `verify` and `introspect` may answer about access tokens from the worker's memory, which Redis keeps "
        "true: a revocation counts within milliseconds, and within a second even where Redis hangs or the network is "
        "cut",
        table=PLACES,
    )
    metrics_address: HostPort | None = _setting(
        "TOKEN_SERVICE_METRICS_ADDRESS",
        parse_address,
        None,
        "an address of its own for [`/metrics`](operations.md#metrics), for whoever can reach it; the main port then "
        "answers 404. Taken before anything starts",
        table=PLACES,
        default_told="the same port, answered to this machine only",
    )
    page_name: str = _setting(
        "TOKEN_SERVICE_PAGE_NAME", parse_page_name, "Token Service", "what the pages call the service", table=LOOK
    )
    page_logo: Path | None = _setting(
        "TOKEN_SERVICE_PAGE_LOGO",
        parse_logo,
        None,
        "an image file: `.svg`, `.png`, `.jpg`, `.jpeg`, `.webp` or `.gif`, 256 KiB at most. Checked at start",
        table=LOOK,
        default_told="none",
    )
    page_accent: str = _setting(
        "TOKEN_SERVICE_PAGE_ACCENT",
        parse_colour,
        CALM_BLUE,
        "the colour of buttons and links, as `#rgb` or `#rrggbb`",
        table=LOOK,
        default_told=f"`{CALM_BLUE}`, a calm blue",
    )
    log_level: str = _setting(
        "LOG_LEVEL", parse_log_level, "info", "how much the log tells; `debug` adds a line for each probe", table=PLACES
    )
    log_format: str = _setting(
        "LOG_FORMAT",
        parse_log_format,
        _log_format_of_the_terminal,
        "for people, or one JSON object a line",
        table=PLACES,
        default_told="`console` on a terminal, else `json`",
    )

    @property
    def embedded(self) -> bool:
        return self.redis_url is None

    @property
    def has_public_example_seed(self) -> bool:
        """Return whether other machines may log in with the passwords of the example seed."""
        public = _find_public_setting(self.host, self.base_url, self.web_url, self.trusted_proxies)
        return self.seed_file == EXAMPLE_SEED and public is not None


SETTINGS: Mapping[str, Setting] = {each.name: each.metadata["setting"] for each in fields(Settings)}
VARIABLES = frozenset(
    {setting.variable for setting in SETTINGS.values()}
    | {setting.file_variable for setting in SETTINGS.values() if setting.secret}
)


def load_settings(environment: Mapping[str, str], *, handed_socket: int | None = None) -> Settings:
    """Raises BadSettings with every mistake that the environment holds.

    With the embedded store and no key set, `secret_keys` is empty until the supervisor has made the key in
    the data folder. `handed_socket` is the descriptor of a socket that another process opened; its address is unknown.
    """
    read = _Reading(environment)
    for name, setting in SETTINGS.items():
        read.values[name] = _read_secret_keys(read) if name == "secret_keys" else read.value_of(setting)
    if read.embedded and read.values["durability"] == "replica":
        read.mistake("TOKEN_SERVICE_DURABILITY", "'replica'", "REDIS_URL to be set: the embedded store has no replicas")
    _check_example_seed(read, handed_socket)
    if read.mistakes:
        raise BadSettings(tuple(read.mistakes))
    return Settings(**read.values)


def list_example_seed_mistakes(environment: Mapping[str, str]) -> tuple[str, ...]:
    """Return why the example seed is refused as the default, as lines. A wrong address is a line, too."""
    read = _Reading(environment)
    for name in ("host", "port", "base_url", "web_url", "trusted_proxies"):
        read.values[name] = read.value_of(SETTINGS[name])
    _check_example_seed(read, None)
    return tuple(read.mistakes)


def _check_example_seed(read: _Reading, handed_socket: int | None) -> None:
    """Refuse the example seed, whose passwords are public, at a public address, unless it was named on purpose."""
    variable = SETTINGS["seed_file"].variable
    addresses = (read.values[name] for name in ("host", "base_url", "web_url", "trusted_proxies"))
    public = _find_public_setting(*addresses)
    if public is None and handed_socket is not None:
        public = f"the socket of --fd {handed_socket}"
    if read.embedded and public and not read.environment.get(variable):
        expected = f"a seed file of your own, since {public} is not this machine alone"
        read.mistake(
            variable, "not set", f"{expected} (to use the example's public passwords there, name {EXAMPLE_SEED})"
        )


def _find_public_setting(host: str, base_url: str, web_url: str, proxies: tuple[Network, ...]) -> str | None:
    """Return the first setting by which other machines may reach the service, with its value, or None."""
    if not is_loopback(host):
        return f"HOST {host!r}"
    for variable, url in (("TOKEN_SERVICE_BASE_URL", base_url), ("TOKEN_SERVICE_WEB_URL", web_url)):
        if not is_loopback(urlsplit(url).hostname or ""):
            return f"{variable} {url!r}"
    for network in proxies:
        if not network.is_loopback:
            return f"TOKEN_SERVICE_TRUSTED_PROXIES {str(network)!r}"
    return None


def unknown_variables(environment: Mapping[str, str]) -> Iterator[str]:
    """A line for each variable that looks like one of ours and is none: most likely a typo."""
    for variable in sorted(environment):
        if variable.startswith(PREFIX) and variable not in VARIABLES:
            nearest = _find_nearest(variable.removeprefix(PREFIX))
            yield f"{variable} is not a setting" + (f"; did you mean {nearest}?" if nearest else "")


def _find_nearest(name: str) -> str | None:
    """Compared without the prefix, which all names share and a few do not have."""
    known = {variable.removeprefix(PREFIX): variable for variable in sorted(VARIABLES)}
    nearest = difflib.get_close_matches(name, known, n=1, cutoff=0.7)
    return known[nearest[0]] if nearest else None


def default_base_url(host: str, port: int, scheme: str = "http") -> str:
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _read_secret_keys(read: _Reading) -> tuple[bytes, ...]:
    """Return the keys that are set, or the one that the data folder keeps; of a wrong one only the length is shown."""
    setting = SETTINGS["secret_keys"]
    if read.environment.get(setting.variable) or read.environment.get(setting.file_variable):
        return cast(tuple[bytes, ...] | None, read.value_of(setting)) or ()
    if not read.embedded:
        read.mistake(setting.variable, "not set", f"{SECRET_KEY_BYTES} bytes or more, where REDIS_URL is set")
        return ()
    kept = _kept_secret_key(read)
    try:
        return () if kept is None else parse_secret_keys(kept)
    except ValueError as expected:
        read.mistake(setting.variable, setting.shown(kept or ""), str(expected))
        return ()


def _kept_secret_key(read: _Reading) -> str | None:
    file = read.values["data_dir"] / "secret_key"
    try:
        return str(file.read_text("utf-8", "surrogateescape").strip())
    except FileNotFoundError:
        return None
    except OSError as error:
        found = f"{str(file)!r} cannot be read ({error.strerror})"
        read.mistake("TOKEN_SERVICE_DATA_DIR", found, "a data folder of our own")
        return None
