"""The Redis users of examples/*.acl: what each may do, and what it was refused."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import redis

from tests.support.servers import CHECKOUT

WITHOUT_RIGHTS = frozenset({"auth", "hello", "quit", "reset"})
"""What every connection may say: who it is, and that it leaves."""


class Rights(NamedTuple):
    """As a line of the file has them: `commands` in small letters, with `client|tracking` for a subcommand."""

    commands: frozenset[str]
    keys: frozenset[str]


def read_rights(name: str) -> Rights:
    """Of the user of `examples/redis-<name>.acl`; raises ValueError where there is another one in it."""
    (line,) = (CHECKOUT / "examples" / f"redis-{name}.acl").read_text().splitlines()
    words = line.replace("(", " ").replace(")", " ").split()
    if words[:3] != ["user", name, "on"]:
        raise ValueError(line)
    commands = frozenset(word[1:] for word in words if word.startswith("+"))
    return Rights(commands, frozenset(word for word in words if word.startswith(("~", "%"))))


def find_allowed(store: redis.Redis, user: str, key: str) -> set[str]:
    """Every command of this server that the user may give, as far as rights go, with a key of its own in all places."""
    # As one word each: the client would take the answers for those of COMMAND alone.
    commands = store.execute_command("COMMAND LIST")  # type: ignore[no-untyped-call]
    described = store.execute_command("COMMAND INFO", *commands)  # type: ignore[no-untyped-call]
    everything = {str(name) for name, *_, subcommands in described for name in (name, *(one[0] for one in subcommands))}
    assert len(everything) > 300
    return {name for name in everything if is_allowed(store, user, *name.split("|"), key=key)}


def is_allowed(store: redis.Redis, user: str, *command: str, key: str) -> bool:
    """Whatever the arguments are; False also where no number of arguments up to five makes it a command."""
    for count in range(6):
        try:
            answer = store.execute_command("ACL", "DRYRUN", user, *command, *(key,) * count)  # type: ignore[no-untyped-call]
        except redis.ResponseError:  # this many arguments make no command
            continue
        return bool(answer == "OK")
    return False


def find_refusals(store: redis.Redis, users: Collection[object]) -> list[str]:
    """What these users wanted and may not, as Redis noted it since it was started, or since `ACL LOG RESET`."""
    return [
        f"{entry['username']}: {entry['reason']} {entry['object']}"
        for entry in store.acl_log()
        if entry["username"] in users and entry["object"] not in _UNASKED
    ]


_UNASKED = {"client|setinfo"}
"""The client library tells its name by itself, where Redis knows that command, and goes on where it may not."""
