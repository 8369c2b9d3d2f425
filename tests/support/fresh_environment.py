"""Virtual environments that contain only chosen distributions, as links to the environment of the tests.

So a test needs no network to try what an installation needs.
"""

import importlib.metadata
import subprocess
import sys
import venv
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class FreshEnvironment:
    folder: Path

    @property
    def python(self) -> str:
        return str(self.folder / "bin" / "python")

    def install(self, requirement: str) -> None:
        """Install a wheel. Raises CalledProcessError if the environment lacks a distribution that the wheel needs."""
        self._run_pip("install", "--no-index", requirement)

    def check(self) -> None:
        """Raise CalledProcessError if a distribution lacks another one that it needs."""
        self._run_pip("check")

    def _run_pip(self, *arguments: str) -> None:
        options = ("--isolated", "--disable-pip-version-check", "--quiet", "--python", self.python)
        subprocess.run([sys.executable, "-m", "pip", *options, *arguments], check=True)


def make_fresh_environment(folder: Path, distributions: Iterable[str]) -> FreshEnvironment:
    """Return a new environment in `folder` with these distributions, and without those that they need."""
    venv.create(folder, with_pip=False, symlinks=True)
    environment = FreshEnvironment(folder)
    show = [environment.python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site_packages = Path(subprocess.run(show, capture_output=True, text=True, check=True).stdout.strip())
    for distribution in distributions:
        _link_distribution(distribution, site_packages)
    return environment


def _link_distribution(name: str, site_packages: Path) -> None:
    """Link the files of a distribution, except programs, which lie outside of the folder of packages."""
    for file in importlib.metadata.files(name) or ():
        if ".." not in file.parts and file.suffix != ".pyc":
            target = site_packages / file
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(str(file.locate()))
