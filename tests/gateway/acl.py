"""The Redis user of a gateway."""

from tests.support.servers import CHECKOUT

ACL_FILE = CHECKOUT / "examples" / "redis-gateway.acl"
