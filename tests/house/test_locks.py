"""The lock files are complete, and tell nothing of the machine that they were made on."""

import re
import tomllib
from itertools import pairwise
from pathlib import Path

from packaging.requirements import Requirement

CHECKOUT = Path(__file__).resolve().parent.parent.parent
NESTED = ("requirements.lock", "requirements-example.lock", "requirements-test.lock", "requirements-dev.lock")
"""Each of these locks contains the one before it."""
LOCKS = (*NESTED, "benchmarks/peers/authlib_flask/requirements.lock")

Pins = dict[str, set[str]]


def read_pins(lock: str) -> Pins:
    """Every locked requirement, marker included, with its hashes."""
    text = (CHECKOUT / lock).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {line.partition("--hash")[0].strip(): set(re.findall(r"--hash=(\S+)", line)) for line in lines}


def test_every_package_is_pinned_and_hashed_without_an_address() -> None:
    for lock in LOCKS:
        text = (CHECKOUT / lock).read_text()
        assert not re.search(r"://|(^|\s)/|^\s*--(index|extra-index|find-links|trusted)", text, re.MULTILINE)
        pins = read_pins(lock)
        assert pins
        for requirement, hashes in pins.items():
            assert re.match(r"[a-z0-9.-]+==\S+", requirement)
            assert hashes
            assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes)


def read_hashes_by_version(lock: str) -> dict[str, set[str]]:
    """Return the hashes of each pin. Markers are left out, since a larger lock needs a package on more platforms."""
    return {requirement.partition(" ;")[0]: hashes for requirement, hashes in read_pins(lock).items()}


def test_a_lock_has_the_pins_of_the_smaller_one() -> None:
    """The tests run on the versions that the service runs on. scripts/install relies on the order, too."""
    for smaller, larger in pairwise(NESTED):
        assert read_hashes_by_version(smaller).items() <= read_hashes_by_version(larger).items()


def test_lock_file_has_all_requirements_of_its_group() -> None:
    """A change of pyproject.toml without ./scripts/lock fails here."""
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())
    required = [*project["project"]["dependencies"], *project["project"]["optional-dependencies"]["embedded"]]
    groups = project["dependency-groups"]
    for lock, group in zip(NESTED, (None, "example", "test", "dev"), strict=True):
        required += [line for line in groups[group] if isinstance(line, str)] if group else []
        versions = dict(pin.partition(" ;")[0].split("==") for pin in read_pins(lock))
        for requirement in map(Requirement, required):
            assert requirement.specifier.contains(versions[requirement.name.lower()]), (lock, requirement)
