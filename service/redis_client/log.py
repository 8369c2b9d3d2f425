"""The logger for outages and connections: `service.store`, or `token_service_gateway.store` in the gateway library."""

from __future__ import annotations

import logging
from typing import Final

log: Final = logging.getLogger(f"{__name__.partition('.')[0]}.store")
