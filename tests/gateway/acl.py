"""The Redis user of a gateway."""

from __future__ import annotations

from tests.support.servers import CHECKOUT

ACL_FILE = CHECKOUT / "examples" / "redis-gateway.acl"
