"""Runs the shell blocks of a document as its reader does, in one shell, and compares what they print.

A mark above a block says what is different: `not run: REASON`, `run by FILE` for a block that another test runs,
`run as: COMMAND` for a command that does the same to a running service, and `exit status N`. A block of another
language with `file: NAME` is written to this file.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from textwrap import dedent

from tests.support.documents import BLOCK
from tests.support.servers import CHECKOUT

SHOWN_BASE = "http://127.0.0.1:8000"
PROGRAMS = (
    *("base64", "basenc", "bash", "cat", "chmod", "cp", "cut", "date", "env", "grep", "head", "mkdir", "openssl", "rm"),
    *("sed", "sha256sum", "tr"),
)
"""The only programs that a block finds, besides ours and Python. So no block can change the machine."""
OUR_PROGRAMS = {
    "bin/python3": "",
    "bin/curl": f"-S -E {CHECKOUT}/tests/support/curl.py",
    "bin/token-service-admin": "-P -m service.admin",
    "scripts/admin": "-P -m service.admin",
    "scripts/clauses": f"{CHECKOUT}/scripts/clauses",
    "scripts/serve": "-P -m service",
}
END_OF_BLOCK = "\x1e"


def make_folder(folder: Path) -> None:
    """Make the folder in which blocks run: the programs, and what they read of a checkout, as a copy."""
    for name in ("bin", "scripts"):
        (folder / name).mkdir()
    for name, arguments in OUR_PROGRAMS.items():
        (folder / name).write_text(f'#!/bin/sh\nexec {sys.executable} {arguments} "$@"\n')
        (folder / name).chmod(0o700)
    for name in PROGRAMS:
        (folder / "bin" / name).symlink_to(shutil.which(name) or name)
    for name in ("deployment", "examples"):
        shutil.copytree(CHECKOUT / name, folder / name, ignore=shutil.ignore_patterns("secrets", "__pycache__"))
    (folder / ".venv").symlink_to(sys.prefix)


def run_page(text: str, folder: Path, url: str, environment: Mapping[str, str]) -> list[str]:
    """Run the shell blocks of a page that are not marked as run elsewhere or not at all. Returns the problems."""
    make_folder(folder)
    script, blocks = "set -euo pipefail\n", []
    for match in BLOCK.finditer(text):
        kind, _, value = (match["mark"] or "").partition(": ")
        commands = dedent(match["code"])
        if kind == "file":
            (folder / value).write_text(commands)
        if match["language"] != "sh" or kind == "not run" or kind.startswith("run by"):
            continue
        if kind.startswith("exit status"):
            commands = f"if ({commands}) 2>&1; then false; else [ $? = {kind[-1]} ]; fi\n"
        script += (f"{value}\n" if kind == "run as" else commands).replace(SHOWN_BASE, url)
        script += f"printf '{END_OF_BLOCK}'\n"
        output = BLOCK.match(text, match.end() + 1)
        blocks.append((commands, dedent(output["code"]) if output and not output["language"] else None))
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=folder,
        env={"PATH": f"{folder / 'bin'}", "HOME": str(folder), "PYTHONPATH": str(CHECKOUT)} | dict(environment),
        capture_output=True,
        text=True,
        timeout=120,
    )
    printed = done.stdout.replace(url, SHOWN_BASE).split(END_OF_BLOCK)[:-1]
    problems = [f"exit status {done.returncode}: {done.stderr}"] if done.returncode or done.stderr else []
    for (commands, shown), found in zip(blocks, printed, strict=False):
        if not is_alike(shown, found) if shown else '"error"' in found:
            problems.append(f"{commands}\nprints\n{found}")
    return problems


def is_alike(shown: str, printed: str) -> bool:
    """Compare two outputs, except for tokens, numbers and the order of headers. An ellipsis matches any text."""
    pattern = ".*".join(re.escape(part) for part in _normalise(shown).split("…"))
    return re.fullmatch(pattern, _normalise(printed), re.DOTALL) is not None


def _normalise(text: str) -> str:
    text = re.sub(r"\bts(at|rt|ac)1_[\w…-]+", "TOKEN", text)
    text = re.sub(r"(?<=[\" ])[\w-]{22}(?=\"|\n)", "SUBJECT", text)
    text = re.sub(r"(?<=[:= ])\d{2,}(?=[,}\n])", "NUMBER", text)
    head, blank, body = text.strip().partition("\n\n")
    lines = [line for line in head.split("\n") if not line.startswith(("date:", "server:", "connection:"))]
    return "\n".join([lines[0], *sorted(lines[1:])]) + (blank + body if body else "")
