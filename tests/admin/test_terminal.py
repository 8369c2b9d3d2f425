"""The console as a process: on a terminal, under its two names, and with shell completion."""

import os
import re
import shlex
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from service.crypto.password_hashing import verify_password
from tests.support.servers import CHECKOUT
from tests.support.terminal import NEEDS_A_TERMINAL, open_terminal, read_terminal, screen_lines
from tests.support.waiting import MAX_WAIT_SECONDS, wait_until

ADMIN = str(CHECKOUT / "scripts" / "admin")
CTRL_C = "\x03"
READ = {"x86_64": "0", "aarch64": "63"}[os.uname().machine]
"""The number of the system call `read`."""


def plain_environment() -> dict[str, str]:
    return {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ} | {"TERM": "xterm-256color"}


def type_on_terminal(
    *words: str, answers: Sequence[tuple[str, str]] = (), environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Run a command on a terminal. Each answer is typed when its question appears. Returns exit status and screen."""
    own_end, terminal_end = open_terminal()
    with subprocess.Popen(
        [ADMIN, *words],
        stdin=terminal_end,
        stdout=terminal_end,
        stderr=terminal_end,
        env=plain_environment() | dict(environment or {}),
    ) as process:
        os.close(terminal_end)
        screen, waiting = "", list(answers)
        while part := read_terminal(own_end):
            screen += part
            if waiting and screen.endswith(waiting[0][0]):
                answer = waiting.pop(0)[1]
                if answer == CTRL_C:
                    _press_ctrl_c(process)
                else:
                    os.write(own_end, answer.encode() + b"\n")
        os.close(own_end)
        return process.wait(MAX_WAIT_SECONDS), screen


def run_in_shell(behind: str, *words: str, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run the command in a shell, with these redirections."""
    line = f"{shlex.join((ADMIN, *words))} {behind}"
    everything = plain_environment() | dict(environment)
    return subprocess.run(["bash", "-c", line], env=everything, capture_output=True, text=True, check=False)


def _press_ctrl_c(process: subprocess.Popen[bytes]) -> None:
    """Press Ctrl-C when the process waits for its answer.

    Python prints a question, and then waits in a system call. A signal that comes between the two does not end the
    waiting.
    """
    wait_until(lambda: _waits_for_input(process.pid), "the process to wait for its answer")
    process.send_signal(signal.SIGINT)


def _waits_for_input(pid: int) -> bool:
    """Return True if the process reads its stdin. A process that sleeps may also be writing."""
    return Path(f"/proc/{pid}/syscall").read_text().split()[:2] == [READ, "0x0"]


@NEEDS_A_TERMINAL
def test_typed_secret_is_not_echoed() -> None:
    status, screen = type_on_terminal(
        "hash-secret", answers=[("Secret: ", "my own secret"), ("Repeat for confirmation: ", "my own secret")]
    )

    assert status == 0
    assert "my own secret" not in screen
    (hashed,) = [line for line in screen_lines(screen) if line.startswith("$argon2id$")]
    assert verify_password("my own secret", hashed)[0]


@NEEDS_A_TERMINAL
def test_terminal_output_has_colour_and_prompts(environment: dict[str, str], registry: None) -> None:
    status, screen = type_on_terminal(
        "client", "delete", "web-shop", answers=[("[y/N]: ", "n")], environment=environment
    )
    _, table = type_on_terminal("client", "list", environment=environment)

    assert status == 1
    assert "revoke all of its sessions? [y/N]: " in screen
    assert "\x1b[36m" in table  # the headings are coloured
    assert "web-shop" in table


@NEEDS_A_TERMINAL
@pytest.mark.parametrize(("variables", "sequences"), [({"NO_COLOR": "1"}, {"\x1b[K"}), ({"TERM": "dumb"}, set[str]())])
def test_a_terminal_without_colours_gets_none(
    environment: dict[str, str], registry: None, variables: dict[str, str], sequences: set[str]
) -> None:
    """The line of progress is cleared, if the terminal can do that."""
    _, screen = type_on_terminal("doctor", environment=environment | variables)

    assert set(re.findall(r"\x1b\[[0-9;?]*[A-Za-z]", screen)) == sequences
    assert "password hashes" in screen


@NEEDS_A_TERMINAL
@pytest.mark.parametrize(
    ("words", "question"),
    [
        (("user", "create", "dora@example.com"), "Password of dora@example.com: "),
        (("user", "delete", "alice@example.com"), "[y/N]: "),
        (("token", "inspect"), "Token: "),
    ],
)
def test_ctrl_c_at_a_question_ends_the_command_at_once(
    environment: dict[str, str], registry: None, words: tuple[str, ...], question: str
) -> None:
    status, screen = type_on_terminal(*words, answers=[(question, CTRL_C)], environment=environment)

    assert status == 130, screen
    assert "Traceback" not in screen


@pytest.mark.parametrize("words", [("user", "list"), ("user", "list", "--json"), ("client", "list", "--json")])
def test_closed_stdout_causes_no_error(environment: dict[str, str], registry: None, words: tuple[str, ...]) -> None:
    ended = run_in_shell("| true", *words, environment=environment)

    assert (ended.stdout, ended.stderr) == ("", "")
