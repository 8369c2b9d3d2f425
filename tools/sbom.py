"""The software bill of materials: the packages of requirements.lock as CycloneDX 1.6. `./scripts/sbom` writes it.

The same lock file always gives the same bytes, so the document has no time and no serial number. The licences are those
in the metadata of the installed packages, so a package for another platform has none.
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from service import __version__

ROOT: Final = Path(__file__).resolve().parent.parent
PROJECT: Final = "opaque-token-service"
_REQUIREMENT: Final = re.compile(r"([a-z0-9][a-z0-9-]*)==([^\s;\\]+)(?: ; ([^\\]+?))? \\")
_HASH: Final = re.compile(r"    --hash=sha256:([0-9a-f]{64})(?: \\)?")
_DEPENDENT: Final = re.compile(r"    #(?: via|  ) +([a-z0-9][a-z0-9-]*)(?: \(pyproject\.toml\))?")


class BadLock(Exception):
    """A line of the lock file that the bill of materials would miss. The message has its number."""


@dataclass
class Package:
    """A locked package. `marker` says in which environments it is installed, and is empty for all."""

    name: str
    version: str
    marker: str
    hashes: list[str] = field(default_factory=list)
    """SHA-256 of each file that pip may install, in hex."""
    dependents: list[str] = field(default_factory=list)
    """The packages that need this one, or the project itself."""

    @property
    def purl(self) -> str:
        return f"pkg:pypi/{self.name}@{quote(self.version)}"


def read_lock(text: str) -> list[Package]:
    """Return the packages of a lock file. Raises BadLock for a line that uv does not write."""
    packages: list[Package] = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := _REQUIREMENT.fullmatch(line):
            packages.append(Package(match[1], match[2], match[3] or ""))
        elif packages and (match := _HASH.fullmatch(line)):
            packages[-1].hashes.append(match[1])
        elif packages and (match := _DEPENDENT.fullmatch(line)):
            packages[-1].dependents.append(match[1])
        elif not packages or line != "    # via":
            expected = "expected name==version, a SHA-256 hash, or a package after `# via`"
            raise BadLock(f"line {number} of the lock file: {line!r}: {expected}")
    return packages


def read_required() -> set[str]:
    """Return the packages that the project needs without its extras, in the spelling of the lock file."""
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    names = (re.split(r"[^A-Za-z0-9._-]", each, maxsplit=1)[0] for each in dependencies)
    return {re.sub(r"[-_.]+", "-", name).lower() for name in names}


def make_bill(packages: Iterable[Package], required: Iterable[str]) -> dict[str, Any]:
    """Return the document. A package that only an extra of the project needs has the scope `optional`."""
    by_name = {package.name: package for package in packages}
    needed = _find_needed(by_name, required)
    project = {"type": "application", "bom-ref": PROJECT, "name": PROJECT, "version": __version__}
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"lifecycles": [{"phase": "pre-build"}], "component": project},
        "components": [_describe(package, is_needed=name in needed) for name, package in sorted(by_name.items())],
        "dependencies": list(_list_dependencies(by_name)),
    }


def _find_needed(by_name: Mapping[str, Package], required: Iterable[str]) -> set[str]:
    """Return the required packages and all that they need."""
    needed, waiting = set[str](), set(required)
    while waiting:
        needed |= waiting
        waiting = {name for name, each in by_name.items() if not needed.isdisjoint(each.dependents)} - needed
    return needed


def _describe(package: Package, *, is_needed: bool) -> dict[str, Any]:
    component: dict[str, Any] = {
        "type": "library",
        "bom-ref": package.purl,
        "name": package.name,
        "version": package.version,
        "scope": "required" if is_needed else "optional",
        "hashes": [{"alg": "SHA-256", "content": digest} for digest in sorted(package.hashes)],
        "purl": package.purl,
    }
    if licences := list(_find_licences(package.name)):
        component["licenses"] = licences
    if package.marker:
        component["properties"] = [{"name": f"{PROJECT}:environment_marker", "value": package.marker}]
    return component


def _find_licences(name: str) -> Iterator[dict[str, Any]]:
    """Yield the SPDX expression of an installed package, or else the names of its licences."""
    with suppress(importlib.metadata.PackageNotFoundError):
        metadata = importlib.metadata.metadata(name)
        expressions = metadata.get_all("License-Expression", [])
        yield from ({"expression": each} for each in expressions)
        for classifier in [] if expressions else metadata.get_all("Classifier", []):
            if classifier.startswith("License :: "):
                yield {"license": {"name": classifier.rpartition(" :: ")[2]}}


def _list_dependencies(by_name: Mapping[str, Package]) -> Iterator[dict[str, Any]]:
    for name, reference in [(PROJECT, PROJECT), *((name, by_name[name].purl) for name in sorted(by_name))]:
        yield {
            "ref": reference,
            "dependsOn": sorted(each.purl for each in by_name.values() if name in each.dependents),
        }


def write_bill(file: Path) -> None:
    bill = make_bill(read_lock((ROOT / "requirements.lock").read_text()), read_required())
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(bill, indent=2) + "\n")


if __name__ == "__main__":
    try:
        write_bill(Path(sys.argv[1]))
    except (BadLock, OSError) as error:
        sys.exit(f"scripts/sbom: {error}")
    sys.stdout.write(f"{sys.argv[1]}\n")
