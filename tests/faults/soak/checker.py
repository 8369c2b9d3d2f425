"""Reads a history and proves the invariants over it, or names the requests that break an invariant.

It knows only the history and the promises. A request without an answer, or with 503, may have run, then or later. It
therefore excuses what it may explain, and proves nothing. Undecided checks are counted.

    I1   a code has one winner, and nothing that is given out is given out twice
    I2   a family has one head: one token for each generation, and generations only go on when one is presented
    I7   nothing is live after its revocation was answered
    I8   only documented answers, in time, with the right name in them
    I10  no session dies without a reason
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple

from tests.faults.soak.history import NO_ANSWER, UNKNOWN_OUTCOMES, Call, Fault, History

Durability = Literal["memory", "replica", "disk"]
Rule = Literal["I1", "I2", "I7", "I8", "I10"]

DOCUMENTED: Final[dict[str, frozenset[tuple[int, str]]]] = {
    "login": frozenset({(200, "")}),
    "exchange": frozenset({(200, ""), (400, "invalid_grant")}),
    "refresh": frozenset({(200, ""), (400, "invalid_grant")}),
    "revoke": frozenset({(200, "")}),
    "revoke_all": frozenset({(200, ""), (401, "invalid_token")}),
    "verify": frozenset({(200, ""), (401, "invalid_token")}),
    "introspect": frozenset({(200, "")}),
}
ENDED_BY_OWNER: Final = ("revoke", "revoke_all")
PAGE_STATUSES: Final = (200, 302, 303, 400, 403, 429)
WAITS_FOR_REPLICA: Final = ("exchange", "revoke", "revoke_all")

GAVE_UP: Final = ("ConnectTimeout", "ReadTimeout", "WriteTimeout", "PoolTimeout")
"""The errors of a request that its sender gave up. Only its time is judged."""
HASHING_SECONDS: Final = 6.0
"""The time that the check of a password may wait if many users log in at once after an outage."""
LONG_STALL_SECONDS: Final = 0.3
MAX_ACCESS_TOKENS: Final = 100


@dataclass(frozen=True, kw_only=True)
class Promise:
    """The promises of the service under test: its settings and its speed.

    `latest_seconds` is the longest time of an answer. `back_seconds` is how long after a fault 503 may still come.
    Without them no time is judged. A request must be answered in the end, and service must return.
    """

    durability: Durability = "memory"
    grace_seconds: float = 300
    code_seconds: float = 60
    latest_seconds: float | None = None
    back_seconds: float | None = None


class Violation(NamedTuple):
    rule: Rule
    what: str
    calls: tuple[Call, ...]

    def __str__(self) -> str:
        return "\n    ".join((f"{self.rule}: {self.what}", *map(str, self.calls)))


@dataclass
class Verdict:
    """`unchecked` counts, by reason, what the promise does not cover.

    `revocations` counts the answered revocations by the client or the user; `undone` has those after which a token
    was live. `lost` counts, by reason, the refused sessions that nobody had ended or misused.
    """

    violations: list[Violation] = field(default_factory=list)
    unchecked: Counter[str] = field(default_factory=Counter)
    revocations: int = 0
    undone: set[Call] = field(default_factory=set)
    lost: Counter[str] = field(default_factory=Counter)


class Generation(NamedTuple):
    """The contents of a refresh token, which need the service's key."""

    family: str
    number: int


class _Ending(NamedTuple):
    """A call that ended something, surely (from its answer on) or perhaps (from its start on)."""

    call: Call
    is_sure: bool


@dataclass
class _Family:
    """A grant. `birth` gave its first tokens. At `since` the records that it needs were surely there."""

    birth: Call
    code: Call | None
    refreshes: list[tuple[int, Call]] = field(default_factory=list)
    endings: list[_Ending] = field(default_factory=list)
    access_tokens: int = 1

    @property
    def since(self) -> float:
        return self.birth.ended if self.code is None else self.code.ended


def check_history(history: History, promise: Promise, read_generation: Callable[[str], Generation | None]) -> Verdict:
    """`read_generation` reads a refresh token, and gives None for what is none."""
    return _Checker(history, promise, read_generation).check()


