"""The names under which the service keeps values in the ASGI scope of a request.

Three context variables also belong to a request: the time budget for Redis in redis_client/deadline.py, the audit
stream in observability/audit.py, and the trace id in observability/logs.py.
"""

from __future__ import annotations

from typing import Final

REASON: Final = "token_service.reason"
"""The fixed word of a refusal, for the access log and the metrics."""

EVENT: Final = "token_service.event"
"""The last security event of the request with its fields, which the line of the request carries."""

GRANT: Final = "token_service.grant"
"""The grant type of a token request, if the service supports it, for the metrics."""

CLIENT_ID: Final = "token_service.client_id"
"""The registered client that a request names, for the security events and the metrics. Empty if there is none."""

HEADERS: Final = "token_service.headers"
"""What `get_headers` returns, once it was called."""

PEER_IS_TRUSTED: Final = "token_service.peer_is_trusted"
"""True if the peer is a trusted proxy, so that the address in the scope is the one that it forwarded."""

WAY_BACK: Final = "token_service.way_back"
"""The name of the client, and the verified address by which a page may lead back to it."""

LANGUAGE: Final = "token_service.language"
"""The tag of the language in which a page answers, once it is chosen."""

BODY_IS_COMPLETE: Final = "token_service.body_is_complete"
"""True if our server has read the whole body, so that reading it needs no time limit."""

ENDING: Final = "token_service.ending"
"""True in the state of each request after the process has begun to shut down."""
