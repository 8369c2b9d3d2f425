"""The examples of the guide run as they are, but for the place of the program."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.javascript import check_javascript
from tests.support.servers import CHECKOUT

GUIDE = (CHECKOUT / "docs" / "how-to" / "test-your-application.md").read_text()


def read_example(language: str) -> str:
    (example,) = re.findall(rf"^```{language}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)
    return str(example).replace("token-service/bin/python", sys.executable)


def test_pytest_runs_the_example(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text(read_example("ini").replace("tests/seed.yaml", "seed.yaml"))
    (tmp_path / "seed.yaml").write_text((CHECKOUT / "examples" / "seed.yaml").read_text())
    (tmp_path / "test_example.py").write_text(read_example("python"))
    options = ["-p", "token_service_testing.pytest_plugin", "-p", "no:cacheprovider", "-W", "error"]

    command = [sys.executable, "-m", "pytest", *options]
    environment = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)

    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_javascript_runs_the_example(tmp_path: Path) -> None:
    check_javascript()
    node = Path(sys.executable).with_name("node")
    (tmp_path / "example.mjs").write_text(read_example("js"))

    done = subprocess.run([node, "example.mjs"], cwd=tmp_path, capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
