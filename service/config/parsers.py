"""Parsers of the settings.

Each parser turns the text of a variable into a value. It raises ValueError, whose message says what was expected.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from ipaddress import IPv4Network, IPv6Network, ip_network
from pathlib import Path

from service.protocol.grammar import is_web_address
from service.redis_client.url import Durability, parse_redis_url

SECRET_KEY_BYTES = 32

SECRET_KEY_DISTINCT_BYTES = 16

UNIT_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86_400}

MAX_SECONDS = 100 * 365 * 24 * 3600

WINDOWS_MS = {"second": 1_000, "minute": 60_000, "hour": 3_600_000, "day": 86_400_000}

LOGO_TYPES = (".svg", ".png", ".jpg", ".jpeg", ".webp", ".gif")

Network = IPv4Network | IPv6Network


HostPort = tuple[str, int]


Limit = tuple[int, int]
"""A number of attempts, and the window of time in ms."""


def parse_redis_address(text: str) -> str:
    parse_redis_url(text)
    return text


def parse_host(text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9_.:%-]+", text) or (":" in text and not is_web_address(f"http://[{text}]")):
        raise ValueError("a host name or an address (IPv6 without brackets)")
    return text


def number_in(allowed: range, expected: str) -> Callable[[str], int]:
    """Return the parser of a whole number."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[0-9]{1,5}", text) or int(text) not in allowed:
            raise ValueError(expected)
        return int(text)

    return parse


parse_port = number_in(range(65536), "a port between 0 and 65535 (0: any free one)")
parse_workers = number_in(range(1, 10_000), "a number of worker processes, 1 or more")
parse_password_length = number_in(range(1, 129), "a number of characters between 1 and 128")
parse_sessions = number_in(range(1, 2_001), "a number of sessions between 1 and 2000")


def parse_address(text: str) -> HostPort:
    match = re.fullmatch(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s/\[\]@:]+)):([0-9]{1,5})", text)
    if match is None or not 1 <= int(match[3]) <= 65535:
        raise ValueError("host:port (an IPv6 host in brackets, the port between 1 and 65535)")
    return match[1] or match[2], int(match[3])


def parse_folder(text: str) -> Path:
    return _parse_path(text, lambda path: path.is_dir() or not path.exists(), "a folder that can be accessed")


def parse_file(text: str) -> Path:
    return _parse_path(
        text, lambda path: path.is_file() and os.access(path, os.R_OK), "a file that exists and can be read"
    )


def _parse_path(text: str, is_usable: Callable[[Path], bool], expected: str) -> Path:
    with suppress(OSError, RuntimeError):  # out of reach, or `~` of a user without a home folder
        path = Path(text).expanduser().absolute()
        if is_usable(path):
            return path
    raise ValueError(expected)


def parse_base_url(text: str) -> str:
    if not is_web_address(text) or re.search("[@?#]", text):
        raise ValueError("an absolute http or https URL without user, query or fragment")
    return text.rstrip("/")


def parse_link(text: str) -> str:
    if not is_web_address(text):
        raise ValueError("an absolute http or https URL without user")
    return text


def parse_duration_ms(text: str) -> int:
    milliseconds = parse_duration_or_zero_ms(text)
    if milliseconds < 1:
        raise ValueError("a duration greater than 0")
    return milliseconds


def parse_duration_or_zero_ms(text: str) -> int:
    match = re.fullmatch(r"([0-9]{1,12}(?:\.[0-9]{1,12})?)([smhd]?)", text)
    seconds = Decimal(match[1]) * UNIT_SECONDS[match[2]] if match else MAX_SECONDS + 1
    if seconds > MAX_SECONDS:
        raise ValueError("seconds, or a number with s, m, h or d, such as 90, 1.5h or 30d")
    return int(seconds * 1000)


def parse_limit(text: str) -> Limit:
    match = re.fullmatch(r"([0-9]{1,9})/(second|minute|hour|day)", text)
    if match is None or int(match[1]) < 1:
        raise ValueError("a limit such as 10/minute: a number, 1 or more, per second, minute, hour or day")
    return int(match[1]), WINDOWS_MS[match[2]]


def parse_networks(text: str) -> tuple[Network, ...]:
    try:
        return tuple(ip_network(network.strip()) for network in text.split(",") if network.strip())
    except ValueError:
        raise ValueError("comma-separated addresses and networks, such as 10.0.0.0/8,::1") from None


def parse_switch(text: str) -> bool:
    return one_of("on", "off")(text) == "on"


def one_of(*words: str) -> Callable[[str], str]:
    """Return the parser of a word in any case."""

    def parse(text: str) -> str:
        if text.lower() not in words:
            raise ValueError(f"one of {', '.join(words)}")
        return text.lower()

    return parse


def parse_durability(text: str) -> Durability:
    match = re.fullmatch("memory|disk|replica(?::([1-9][0-9]?))?", text)
    if match is None:
        raise ValueError("memory, replica, replica:N with the number of replicas, or disk")
    return Durability(text.partition(":")[0], int(match[1] or 1))  # type: ignore[arg-type]


def parse_page_name(text: str) -> str:
    name = text.strip()
    if not 1 <= len(name) <= 60 or not name.isprintable():
        raise ValueError("one line of text, 1 to 60 characters")
    return name


def parse_logo(text: str) -> Path:
    """Parse an image file. Its suffix must be one of LOGO_TYPES, as the Content-Type that is sent follows from it."""
    file = parse_file(text)
    if file.suffix.lower() not in LOGO_TYPES:
        raise ValueError(f"an image file whose name ends in {', '.join(LOGO_TYPES)}")
    if file.stat().st_size > 256 * 1024:
        raise ValueError("an image file of at most 256 KiB")
    return file


def parse_colour(text: str) -> str:
    if not re.fullmatch(r"#([0-9a-fA-F]{3}|[0-9a-fA-F]{6})", text):
        raise ValueError("a colour such as #1a2 or #11aa22")
    digits = text.lower().removeprefix("#")
    return "#" + (digits if len(digits) == 6 else "".join(digit * 2 for digit in digits))


def parse_secret_keys(text: str) -> tuple[bytes, ...]:
    keys = tuple(key.strip().encode("utf-8", "surrogateescape") for key in text.split(","))
    for position, key in enumerate(keys, start=1):
        if len(key) < SECRET_KEY_BYTES or not _has_distinct_bytes(key):
            raise ValueError(
                f"each key to have at least {SECRET_KEY_BYTES} bytes, {SECRET_KEY_DISTINCT_BYTES} of them different "
                f"(key {position} of {len(keys)} has fewer)"
            )
    return keys


def _has_distinct_bytes(key: bytes) -> bool:
    """Return True if the key, or the bytes that it spells in hexadecimal, has enough distinct bytes.

    Hexadecimal text of one case has at most 16 distinct characters, however random it is.
    """
    readings = [key, bytes.fromhex(key.decode())] if re.fullmatch(rb"(?:[0-9a-fA-F]{2})+", key) else [key]
    return any(len(set(reading)) >= SECRET_KEY_DISTINCT_BYTES for reading in readings)
