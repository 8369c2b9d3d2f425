"""scripts/install refuses arguments that it does not know."""

import subprocess

import pytest

from tests.support.servers import CHECKOUT


@pytest.mark.parametrize("arguments", [["--programms"], ["--dev", "--bench"]])
def test_other_arguments_are_refused_before_anything_is_installed(arguments: list[str]) -> None:
    ended = subprocess.run([CHECKOUT / "scripts" / "install", *arguments], capture_output=True, text=True)

    assert ended.returncode == 2
    assert ended.stderr == (
        f"scripts/install: unknown arguments: {' '.join(arguments)};"
        " expected none, --example, --test, --dev, --bench or --programs\n"
    )
