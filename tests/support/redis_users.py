"""The Redis users of examples/*.acl: their rights, and the commands that Redis refused them."""

from collections.abc import Collection
from typing import NamedTuple

import redis

from tests.support.servers import CHECKOUT

WITHOUT_RIGHTS = frozenset({"auth", "hello", "quit", "reset"})
"""The commands that every connection may send."""


class Rights(NamedTuple):
    """The rights of a user: `commands` in small letters, subcommands as in `client|tracking`."""

    commands: frozenset[str]
    keys: frozenset[str]


def read_rights(name: str) -> Rights:
    """Return the rights of the user of `examples/redis-<name>.acl`. Raises ValueError if the file has another user."""
    (line,) = (CHECKOUT / "examples" / f"redis-{name}.acl").read_text().splitlines()
    words = line.replace("(", " ").replace(")", " ").split()
    if words[:3] != ["user", name, "on"]:
        raise ValueError(line)
    commands = frozenset(word[1:] for word in words if word.startswith("+"))
    return Rights(commands, frozenset(word for word in words if word.startswith(("~", "%"))))


def find_allowed(store: redis.Redis, user: str, key: str) -> set[str]:
    """Return every command of this server that the user may send with `key` as each argument."""
    # redis-py would parse the answers of two words as those of COMMAND.
    commands = store.execute_command("COMMAND LIST")  # type: ignore[no-untyped-call]
    described = store.execute_command("COMMAND INFO", *commands)  # type: ignore[no-untyped-call]
    everything = {str(name) for name, *_, subcommands in described for name in (name, *(one[0] for one in subcommands))}
    assert len(everything) > 300
    return {name for name in everything if is_allowed(store, user, *name.split("|"), key=key)}


def is_allowed(store: redis.Redis, user: str, *command: str, key: str) -> bool:
    """Return True if the user may send the command.

    Returns False also if it is no command with any number of arguments up to five.
    """
    for count in range(6):
        try:
            answer = store.execute_command("ACL", "DRYRUN", user, *command, *(key,) * count)  # type: ignore[no-untyped-call]
        except redis.ResponseError:  # wrong number of arguments
            continue
        return bool(answer == "OK")
    return False


def find_refusals(store: redis.Redis, users: Collection[object]) -> list[str]:
    """Return what Redis refused these users since its start, or since `ACL LOG RESET`."""
    return [
        f"{entry['username']}: {entry['reason']} {entry['object']}"
        for entry in store.acl_log()
        if entry["username"] in users and entry["object"] not in _SENT_UNASKED
    ]


_SENT_UNASKED = {"client|setinfo"}
"""redis-py sends this by itself if Redis knows it, and ignores a refusal."""
