"""The lock files are complete, and tell nothing of the machine that they were made on."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

CHECKOUT = Path(__file__).resolve().parent.parent.parent
PEERS = CHECKOUT / "benchmarks" / "peers"
LOCKS = ("requirements.lock", "requirements-dev.lock", "benchmarks/peers/authlib_flask/requirements.lock")
JAVASCRIPT = (CHECKOUT / "tests" / "npm", PEERS / "oidc_provider")

Pins = dict[str, set[str]]


def read_pins(lock: str) -> Pins:
    """Every locked requirement, marker included, with its hashes."""
    text = (CHECKOUT / lock).read_text().replace("\\\n", " ")
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    return {line.partition("--hash")[0].strip(): set(re.findall(r"--hash=(\S+)", line)) for line in lines}


def read_javascript_lock(folder: Path) -> Any:
    return json.loads((folder / "package-lock.json").read_text())


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_no_index_and_no_path(lock: str) -> None:
    text = (CHECKOUT / lock).read_text()
    assert "://" not in text
    assert not re.search(r"(^|\s)/", text)
    assert not re.search(r"^\s*--(index|extra-index|find-links|trusted)", text, re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_package_is_pinned_and_hashed(lock: str) -> None:
    pins = read_pins(lock)
    assert pins
    for requirement, hashes in pins.items():
        assert re.match(r"[a-z0-9.-]+==\S+", requirement)
        assert hashes
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", digest) for digest in hashes)


def test_the_tests_run_on_the_versions_that_the_service_runs_on() -> None:
    """scripts/install relies on it: where the second lock is installed the first one is, too."""
    service = {requirement.partition(" ;")[0] for requirement in read_pins("requirements.lock")}
    tests = {requirement.partition(" ;")[0] for requirement in read_pins("requirements-dev.lock")}
    assert service <= tests


@pytest.mark.parametrize("folder", JAVASCRIPT, ids=lambda folder: folder.name)
def test_the_lock_of_javascript_names_no_registry(folder: Path) -> None:
    assert "://" not in (folder / "package-lock.json").read_text()
    assert not any("resolved" in package for package in read_javascript_lock(folder)["packages"].values())


@pytest.mark.parametrize("folder", JAVASCRIPT, ids=lambda folder: folder.name)
def test_every_package_of_javascript_is_pinned_and_hashed(folder: Path) -> None:
    packages = read_javascript_lock(folder)["packages"]
    wanted = packages.pop("")["dependencies"]
    assert wanted == json.loads((folder / "package.json").read_text())["dependencies"]
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted
    assert all(re.fullmatch(r"sha512-[A-Za-z0-9+/]{86}==", package["integrity"]) for package in packages.values())
