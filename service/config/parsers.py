"""Parsers of the settings.

Each parser turns the text of a variable into a value. It raises ValueError, whose message says what was expected.
"""

from __future__ import annotations

import os
import re
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_network
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from service.redis_client.durability import DISK, MEMORY, REPLICA, Durability
from service.redis_client.url import parse_redis_url, without_password

SECRET_KEY_BYTES = 32

SECRET_KEY_DISTINCT_BYTES = 16

UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

MAX_SECONDS = 100 * 365 * 24 * 3600

WINDOWS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}

SWITCHES = {"on": True, "off": False}

LOG_LEVELS = ("debug", "info", "warning", "error", "critical")

LOG_FORMATS = ("console", "json")

MAX_PAGE_NAME_CHARACTERS = 60

MAX_MIN_PASSWORD_CHARACTERS = 128

LOGO_TYPES = (".svg", ".png", ".jpg", ".jpeg", ".webp", ".gif")

MAX_LOGO_BYTES = 256 * 1024


Network = IPv4Network | IPv6Network


HostPort = tuple[str, int]


class Limit(NamedTuple):
    """A number of attempts in a window of time."""

    attempts: int
    window_ms: int


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
    except (OSError, RuntimeError):  # out of reach, or `~` of a user without a home folder
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
        _ = parts.port  # raises ValueError for a wrong one
    except ValueError:
        raise expected from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"[^\x21-\x7E]|[@?#]", text):
        raise expected
    return text.rstrip("/")


def show_without_user(text: str) -> str:
    return repr(re.sub(r"(https?://)?.*@", r"\1…@", text, count=1, flags=re.DOTALL))


def show_without_password(text: str) -> str:
    """Return the address without its password. A text that is no address is hidden, since it may be a password."""
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
    seconds = Decimal(match[1]) * UNIT_SECONDS[match[2]] if match else MAX_SECONDS + 1
    return int(seconds * 1000) if seconds <= MAX_SECONDS else None


def parse_password_length(text: str) -> int:
    if not re.fullmatch(r"[0-9]{1,3}", text) or not 1 <= int(text) <= MAX_MIN_PASSWORD_CHARACTERS:
        raise ValueError(f"a number of characters between 1 and {MAX_MIN_PASSWORD_CHARACTERS}")
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
    for durability in (MEMORY, REPLICA, DISK):
        if text == durability.level:
            return durability
    if found := re.fullmatch("replica:([1-9][0-9]?)", text):
        return Durability("replica", int(found[1]))
    raise ValueError("memory, replica, replica:N with the number of replicas, or disk")


def parse_page_name(text: str) -> str:
    name = text.strip()
    if not 1 <= len(name) <= MAX_PAGE_NAME_CHARACTERS or not name.isprintable():
        raise ValueError(f"one line of text, 1 to {MAX_PAGE_NAME_CHARACTERS} characters")
    return name


def parse_logo(text: str) -> Path:
    """Parse an image file. Its suffix must be one of LOGO_TYPES, as the Content-Type that is sent follows from it."""
    file = parse_file(text)
    if file.suffix.lower() not in LOGO_TYPES:
        raise ValueError(f"an image file whose name ends in {', '.join(LOGO_TYPES)}")
    if file.stat().st_size > MAX_LOGO_BYTES:
        raise ValueError(f"an image file of at most {MAX_LOGO_BYTES // 1024} KiB")
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
    """Return what is wrong with a key, or None. The result never contains the key.

    Hexadecimal text of one case has at most 16 distinct characters, however random it is. So its decoded bytes may
    count instead.
    """
    if len(key) < SECRET_KEY_BYTES:
        return f"has {len(key)} bytes"
    readings = [key, bytes.fromhex(key.decode())] if re.fullmatch(rb"(?:[0-9a-fA-F]{2})+", key) else [key]
    if all(len(set(reading)) < SECRET_KEY_DISTINCT_BYTES for reading in readings):
        return f"has {len(key)} bytes, of which too few are distinct"
    return None


def describe_weak_keys(text: str) -> str:
    keys = _split_keys(text)
    weaknesses = ((position, _find_key_weakness(key)) for position, key in enumerate(keys, start=1))
    return ", ".join(f"key {position} of {len(keys)} {weakness}" for position, weakness in weaknesses if weakness)
