"""`./scripts/serve --help` and `--version`, and the refusals of arguments."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from service import __version__
from service.config.settings import VARIABLES
from service.serving.help import HELP
from tests.support.servers import CHECKOUT


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [(["--version"], f"token-service {__version__}\n"), (["--help"], HELP), (["--port", "8123", "-h"], HELP)],
)
def test_help_and_version_need_no_installation(tmp_path: Path, arguments: list[str], answer: str) -> None:
    scripts = tmp_path / "scripts"
    scripts.mkdir()
    (scripts / "serve").symlink_to(CHECKOUT / "scripts" / "serve")
    (tmp_path / "service").symlink_to(CHECKOUT / "service")

    ended = subprocess.run(
        [scripts / "serve", *arguments],
        env={"PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert (ended.stdout, ended.stderr) == (answer, "")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["scripts", "service"]


@pytest.mark.parametrize("script", ["serve", "example-client", "stack"])
def test_a_script_starts_from_its_own_folder(script: str) -> None:
    ended = subprocess.run(["bash", script, "--help"], cwd=CHECKOUT / "scripts", capture_output=True, text=True)

    assert (ended.returncode, ended.stderr) == (0, "")


def test_every_file_is_read_as_utf_8() -> None:
    """The application reads its scripts, templates and texts. A locale of one byte a character must not matter."""
    locale = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    read_all = "import service.app; from service.web.pages.languages import load_languages; load_languages()"

    subprocess.run([sys.executable, "-c", read_all], cwd=CHECKOUT, env=os.environ | locale, check=True)


def test_the_help_names_settings_that_exist() -> None:
    named = set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)+\b|\bHOST\b|\bPORT\b", HELP))
    assert {"HOST", "PORT", "REDIS_URL"} <= named <= VARIABLES


def test_unwritable_checkout_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / ".venv.lock").mkdir()  # root may write into any folder, but not over this one
    script = tmp_path / "scripts" / "install"
    script.write_bytes((CHECKOUT / "scripts" / "install").read_bytes())

    ended = subprocess.run(["bash", script], capture_output=True, text=True, check=False)

    (line,) = ended.stderr.splitlines()
    assert ended.returncode == 2
    assert line.startswith(f"scripts/install: {tmp_path} cannot be written. Use a clone of your own")
