"""The build of the wheels of the service, the gateway library and the service for tests.

`./scripts/build-wheels` runs it. The build uses the locked setuptools of .venv, and needs no network. Two builds of one
commit give the same bytes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
GATEWAY = ROOT / "distributions" / "gateway"
TESTING = ROOT / "distributions" / "testing"
FILE_TIME = "315532800"
"""The time of all files in a wheel, in seconds since 1970: the first one that a ZIP file can have."""


def build_wheel(project: Path, folder: Path) -> Path:
    """Build the wheel of a folder with a pyproject.toml. Returns its path, which is in `folder`.

    Raises CalledProcessError if the build fails; pip has printed the reason.
    """
    options = ["--no-deps", "--no-index", "--no-build-isolation", "--quiet", "--disable-pip-version-check"]
    with TemporaryDirectory() as scratch:
        # Without this, setuptools would leave `build` in the checkout. The next build would add modules from there that
        # were deleted since.
        configuration, built = Path(scratch, "setup.cfg"), Path(scratch, "wheels")
        configuration.write_text(f"[build]\nbuild_base = {scratch}\n[egg_info]\negg_base = {scratch}\n")
        pip = [sys.executable, "-m", "service.system.interrupts", "pip", "wheel", *options]
        command = [*pip, "--wheel-dir", str(built), str(project)]
        variables = {"DIST_EXTRA_CONFIG": str(configuration), "SOURCE_DATE_EPOCH": FILE_TIME}
        subprocess.run(command, cwd=ROOT, env=os.environ | variables, check=True)
        (wheel,) = built.iterdir()
        folder.mkdir(parents=True, exist_ok=True)
        return Path(shutil.move(wheel, folder / wheel.name))


if __name__ == "__main__":
    for each in (ROOT, GATEWAY, TESTING):
        sys.stdout.write(f"{build_wheel(each, Path(sys.argv[1]))}\n")
