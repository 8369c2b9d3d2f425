"""The console as a process: on a terminal, through its two names, and in the shell's completion."""

from __future__ import annotations

import os
import pty
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from service.hashing import verify_password
from tests.servers import CHECKOUT

ADMIN = str(CHECKOUT / "scripts" / "admin")
PATIENCE_SECONDS = 20


def plain_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"TERM": "xterm-256color"}


def type_on_terminal(*words: str, typed: str, environment: Mapping[str, str]) -> tuple[int, str]:
    """The exit status, and all that stood on the screen."""
    ours, theirs = pty.openpty()
    with subprocess.Popen(
        [ADMIN, *words], stdin=theirs, stdout=theirs, stderr=theirs, env=plain_environment() | dict(environment)
    ) as process:
        os.close(theirs)
        os.write(ours, typed.encode())
        screen = b""
        try:
            while part := os.read(ours, 4096):
                screen += part
        except OSError:  # the terminal's other end is closed: the process has ended
            pass
        os.close(ours)
        return process.wait(PATIENCE_SECONDS), screen.decode()


def test_a_secret_that_is_typed_is_not_shown() -> None:
    status, screen = type_on_terminal("hash-secret", typed="my own secret\nmy own secret\n", environment={})

    assert status == 0
    assert "my own secret" not in screen
    (hashed,) = [line for line in screen.splitlines() if line.startswith("$argon2id$")]
    assert verify_password("my own secret", hashed)[0]


def test_two_different_secrets_are_asked_for_again() -> None:
    _, screen = type_on_terminal("hash-secret", typed="one\ntwo\nthree\nthree\n", environment={})

    assert "The two entered values do not match." in screen


def test_people_get_colour_and_a_question(environment: dict[str, str], registry: None) -> None:
    status, screen = type_on_terminal("client", "delete", "web-shop", typed="n\n", environment=environment)
    _, table = type_on_terminal("client", "list", typed="", environment=environment)

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
