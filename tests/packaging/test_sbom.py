"""The software bill of materials: complete, valid and the same each time."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from service import __version__
from tests.packaging.locked import list_locked
from tests.support.servers import CHECKOUT


def write(folder: Path, seed: str = "0") -> str:
    """Run the tool as a process of its own, and return what it writes."""
    file = folder / f"{seed}.json"
    environment = os.environ | {"PYTHONPATH": str(CHECKOUT), "PYTHONHASHSEED": seed}
    command = [sys.executable, "-P", "-m", "tools.sbom", str(file)]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return file.read_text()


@pytest.fixture(scope="module")
def bill(tmp_path_factory: pytest.TempPathFactory) -> Any:
    return json.loads(write(tmp_path_factory.mktemp("sbom")))


@pytest.fixture(scope="module")
def components(bill: Any) -> dict[str, Any]:
    return {component["name"]: component for component in bill["components"]}


@pytest.fixture(scope="module")
def needs(bill: Any) -> dict[str, set[str]]:
    """Return the names of what each package, and the project, needs."""
    names = {component["bom-ref"]: component["name"] for component in bill["components"]}
    names["opaque-token-service"] = "opaque-token-service"
    return {names[entry["ref"]]: {names[other] for other in entry["dependsOn"]} for entry in bill["dependencies"]}


def test_the_schema_of_cyclonedx_accepts_it(bill: Any) -> None:
    validator = JsonStrictValidator(SchemaVersion.V1_6)

    assert validator.validate_str(json.dumps(bill)) is None
    assert validator.validate_str(json.dumps(bill | {"componentz": []})) is not None


def test_it_has_every_locked_package_with_its_hashes(components: dict[str, Any]) -> None:
    text = (CHECKOUT / "requirements.lock").read_text()
    locked = dict(re.findall(r"^([a-z0-9.-]+)==(\S+)", text, re.MULTILINE))

    assert {name: each["version"] for name, each in components.items()} == locked
    assert {each["purl"] for each in components.values()} == {f"pkg:pypi/{name}@{locked[name]}" for name in locked}
    hashes = [each["content"] for component in components.values() for each in component["hashes"]]
    assert sorted(hashes) == sorted(re.findall(r"sha256:(\w+)", text))


def test_each_package_of_this_machine_has_a_licence(components: dict[str, Any]) -> None:
    assert {name for name in list_locked() if "licenses" not in components[name]} == set()
    assert components["starlette"]["licenses"] == [{"expression": "BSD-3-Clause"}]
    assert components["h11"]["licenses"] == [{"license": {"name": "MIT License"}}]


def test_bill_of_materials_lists_project_and_requirements(bill: Any, needs: dict[str, set[str]]) -> None:
    component = bill["metadata"]["component"]
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["embedded"]]

    assert (component["name"], component["version"]) == ("opaque-token-service", __version__)
    assert "purl" not in component, "it is in no index"
    assert needs["opaque-token-service"] == {canonicalize_name(Requirement(each).name) for each in wanted}


def test_sbom_is_reproducible_and_has_no_url(tmp_path: Path) -> None:
    first, second = write(tmp_path, "1"), write(tmp_path, "2")

    assert first == second
    assert "://" not in first
