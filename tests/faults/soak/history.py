"""The record of a run for its checker: every request with its times and answer, every fault, every stall.

All times are seconds of one monotonic clock (`clock.py`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

Kind = Literal["login", "page", "code", "exchange", "refresh", "revoke", "revoke_all", "verify", "introspect"]

WRITES = ("login", "exchange", "refresh", "revoke", "revoke_all")
NO_ANSWER = 0
UNKNOWN_OUTCOMES = (NO_ANSWER, 503)
"""The statuses after which a request may have run or may still run, since it may wait for a Redis that hangs."""

LATE_SECONDS = 10.0
"""The time after a fault within which a request with an unknown outcome has run, or never will."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A request and its result.

    `sent` is the presented token or code, `user` its user, `client_id` the client. `status` is 0 without an answer, and
    `trouble` then says why. `named` is the user name that `verify` or `introspect` returned, empty for a dead token.
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
    """A fault from its beginning until everything works again.

    `instance` is the hit instance, whose connections may be lost or hang. `took_over` is the time at which another
    Redis replaced a master, if one did. `users` are the users concerned, or None for all.
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
    """A time in which the machine did not run the sender, and maybe no other process either."""

    started: float
    ended: float


@dataclass
class History:
    """`is_closed`: after the last fault every session was asked for once more.

    `unanswered`: the last of many tries after that fault, where 503 or no answer came again and again. `misused`: the
    codes and refresh tokens that the load reused on purpose, which ends their sessions.
    """

    calls: list[Call] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    stalls: list[Stall] = field(default_factory=list)
    unanswered: list[Call] = field(default_factory=list)
    misused: set[str] = field(default_factory=set)
    is_closed: bool = False

    def stalled_seconds(self, started: float, ended: float) -> float:
        return sum(max(0.0, min(ended, stall.ended) - max(started, stall.started)) for stall in self.stalls)

    def is_hit(self, call: Call) -> bool:
        """Return True if the instance of the call was killed or frozen meanwhile."""
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
