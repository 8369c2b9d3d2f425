"""The operator's choices about Redis: the URL (one server, a cluster, or a master behind Sentinels), and durability."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple
from urllib.parse import parse_qsl, unquote

Kind = Literal["single", "cluster", "sentinel"]
Node = tuple[str, int]

REDIS_PORT = 6379
SENTINEL_PORT = 26379

NODE = re.compile(r"(?:\[(?P<address>[0-9A-Fa-f:.%]+)\]|(?P<name>[^\s:,\[\]]+))(?::(?P<port>[0-9]{1,5}))?")


# urlsplit is not used: it knows one host only, and newer versions refuse an IPv6 host after the first comma.
ADDRESS = re.compile(
    r"(?P<scheme>[A-Za-z+]+)://(?P<netloc>[^/?#]*)(?P<path>/[^?#]*)?(?:\?(?P<query>[^#]*))?(?P<fragment>#.*)?",
    re.DOTALL,
)

_WHITE_SPACE_OR_CONTROL = re.compile(r"[\s\x00-\x1f\x7f-\x9f]")


@dataclass(frozen=True, slots=True, kw_only=True)
class RedisUrl:
    kind: Kind
    tls: bool = False
    nodes: tuple[Node, ...] = ()
    path: str | None = None
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    db: int = 0
    master_name: str | None = None
    read_again: Callable[[], RedisUrl] | None = field(default=None, repr=False, compare=False)

    def renew(self) -> RedisUrl:
        """Return the URL with the user and the password that apply now. They may be in a file that changes.

        Raises OSError if it cannot be read.
        """
        now = self.read_again() if self.read_again else self
        return replace(self, username=now.username, password=now.password)


def parse_redis_url(text: str) -> RedisUrl:
    """Parse REDIS_URL, whose scheme may be in any case and name Valkey.

    Raises ValueError, whose message says what was expected and never contains the password.
    """
    if _WHITE_SPACE_OR_CONTROL.search(text):
        raise ValueError("a URL without white space and control characters (in a password, write a space as %20)")
    match = ADDRESS.fullmatch(text)
    scheme = match["scheme"].lower().replace("valkey", "redis") if match else ""
    parse = PARSERS.get(scheme)
    if match is None or parse is None:
        raise ValueError(f"a URL that starts with one of {', '.join(f'{scheme}://' for scheme in PARSERS)}")
    parts = match.groupdict("")
    if parts["fragment"]:
        raise ValueError("a URL without '#' (in a password, write it as %23)")
    credentials, _, location = parts["netloc"].rpartition("@")
    username, _, password = credentials.partition(":")
    return replace(
        parse(location, parts["path"], parts["query"]),
        tls=scheme.startswith("rediss"),
        username=unquote(username) or None,
        password=unquote(password) or None,
    )


def without_password(text: str) -> str:
    """Return a well-formed URL as it may be shown: without user, password and options."""
    scheme, _, rest = text.partition("://")
    _, at_sign, location = rest.rpartition("@")
    return f"{scheme}://{at_sign.replace('@', '…@')}{location.partition('?')[0]}"


def _parse_unix(location: str, path: str, query: str) -> RedisUrl:
    if location or not path.strip("/"):
        raise ValueError("unix:// followed by the absolute path of a socket, as in unix:///run/redis.sock")
    return RedisUrl(kind="single", path=unquote(path), db=_parse_database("", query))


def _parse_single(location: str, path: str, query: str) -> RedisUrl:
    nodes = (_parse_node(location, REDIS_PORT),)
    return RedisUrl(kind="single", nodes=nodes, db=_parse_database(path.removeprefix("/"), query))


def _parse_cluster(location: str, path: str, query: str) -> RedisUrl:
    if path.strip("/") or query:
        raise ValueError("no database number: a cluster has only database 0")
    return RedisUrl(kind="cluster", nodes=_parse_nodes(location, REDIS_PORT))


def _parse_sentinel(location: str, path: str, query: str) -> RedisUrl:
    master_name, _, database = path.removeprefix("/").partition("/")
    if not master_name:
        raise ValueError("the master's name after the hosts, as in redis+sentinel://host:26379/main")
    nodes = _parse_nodes(location, SENTINEL_PORT)
    return RedisUrl(kind="sentinel", nodes=nodes, db=_parse_database(database, query), master_name=unquote(master_name))


PARSERS = {
    "redis": _parse_single,
    "rediss": _parse_single,
    "unix": _parse_unix,
    "redis+cluster": _parse_cluster,
    "rediss+cluster": _parse_cluster,
    "redis+sentinel": _parse_sentinel,
    "rediss+sentinel": _parse_sentinel,
}


def _parse_nodes(location: str, default_port: int) -> tuple[Node, ...]:
    return tuple(_parse_node(text, default_port) for text in location.split(","))


def _parse_node(text: str, default_port: int) -> Node:
    match = NODE.fullmatch(text)
    if match is None or int(match["port"] or default_port) not in range(1, 65536):
        raise ValueError("host:port (an IPv6 host in brackets, the port between 1 and 65535)")
    return match["address"] or match["name"], int(match["port"] or default_port)


def _parse_database(path: str, query: str) -> int:
    options = parse_qsl(query, keep_blank_values=True)
    if any(name != "db" for name, _ in options):
        raise ValueError("only the option db in the query string")
    numbers = [text for text in (path, *(value for _, value in options)) if text]
    if len(numbers) > 1 or not all(re.fullmatch(r"[0-9]{1,5}", number) for number in numbers):
        raise ValueError("one database number, as in redis://host:6379/0")
    return int(numbers[0]) if numbers else 0


class Durability(NamedTuple):
    """The level, and with `replica` the least number of replicas, if the operator names one.

    `memory`: wait for nothing. `replica`: wait for every replica that could be promoted, as far as the topology knows
    them. `disk`: require the append-only file of the master.
    """

    level: Literal["memory", "replica", "disk"]
    min_replicas: int = 1

    def __str__(self) -> str:
        return self.level if self.min_replicas == 1 else f"{self.level}:{self.min_replicas}"


MEMORY: Final = Durability("memory")
