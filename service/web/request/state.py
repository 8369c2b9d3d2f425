"""The values that the service keeps in the ASGI scope of a request, each with its type.

All keys are defined here. Three context variables also belong to a request: the time budget for Redis in
redis_client/deadline.py, the audit stream in observability/audit.py, and the trace in observability/traces.py.
"""

from __future__ import annotations

from typing import Any, Final, Generic, TypeVar

Value = TypeVar("Value")


class ScopeKey(Generic[Value]):
    """A key of an ASGI scope, or of its state, and the type of its value.

    Code that runs at every request uses `name` directly, since a method call takes five times as long.
    """

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name: Final = f"token_service.{name}"

    def set(self, scope: Any, value: Value) -> None:
        """Set the value in `scope`, a mapping with string keys."""
        scope[self.name] = value

    def get(self, scope: Any, default: Value) -> Value:
        """Return the value in `scope`, or the default if there is none."""
        value: Value = scope.get(self.name, default)
        return value


REASON: Final[ScopeKey[str]] = ScopeKey("reason")
"""The fixed word of a refusal, for the access log and the metrics."""

GRANT: Final[ScopeKey[str]] = ScopeKey("grant")
"""The grant type of a token request, if the service supports it, for the metrics."""

CLIENT_ID: Final[ScopeKey[str]] = ScopeKey("client_id")
"""The registered client that a request names, for the security events. Empty if there is none."""

PEER_IS_TRUSTED: Final[ScopeKey[bool]] = ScopeKey("peer_is_trusted")
"""True if the peer is a trusted proxy, so that the address in the scope is the one that it forwarded."""

BODY_IS_COMPLETE: Final[ScopeKey[bool]] = ScopeKey("body_is_complete")
"""True if our server has read the whole body, so that reading it needs no time limit."""

HEAD_BYTES: Final[ScopeKey[int]] = ScopeKey("head_bytes")
"""An upper bound of the bytes of the request head, set by our server, so that most heads need no measuring."""

COOKIES: Final[ScopeKey[dict[str, str]]] = ScopeKey("cookies")
"""Our own cookies of a request by their names, so that they are parsed once."""

LANGUAGE: Final[ScopeKey[str]] = ScopeKey("language")
"""The tag of the language in which a page answers, once it is chosen."""

ENDING: Final[ScopeKey[bool]] = ScopeKey("ending")
"""True in the state of each request after the process has begun to shut down."""
