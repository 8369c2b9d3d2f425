"""The files of a release: wheels that are equal in two builds, the bill of materials, and checksums.

`./scripts/release VERSION` runs it. It sets the version, commits that, and builds the commit in two fresh clones. It
neither tags nor publishes anything.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
FILES: Final = (
    "service/__init__.py",
    "README.md",
    "deployment/kubernetes/kustomization.yaml",
    "docs/how-to/deploy-kubernetes.md",
)
"""The files that name the version."""
OPEN_NOTE: Final = r"\b(TOD[O]|FIXM[E]|TB[D])\b"
"""The brackets keep this file out of what git finds."""


class Refused(Exception):
    """There is no release. The message says why, and what to do."""


def run(root: Path, *command: str, statuses: tuple[int, ...] = (0,)) -> str:
    """Return what a command prints to stdout. Raises Refused for another status than these."""
    done = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True)
    if done.returncode not in statuses:
        raise Refused(f"{' '.join(command)} failed with status {done.returncode}; its reason is above")
    return done.stdout


def check_tree(root: Path) -> None:
    """Raise Refused if a change is not committed, or a file has an open note."""
    if changed := run(root, "git", "status", "--porcelain"):
        raise Refused(f"these files differ from the commit. Commit or remove them:\n{changed}")
    if notes := run(root, "git", "grep", "-nIP", OPEN_NOTE, "--", ":!*.lock", statuses=(0, 1)):
        raise Refused(f"these notes are open. Do what they ask for, and remove them:\n{notes}")


def check_changelog(root: Path, version: str) -> None:
    """Raise Refused unless the section of the version, or else `[Unreleased]`, has changes and upgrade notes."""
    text = (root / "CHANGELOG.md").read_text()
    section = find_section(text, version) or find_section(text, "Unreleased")
    if not re.search(r"^- ", section, re.MULTILINE):
        raise Refused(f"CHANGELOG.md lists no change under [{version}] or [Unreleased]. Write the changes there")
    if not re.search(r"^### Upgrade notes$", section, re.MULTILINE):
        raise Refused("CHANGELOG.md has no `### Upgrade notes` there. Write what an operator must do")


def find_section(changelog: str, name: str) -> str:
    match = re.search(rf"^## \[{re.escape(name)}\].*?\n(.*?)(?=^## |\Z)", changelog, re.MULTILINE | re.DOTALL)
    return match[1] if match else ""


def set_version(root: Path, version: str) -> None:
    """Write the version into FILES, and commit. A final version also becomes a heading of the changelog, with the date.

    Raises Refused if one of FILES names another version than the package.
    """
    old = re.findall(r'__version__ = "(.*)"', (root / FILES[0]).read_text())[0]
    texts = {name: (root / name).read_text() for name in FILES}
    if strange := [name for name, text in texts.items() if old not in text and version not in text]:
        raise Refused(f"expected {old} or {version} in {', '.join(strange)}. Write the version there")
    for name, text in texts.items():
        (root / name).write_text(text.replace(old, version))
    changelog = root / "CHANGELOG.md"
    if "rc" not in version and not find_section(changelog.read_text(), version):
        heading = f"## [Unreleased]\n\n## [{version}] - {datetime.now(UTC):%Y-%m-%d}\n"
        changelog.write_text(changelog.read_text().replace("## [Unreleased]\n", heading, 1))
    if run(root, "git", "status", "--porcelain"):
        run(root, "git", "commit", "--quiet", "--all", "--message", f"Set the version to {version}")


def build(root: Path, clone: Path, version: str) -> dict[str, bytes]:
    """Build the commit in a new clone. Returns the contents of the wheels and of the bill of materials, by name."""
    run(root, "git", "clone", "--quiet", str(root), str(clone))
    (clone / ".venv").symlink_to(root / ".venv")
    run(clone, "scripts/build-wheels", "build/files")
    run(clone, "scripts/sbom", f"build/files/opaque-token-service-{version}.cdx.json")
    return {file.name: file.read_bytes() for file in sorted(clone.glob("build/files/*"))}


def release(root: Path, version: str) -> str:
    """Write the files into build/release/VERSION. Returns their checksums. Raises Refused."""
    if not re.fullmatch(r"\d+\.\d+\.\d+(rc\d+)?", version):
        raise Refused(f"expected a version like 1.0.0 or 1.0.0rc1, not {version!r}")
    check_tree(root)
    check_changelog(root, version)
    set_version(root, version)
    with TemporaryDirectory(prefix="release-") as scratch:
        first, second = (build(root, Path(scratch, name), version) for name in ("first", "second"))
    if first != second:
        raise Refused(f"two builds differ: {[name for name in first if first[name] != second.get(name)]}")
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {name}\n" for name, content in first.items())
    folder = root / "build/release" / version
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, content in (first | {"SHA256SUMS": sums.encode()}).items():
        (folder / name).write_bytes(content)
    return sums


if __name__ == "__main__":
    try:
        sys.stdout.write(release(ROOT, sys.argv[1]))
    except Refused as reason:
        sys.exit(f"scripts/release: {reason}")
    sys.stdout.write("Two builds are equal. The files are in build/release. The owner tags the commit.\n")
