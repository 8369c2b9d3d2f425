"""The packages of JavaScript in tests/npm."""

from tests.support.left_out import JAVASCRIPT, leave_out
from tests.support.servers import CHECKOUT

NPM = CHECKOUT / "tests" / "npm"
PACKAGES = NPM / "node_modules"


def check_javascript() -> None:
    """Leave the test out unless the locked packages are installed. scripts/install copies the lock when they are."""
    lock, copy = NPM / "package-lock.json", PACKAGES / "package-lock.json"
    if not copy.exists() or copy.read_bytes() != lock.read_bytes():
        leave_out(JAVASCRIPT)