class _Checker:
    def __init__(self, history: History, promise: Promise, read_generation: Callable[[str], Generation | None]) -> None:
        self._history = history
        self._promise = promise
        self._read = read_generation
        self._verdict = Verdict()
        self._families: dict[str, _Family] = {}
        self._access: dict[str, tuple[Call, str]] = {}
        self._codes: dict[str, Call] = {}
        self._exchanges: dict[str, list[Call]] = defaultdict(list)
        self._by_kind: dict[str, list[Call]] = defaultdict(list)

    def check(self) -> Verdict:
        for call in sorted(self._history.calls, key=lambda call: call.started):
            self._by_kind[call.kind].append(call)
            if call.kind != "code":  # the page's code has a call of its own
                self._check_answer(call)
            self._note_gifts(call)
        self._note_refreshes()
        self._note_endings()
        self._check_codes()
        for digest, family in self._families.items():
            self._check_head(digest, family)
            self._check_end_of(family)
            self._note_loss(family)
        for call in self._history.calls:
            self._check_presented(call)
        for call in self._history.unanswered:
            self._accuse("I8", "503 or no answer again and again, after the last fault", call)
        return self._verdict

    def _accuse(self, rule: Rule, what: str, *calls: Call) -> None:
        self._verdict.violations.append(Violation(rule, what, calls))

    # I8: what may be answered, and how fast

    def _check_answer(self, call: Call) -> None:
        self._check_speed(call)
        if call.status == NO_ANSWER:
            if call.trouble not in GAVE_UP and not self._history.is_hit(call):
                self._accuse("I8", "a connection lost, and nothing had happened to that instance", call)
            return
        if call.status == 503:
            self._check_refusal(call)
        elif call.kind == "page":
            if call.status not in PAGE_STATUSES:
                self._accuse("I8", "a page with a status that pages do not have", call)
        elif (call.status, call.error) not in DOCUMENTED[call.kind]:
            self._accuse("I8", "an answer that is not documented for this request", call)

    def _check_speed(self, call: Call) -> None:
        if self._promise.latest_seconds is None:
            if call.trouble in GAVE_UP and not self._history.is_hit(call):
                self._accuse("I8", "no answer at all", call)
            return
        took = call.ended - call.started - self._history.stalled_seconds(call.started, call.ended)
        most = self._promise.latest_seconds + (HASHING_SECONDS if call.kind in ("login", "page") else 0)
        if took > most and not self._history.is_hit(call):
            self._accuse("I8", f"no answer within {took:.2f} s, or only then; {most} s are promised", call)

    def _check_refusal(self, call: Call) -> None:
        if not call.has_retry_after or (call.kind != "page" and call.error != "temporarily_unavailable"):
            self._accuse("I8", "a 503 that does not say when to come again, or not why", call)
        if self._promise.back_seconds is None:
            return
        if call.kind == "login" and self._is_overtaken(call):
            return
        since = call.started - self._promise.back_seconds
        if any(fault.overlaps(since, call.ended) for fault in self._history.faults):
            return
        if self._history.stalled_seconds(since, call.ended) < LONG_STALL_SECONDS:
            self._accuse("I8", "503 while nothing was wrong", call)

    def _is_overtaken(self, login: Call) -> bool:
        """Return True if a revokeAll of the same user may have run during the login, which is void then."""
        return any(
            other.kind == "revoke_all"
            and other.user == login.user
            and other.status in (200, *UNKNOWN_OUTCOMES)
            and other.started <= login.ended
            and self._history.may_act_until(other) >= login.started
            for other in self._history.calls
        )

    # Issued tokens and codes

    def _note_gifts(self, call: Call) -> None:
        if call.code:
            self._codes.setdefault(call.code, call)
        if call.kind == "exchange":
            self._exchanges[call.sent].append(call)
        if call.status != 200 or call.kind not in ("login", "exchange", "refresh"):
            return
        given = self._read(call.refresh_token)
        if given is None:
            self._accuse("I8", "a refresh token that the service cannot have signed", call)
            return
        if call.access_token in self._access:
            self._accuse("I1", "one access token given twice", self._access[call.access_token][0], call)
        self._access[call.access_token] = (call, given.family)
        if call.kind == "refresh":
            return
        if given.family in self._families:
            self._accuse("I1", "one session given twice", self._families[given.family].birth, call)
        elif given.number != 1:
            self._accuse("I2", "a session that does not begin with its first generation", call)
        self._families.setdefault(given.family, _Family(call, self._codes.get(call.sent)))

    def _note_refreshes(self) -> None:
        for call in self._by_kind["refresh"]:
            presented = self._read(call.sent)
            family = self._families.get(presented.family) if presented else None
            if presented is None or family is None:
                continue
            if call.client_id != family.birth.client_id:
                if call.status == 200:
                    self._accuse("I8", "tokens for a client whose session it is not", family.birth, call)
                continue
            family.refreshes.append((presented.number, call))
            family.access_tokens += call.status == 200

    # Ends of sessions

    def _note_endings(self) -> None:
        by_user: dict[str, list[_Family]] = defaultdict(list)
        for family in self._families.values():
            by_user[family.birth.user].append(family)
            family.endings += self._second_exchanges(family)
            family.endings += self._late_replays(family)
        for call in self._by_kind["revoke"]:
            presented = self._read(call.sent)
            revoked = self._families.get(presented.family) if presented else None
            gift = revoked.birth if revoked else self._access.get(call.sent, (None,))[0]
            if gift is None or call.client_id != gift.client_id:
                continue
            self._verdict.revocations += call.status == 200
            if revoked is not None:
                revoked.endings.append(_Ending(call, call.status == 200))
        for call in self._by_kind["revoke_all"]:
            self._verdict.revocations += call.status == 200
            for family in by_user[call.user]:
                family.endings += _find_ending_by_revoke_all(call, family.since, family.birth.started)

    def _second_exchanges(self, family: _Family) -> Iterator[_Ending]:
        """Yield the second exchanges of the code, each of which ends what the first exchange gave."""
        for call in self._exchanges[family.birth.sent] if family.birth.kind == "exchange" else ():
            if call is family.birth or call.client_id != family.birth.client_id:
                continue
            if call.status in UNKNOWN_OUTCOMES or call.error == "invalid_grant":
                yield _Ending(call, call.error == "invalid_grant")

    def _late_replays(self, family: _Family) -> Iterator[_Ending]:
        """A generation is spent between the first time that it was presented and the first answer that went beyond."""
        grace = self._promise.grace_seconds
        for number, call in family.refreshes:
            presented = min(other.started for each, other in family.refreshes if each >= number)
            if self._history.may_act_until(call) - presented < grace:
                continue
            spent = min((at for given, at in self._answers(family) if given > number), default=None)
            is_late = spent is not None and call.started - spent > grace
            if is_late and call.status == 200 and not self._history.failovers:
                self._accuse("I2", "a replay after the grace that was answered with tokens", call)
            yield _Ending(call, is_late and call.error == "invalid_grant")

    def _answers(self, family: _Family) -> Iterator[tuple[int, float]]:
        """Yield each issued generation and its time."""
        for _, call in family.refreshes:
            given = self._read(call.refresh_token) if call.status == 200 else None
            if given is not None:
                yield given.number, call.ended

    # I1

    def _check_codes(self) -> None:
        for text, calls in self._exchanges.items():
            code = self._codes.get(text)
            winners = [call for call in calls if call.status == 200]
            for call in winners:
                if code is not None and call.client_id != code.client_id:
                    self._accuse("I8", "tokens for a code of another client", code, call)
            if len(winners) > 1:
                if self._may_be_lost(winners[0]):
                    self._verdict.unchecked["I1: the first exchange of a code fell into a failover"] += 1
                else:
                    self._accuse("I1", "one code exchanged more than once", *winners)

    # I2

    def _check_head(self, digest: str, family: _Family) -> None:
        texts: dict[int, Call] = {1: family.birth}
        answers: list[tuple[int, Call]] = []
        for number, call in family.refreshes:
            given = self._read(call.refresh_token) if call.status == 200 else None
            if given is None:
                continue
            if given.family != digest:
                self._accuse("I2", "a refresh that leads into another session", family.birth, call)
                continue
            same = texts.setdefault(given.number, call)
            if same.refresh_token != call.refresh_token:
                self._accuse("I2", "two tokens of one generation", same, call)
            if given.number <= number:
                self._accuse("I2", "a refresh that does not lead on", call)
            answers.append((given.number, call))
        self._check_growth(family, answers)

    def _check_growth(self, family: _Family, answers: Sequence[tuple[int, Call]]) -> None:
        """The head is one number: it grows, by one, and only where its token was presented."""
        by_end = sorted(answers, key=lambda answer: answer[1].ended)
        highest: tuple[int, Call] | None = None
        position = 0
        for number, call in answers:
            while position < len(by_end) and by_end[position][1].ended <= call.started:
                if highest is None or by_end[position][0] > highest[0]:
                    highest = by_end[position]
                position += 1
            if highest is not None and number < highest[0] and not self._failed_over(highest[1], call):
                self._accuse("I2", f"head {number} after head {highest[0]} was answered", highest[1], call)
            reached = max(each for each, other in family.refreshes if other.started <= call.ended)
            if number > reached + 1:
                self._accuse("I2", f"head {number}, and nobody presented {number - 1}", call)

    def _failed_over(self, first: Call, second: Call) -> bool:
        """Return True if writes of the first call may have been lost before the second."""
        return any(fault.started <= second.ended and first.started <= fault.ended for fault in self._history.failovers)

    # I7 and I10: what was presented, and what was answered

    def _check_presented(self, call: Call) -> None:
        if call.kind == "exchange":
            self._check_exchange(call)
            return
        presented = self._read(call.sent)
        if presented is not None:
            family = self._families.get(presented.family)
            if family is not None and call.kind in ("refresh", "introspect"):
                self._check_refresh_token(call, presented.number, family)
        elif call.sent in self._access and call.kind in ("verify", "introspect", "revoke_all"):
            self._check_access_token(call, *self._access[call.sent])

    def _check_exchange(self, call: Call) -> None:
        code = self._codes.get(call.sent)
        if code is None or call.client_id != code.client_id:
            return
        endings = [
            ending
            for revocation in self._by_kind["revoke_all"]
            if revocation.user == code.user
            for ending in _find_ending_by_revoke_all(revocation, code.ended, code.started)
        ]
        if call.status == 200:
            self._check_alive(call, endings)
            return
        if call.error != "invalid_grant" or call.ended - code.started >= self._promise.code_seconds:
            return
        others = [other for other in self._exchanges[call.sent] if other is not call]
        tried = any(other.client_id == call.client_id and other.started <= call.ended for other in others)
        if not tried and not self._is_explained(call, endings, code):
            self._accuse("I10", "a code that nobody had exchanged was refused", code, call)

    def _check_refresh_token(self, call: Call, number: int, family: _Family) -> None:
        is_foreign = call.kind == "refresh" and call.client_id != family.birth.client_id
        if is_foreign or call.status in UNKNOWN_OUTCOMES:
            return
        if call.kind == "refresh":
            if call.status == 200:
                self._check_alive(call, family.endings)
            elif call.error == "invalid_grant" and not self._is_explained(call, family.endings, family.birth):
                self._accuse("I10", "a session that nobody ended was refused", family.birth, call)
            return
        if call.named:
            self._check_name(call, family.birth)
            self._check_alive(call, family.endings)
            later = [each for each in family.refreshes if each[1].status == 200 and each[1].ended <= call.started]
            for _, other in later:
                given = self._read(other.refresh_token)
                if given is not None and given.number > number and not self._failed_over(other, call):
                    self._accuse("I2", "a spent generation taken for the head", other, call)
                    return
            return
        is_head = all(each < number or other.started > call.ended for each, other in family.refreshes)
        if is_head and not self._is_explained(call, family.endings, family.birth):
            self._accuse("I10", "the head of a session that nobody ended taken for dead", family.birth, call)

    def _check_access_token(self, call: Call, gift: Call, digest: str) -> None:
        family = self._families.get(digest)
        if family is None or call.status in UNKNOWN_OUTCOMES:
            return
        revoked = [
            _Ending(other, other.status == 200)
            for other in self._by_kind["revoke"]
            if other.sent == call.sent and other.client_id == gift.client_id
        ]
        endings = [*family.endings, *revoked]
        if call.named or (call.kind == "revoke_all" and call.status == 200):
            if call.named:
                self._check_name(call, family.birth)
            self._check_alive(call, endings)
            return
        is_kept = call.ended - gift.started < gift.expires_in and family.access_tokens <= MAX_ACCESS_TOKENS
        if is_kept and not self._is_explained(call, endings, family.birth, gift):
            self._accuse("I10", "an access token that nobody revoked taken for dead", gift, call)

    def _check_name(self, call: Call, birth: Call) -> None:
        if call.named != birth.user:
            self._accuse("I8", f"a token of {birth.user} taken for one of {call.named}", birth, call)

    def _check_alive(self, call: Call, endings: Iterable[_Ending]) -> None:
        for ending in endings:
            if ending.is_sure and ending.call.ended <= call.started and ending.call is not call:
                if ending.call.kind in ENDED_BY_OWNER:
                    self._verdict.undone.add(ending.call)
                if self._may_be_lost(ending.call):
                    self._verdict.unchecked["I7: what ended it fell into a failover"] += 1
                else:
                    self._accuse("I7", "live after its end was answered", ending.call, call)
                    return

    def _is_explained(self, call: Call, endings: Iterable[_Ending], *gifts: Call) -> bool:
        """Return True if the family may have ended before the answer, or a failover lost what it needs."""
        if any(ending.call.started <= call.ended for ending in endings):
            return True
        if any(self._may_be_lost(gift) for gift in gifts):
            self._verdict.unchecked["I10: what it rests on fell into a failover"] += 1
            return True
        return False

    def _check_end_of(self, family: _Family) -> None:
        """Check that after the last fault each session that was not ended was refreshed once more."""
        if not self._history.is_closed or family.endings:
            return
        last = max((fault.ended for fault in self._history.faults), default=family.birth.ended)
        if any(call.status == 200 and call.ended >= last for _, call in family.refreshes):
            return
        if self._may_be_lost(family.birth):
            self._verdict.unchecked["I10: what it rests on fell into a failover"] += 1
        else:
            tries = [call for _, call in family.refreshes[-2:]]
            self._accuse("I10", "a session that nobody ended was not seen alive at the end", family.birth, *tries)

    def _note_loss(self, family: _Family) -> None:
        """Count the session if a refresh was refused, and neither its owner nor a misuse by the load had ended it."""
        refused = next((call for _, call in family.refreshes if call.error == "invalid_grant"), None)
        if refused is None:
            return
        endings = [ending.call for ending in family.endings if ending.call.started <= refused.ended]
        if any(call.kind in ENDED_BY_OWNER or call.sent in self._history.misused for call in endings):
            return
        if failover := self._find_failover(family.birth):
            reason = f"{failover.name} lost the {family.birth.kind} that began it"
        elif any(call.kind == "exchange" for call in endings):
            reason = "its code was sent again after an answer was lost"
        elif endings:
            reason = "its refresh token was sent again after the grace period"
        else:
            reason = "for no reason, which is a violation"
        self._verdict.lost[reason] += 1

    def _may_be_lost(self, call: Call) -> bool:
        """Return True if a failover may have lost the result, which the durability did not promise to keep."""
        return self._find_failover(call) is not None

    def _find_failover(self, call: Call) -> Fault | None:
        """Return the failover that may have lost the result, or None."""
        if self._promise.durability == "replica" and call.kind in WAITS_FOR_REPLICA and call.status == 200:
            return None
        concerning = (each for each in self._history.failovers if each.users is None or call.user in each.users)
        return next((fault for fault in concerning if fault.overlaps(call.started, call.ended)), None)


def _find_ending_by_revoke_all(call: Call, since: float, born: float) -> Iterator[_Ending]:
    """Covered is what was there before; what began after the answer is another session.

    `since` is when it was surely there, `born` the earliest that it can have been made.
    """
    if call.status == 200 and call.ended > born:
        yield _Ending(call, since <= call.started)
    elif call.status in UNKNOWN_OUTCOMES:
        yield _Ending(call, is_sure=False)
