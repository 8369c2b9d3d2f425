"""The packages that the lock of the service names for this machine."""

import re

from packaging.requirements import Requirement

from tests.support.servers import CHECKOUT


def list_locked() -> list[str]:
    """Return the packages that scripts/install installs on this machine."""
    lines = re.findall(r"^([a-z0-9.-]+==[^\\\n]+)", (CHECKOUT / "requirements.lock").read_text(), re.MULTILINE)
    locked = [Requirement(line.strip()) for line in lines]
    return [each.name for each in locked if each.marker is None or each.marker.evaluate()]
