"""The console as a process: on a terminal, through its two names, and in the shell's completion."""

from __future__ import annotations

import os
import pty
import re
import select
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from service.hashing import verify_password
from tests.servers import CHECKOUT

ADMIN = str(CHECKOUT / "scripts" / "admin")
PATIENCE_SECONDS = 20


def plain_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"TERM": "xterm-256color"}


def type_on_terminal(
    *words: str, answers: Sequence[tuple[str, str]] = (), environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """The exit status, and all that stood on the screen. Each answer is typed when its question has appeared."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [ADMIN, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=plain_environment() | dict(environment or {})
    ) as process:
        os.close(theirs)
        screen, waiting = "", list(answers)
        while part := _read(ours):
            screen += part
            if waiting and screen.endswith(waiting[0][0]):
                os.write(ours, waiting.pop(0)[1].encode() + b"\n")
        os.close(ours)
        return process.wait(PATIENCE_SECONDS), screen


def _read(terminal: int) -> str:
    """What comes next; nothing when the process has ended, or says nothing any more."""
    ready, _, _ = select.select([terminal], [], [], PATIENCE_SECONDS)
    try:
        return os.read(terminal, 4096).decode() if ready else ""
    except OSError:  # nobody is at the other end
        return ""


def test_a_secret_that_is_typed_is_not_shown() -> None:
    status, screen = type_on_terminal(
        "hash-secret", answers=[("Secret: ", "my own secret"), ("Repeat for confirmation: ", "my own secret")]
    )

    assert status == 0
    assert "my own secret" not in screen
    (hashed,) = re.findall(r"\$argon2id\$\S+", screen)
    assert verify_password("my own secret", hashed)[0]


def test_two_different_secrets_are_asked_for_again() -> None:
    answers = [("Secret: ", "one"), ("confirmation: ", "two"), ("Secret: ", "three"), ("confirmation: ", "three")]

    _, screen = type_on_terminal("hash-secret", answers=answers)

    assert "The two entered values do not match." in screen


def test_people_get_colour_and_a_question(environment: dict[str, str], registry: None) -> None:
    status, screen = type_on_terminal(
        "client", "delete", "web-shop", answers=[("[y/N]: ", "n")], environment=environment
    )
    _, table = type_on_terminal("client", "list", environment=environment)

    assert status == 1
    assert "end all of its sessions? [y/N]: " in screen
    assert "\x1b[1m" in table  # bold headings
    assert "web-shop" in table


def test_the_other_name_is_the_same_console(environment: dict[str, str], registry: None) -> None:
    other = Path(CHECKOUT, ".venv", "bin", "token-service-admin")

    listed = subprocess.run(
        [other, "client", "list", "--json"],
        env=plain_environment() | environment,
        cwd="/",
        capture_output=True,
        check=True,
        text=True,
    )

    assert '"client_id":"web-shop"' in listed.stdout


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (("",), ["client", "doctor", "events", "hash-secret", "revoke-all", "seed", "stats", "token", "user"]),
        (("client", "rotate-secret", "w"), ["web-shop"]),
        (("client", "create", "x", "--grant-type", "p"), ["password"]),
    ],
)
def test_the_shell_can_complete(
    environment: dict[str, str], registry: None, typed: tuple[str, ...], offered: list[str]
) -> None:
    asked = {
        "_TOKEN_SERVICE_ADMIN_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(("token-service-admin", *typed)),
        "COMP_CWORD": str(len(typed)),
    }

    completed = subprocess.run(
        [ADMIN], env=plain_environment() | environment | asked, capture_output=True, check=True, text=True
    )

    assert [line.partition(",")[2] for line in completed.stdout.splitlines()] == offered
    assert completed.stderr == ""
