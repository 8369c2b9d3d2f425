"""The requests of README.md, first-requests.md and http-api.md work, and print what the documents show."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import SECRET_KEY
from tests.support.servers import CHECKOUT, RedisServer, ServiceProcess, running_service

SHOWN_BASE = "http://127.0.0.1:8000"
BLOCK = re.compile(
    r"^(?P<mark><!-- not run: [^\n]* -->\n)?```sh\n(?P<commands>.*?)^```\n(?:```\n(?P<answer>.*?)^```\n)?",
    re.MULTILINE | re.DOTALL,
)
END_OF_BLOCK = "\x1e"


@pytest.fixture
def service(redis_server: RedisServer, store: object, tmp_path: Path) -> Iterator[ServiceProcess]:
    """A service with the example seed, as `./scripts/serve` starts it."""
    environment = {
        "REDIS_URL": redis_server.url,
        "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY,
        "TOKEN_SERVICE_SEED_FILE": str(CHECKOUT / "examples" / "seed.yaml"),
        "TOKEN_SERVICE_BASE_URL": SHOWN_BASE,
    }
    with running_service(tmp_path, environment) as service:
        yield service


def test_printed_requests_show_their_answers(service: ServiceProcess, tmp_path: Path) -> None:
    """The documents share one start of the service, which takes longer than most requests."""
    blocks = [
        *find_blocks("README.md", "## Try it"),
        *find_blocks("docs/tutorials/first-requests.md", "# First requests"),
        *find_blocks("docs/reference/http-api.md", "# HTTP API"),
    ]

    printed = run([commands for commands, _ in blocks], service, tmp_path)

    for (commands, shown), answer in zip(blocks, printed, strict=True):
        if shown is None:
            assert '"error"' not in answer, f"{commands}\n{answer}"
        else:
            assert_alike(shown, answer)


def find_blocks(document: str, heading: str) -> list[tuple[str, str | None]]:
    """Return the shell blocks that call the service, with what they print if that is shown.

    Blocks that start one of our scripts, and blocks marked as not run, are left out.
    """
    text = (CHECKOUT / document).read_text().partition(f"{heading}\n")[2]
    found = [match for match in BLOCK.finditer(text) if not match["mark"]]
    return [(match["commands"], match["answer"]) for match in found if not match["commands"].startswith("./scripts/")]


def run(blocks: list[str], service: ServiceProcess, folder: Path) -> list[str]:
    """Run all blocks in one shell. Returns the output of each."""
    curl = folder / "curl"
    curl.write_text(f'#!/bin/sh\nexec {sys.executable} -S -E {CHECKOUT / "tests" / "support" / "curl.py"} "$@"\n')
    curl.chmod(0o700)
    script = f"printf '{END_OF_BLOCK}'\n".join(block.replace(SHOWN_BASE, service.url) for block in blocks)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        env=os.environ | {"PATH": f"{folder}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout + done.stderr
    return done.stdout.replace(service.url, SHOWN_BASE).split(END_OF_BLOCK)


def assert_alike(shown: str, printed: str) -> None:
    """Compare two outputs, except for tokens, numbers and the order of headers. An ellipsis matches any text."""
    expected, found = normalise(shown), normalise(printed)
    pattern = ".*".join(re.escape(part) for part in expected.split("…"))
    assert re.fullmatch(pattern, found, re.DOTALL), f"shown:\n{expected}\nprinted:\n{found}"


def normalise(text: str) -> str:
    text = re.sub(r"\bts(at|rt|ac)1_[\w…-]+", "TOKEN", text)
    text = re.sub(r"(?<=[\" ])[\w-]{22}(?=\"|\n)", "SUBJECT", text)
    text = re.sub(r"(?<=[:= ])\d{2,}(?=[,}\n])", "NUMBER", text)
    head, blank, body = text.strip().partition("\n\n")
    lines = [line for line in head.split("\n") if not line.startswith(("date:", "server:", "connection:"))]
    return "\n".join([lines[0], *sorted(lines[1:])]) + (blank + body if body else "")
