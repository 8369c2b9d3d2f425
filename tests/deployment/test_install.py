"""scripts/install, with a Python that makes no virtual environment."""

import os
import subprocess
from pathlib import Path

from tests.support.servers import CHECKOUT

NO_VENV = """#!/bin/sh
case "$*" in *"-m venv"*) echo "no virtual environment" >&2 && exit 3 ;; esac
"""


def test_the_first_line_precedes_the_first_silent_step(tmp_path: Path) -> None:
    checkout, programs = tmp_path / "checkout", tmp_path / "programs"
    (checkout / "scripts").mkdir(parents=True)
    programs.mkdir()
    (checkout / "scripts" / "install").symlink_to(CHECKOUT / "scripts" / "install")
    (checkout / "requirements.lock").touch()
    python = programs / "python3"
    python.write_text(NO_VENV)
    python.chmod(0o755)

    ended = subprocess.run(
        [checkout / "scripts" / "install"],
        env={"PATH": f"{programs}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert ended.returncode == 3
    first, second = ended.stderr.splitlines()
    assert first == (
        "scripts/install: installing the locked packages (requirements.lock) into .venv, which can take a minute …"
    )
    assert second == "no virtual environment"
