"""The root file system of the image, built by the steps of the Containerfile without a container engine.

A Debian of the same release, with its own Python of the same series, takes the place of the base image. The packages
are downloaded first, and the steps run without a network. It needs root on Linux, debootstrap and util-linux.
"""

import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from tests.support.servers import CHECKOUT

CONTAINERFILE: Final = CHECKOUT / "deployment" / "Containerfile"
BASE_IMAGE: Final = re.compile(r"python:(?P<python>3\.\d+)-slim-(?P<debian>[a-z]+)")
BASE_PACKAGES: Final = ("ca-certificates", "netbase", "tzdata", "python3", "python3-venv")
BASE_PATH: Final = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"
NEWEST_GLIBC_MINOR: Final = 41
"""The version of glibc in Debian 13 is 2.41. It runs the wheels for all older ones."""

RUN_STEP: Final = """
set -e
mount --bind "$2" "$1/mnt"
mount -t proc proc "$1/proc"
exec chroot "$1" "${@:3}"
"""


@dataclass(frozen=True)
class Instruction:
    word: str
    argument: str


@dataclass
class Image:
    """A root file system, and what the Containerfile says about its start."""

    root: Path
    environment: dict[str, str] = field(default_factory=lambda: {"PATH": BASE_PATH})
    folder: str = "/"
    user: str = "0:0"
    ports: list[int] = field(default_factory=list)
    stop_signal: str = ""
    entrypoint: list[str] = field(default_factory=list)
    command: list[str] = field(default_factory=list)

    def locate(self, path: str) -> Path:
        """Return the place on this machine of a path in the image, which may be relative to the working folder."""
        return self.root / self.folder.lstrip("/") / path if not path.startswith("/") else self.root / path[1:]


def read_instructions(text: str) -> list[Instruction]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#")).replace("\\\n", " ")
    return [Instruction(*line.split(maxsplit=1)) for line in lines.splitlines() if line.strip()]


def read_base_image() -> re.Match[str]:
    """Return the base image of all stages, with its Python and its Debian."""
    (name,) = {each.argument.split()[0] for each in read_instructions(CONTAINERFILE.read_text()) if each.word == "FROM"}
    match = BASE_IMAGE.fullmatch(name)
    assert match is not None, f"{name}: expected a Python series, slim, and a release of Debian"
    return match


def make_base(folder: Path) -> Path:
    """Install Debian as it is in the base image, and return the folder, which is the root."""
    wanted = read_base_image()
    mirror = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian"],
        capture_output=True,
        text=True,
    ).stdout.split()
    include = f"--include={','.join(BASE_PACKAGES)}"
    command = ["debootstrap", "--variant=minbase", include, wanted["debian"], str(folder), *mirror[:1]]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:]
    (folder / "usr/local/bin/python").symlink_to("/usr/bin/python3")
    version = subprocess.run(["chroot", folder, "python", "--version"], env={"PATH": BASE_PATH}, capture_output=True)
    assert version.stdout.decode().startswith(f"Python {wanted['python']}.")
    return folder


def download_packages(folder: Path) -> None:
    """Download the locked packages for the Python of the image, with the configuration of pip on this machine."""
    machine = platform.machine()
    platforms = [f"manylinux_2_{minor}_{machine}" for minor in range(5, NEWEST_GLIBC_MINOR + 1)]
    options = [word for each in (*platforms, f"manylinux2014_{machine}") for word in ("--platform", each)]
    options += ["--python-version", read_base_image()["python"], "--only-binary", ":all:", "--require-hashes"]
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input"]
    command = [*pip, *options, "--dest", str(folder), "--requirement", str(CHECKOUT / "requirements.lock")]
    subprocess.run(command, check=True)


def make_context(folder: Path) -> Path:
    """Copy the build context: what .dockerignore lets through."""
    lines = (CHECKOUT / ".dockerignore").read_text().splitlines()
    rules = [line for line in lines if line and not line.startswith("#")]
    assert rules[0] == "*"
    ignored = shutil.ignore_patterns(*(rule.removeprefix("**/") for rule in rules if rule.startswith("**/")))
    for name in (rule[1:] for rule in rules if rule.startswith("!")):
        source, target = CHECKOUT / name, folder / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, symlinks=True, ignore=ignored)
        else:
            shutil.copy2(source, target)
    return folder


class Builder:
    """Runs the instructions of the Containerfile in order. An instruction that it does not know is a KeyError."""

    def __init__(self, base: Path, context: Path, packages: Path, folder: Path) -> None:
        self._base = base
        self._context = context
        self._packages = packages
        self._folder = folder
        self._stages: dict[str, Image] = {}
        self._image = Image(folder)
        self._steps: dict[str, Callable[[str], None]] = {
            "FROM": self._begin_stage,
            "WORKDIR": self._enter,
            "COPY": self._copy,
            "RUN": self._run,
            "USER": self._set_user,
            "ENV": self._set_environment,
            "EXPOSE": lambda argument: self._image.ports.append(int(argument)),
            "STOPSIGNAL": self._set_stop_signal,
            "ENTRYPOINT": lambda argument: self._image.entrypoint.extend(json.loads(argument)),
            "CMD": lambda argument: self._image.command.extend(json.loads(argument)),
        }

    def build(self, instructions: Iterable[Instruction]) -> Image:
        for instruction in instructions:
            self._steps[instruction.word](instruction.argument)
        return self._image

    def _begin_stage(self, argument: str) -> None:
        name = argument.partition(" AS ")[2] or "last"
        root = self._folder / name
        subprocess.run(["cp", "--archive", "--reflink=auto", self._base, root], check=True)
        self._image = self._stages[name] = Image(root)

    def _enter(self, argument: str) -> None:
        self._image.folder = argument
        self._image.locate(argument).mkdir(parents=True, exist_ok=True)

    def _copy(self, argument: str) -> None:
        *options, source, target = argument.split()
        found = self._context / source
        for option in options:
            found = self._stages[option.removeprefix("--from=")].locate(source)
        place = self._image.locate(target)
        if target.endswith("/"):
            place /= found.name
        place.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run(
            ["cp", "--archive", "--no-preserve=ownership", "--no-target-directory", found, place], check=True
        )

    def _run(self, argument: str) -> None:
        assert self._image.user == "0:0", "each step runs as root"
        environment = self._image.environment | {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/mnt", "HOME": "/root"}
        step = f"cd {shlex.quote(self._image.folder)} && {argument}"
        command = ["env", "-i", *(f"{name}={value}" for name, value in environment.items()), "/bin/sh", "-c", step]
        namespaces = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child"]
        done = subprocess.run(
            [*namespaces, "bash", "-c", RUN_STEP, "step", self._image.root, self._packages, *command],
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, f"{argument}\n{done.stdout}{done.stderr}"

    def _set_user(self, argument: str) -> None:
        self._image.user = argument

    def _set_stop_signal(self, argument: str) -> None:
        self._image.stop_signal = argument

    def _set_environment(self, argument: str) -> None:
        known = self._image.environment
        for word in shlex.split(argument):
            name, _, value = word.partition("=")
            known[name] = re.sub(r"\$(\w+)", lambda match: known[match[1]], value)
