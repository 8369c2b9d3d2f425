"""What a run leaves behind for its checker: every request with its times and its answer, every fault, every stall.

All times are seconds of one monotonic clock (`clock.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["login", "page", "code", "exchange", "refresh", "revoke", "revoke_all", "verify", "introspect"]

WRITES = ("login", "exchange", "refresh", "revoke", "revoke_all")
NO_ANSWER = 0
UNKNOWN_OUTCOMES = (NO_ANSWER, 503)
"""After these a request may have been carried out, or be so still: it can lie before a Redis that hangs."""

LATE_SECONDS = 10.0
"""After the end of a fault it is carried out within so many seconds, or never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One request and what became of it.

    `sent` is the token or code that was presented, `user` whose it is; `client_id` is who asked. `status` is 0 where no
    answer came, and `trouble` then says why. `named` is whom `verify` or `introspect` took the token for, and empty
    where they took it for dead.
    """

    kind: Kind
    user: str
    client_id: str
    instance: int
    started: float
    ended: float
    sent: str = ""
    status: int = NO_ANSWER
    error: str = ""
    trouble: str = ""
    access_token: str = ""
    refresh_token: str = ""
    code: str = ""
    named: str = ""
    expires_in: float = 0
    has_retry_after: bool = False

    def __str__(self) -> str:
        answer = f"{self.status} {self.error}".strip() if self.status else f"no answer ({self.trouble})"
        tokens = [("sent", self.sent), ("refresh token", self.refresh_token), ("access token", self.access_token)]
        said = "".join(f", {name} {text[:30]}…{text[-6:]}" for name, text in tokens if text)
        return (
            f"{self.started:.3f} to {self.ended:.3f}: {self.kind} of {self.user} by {self.client_id} "
            f"at instance {self.instance}: {answer}{said}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """From the moment it was done until everything was whole again.

    `instance` is the instance of the service that it hit: its connections may be lost or hang. `took_over` is set where
    another Redis took a master's place: when that one was there. `users` are those whom the fault touched; None: all.
    """

    name: str
    started: float
    ended: float
    instance: int | None = None
    took_over: float | None = None
    users: frozenset[str] | None = None

    def overlaps(self, started: float, ended: float) -> bool:
        return self.started <= ended and started <= self.ended


@dataclass(frozen=True, slots=True)
class Stall:
    """The machine gave the sender no time: whoever was asked meanwhile had none either."""

    started: float
    ended: float


@dataclass
class History:
    """`is_closed`: after the last fault every session was asked for once more.

    `unanswered`: the last of many tries after that fault, where 503 or no answer came again and again.
    """

    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    unanswered: list[Call] = field(default_factory=list)
    is_closed: bool = False

    def stalled_seconds(self, started: float, ended: float) -> float:
        return sum(max(0.0, min(ended, stall.ended) - max(started, stall.started)) for stall in self.stalls)

    def is_hit(self, call: Call) -> bool:
        """Whether the instance that was asked was itself killed or frozen meanwhile."""
        return any(
            fault.instance == call.instance and fault.overlaps(call.started - 0.1, call.ended) for fault in self.faults
        )

    def may_act_until(self, call: Call) -> float:
        """A request whose outcome is unknown may be carried out when what hung goes on, or starts again."""
        if call.status not in UNKNOWN_OUTCOMES:
            return call.ended
        ends = [fault.ended for fault in self.faults if fault.overlaps(call.started, call.ended)]
        return max(call.ended, *ends) + LATE_SECONDS if ends else call.ended + LATE_SECONDS

    @property
    def failovers(self) -> Sequence[Fault]:
        return [fault for fault in self.faults if fault.took_over is not None]
