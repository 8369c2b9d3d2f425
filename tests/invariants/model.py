"""The design's rules of sessions in plain Python: no Redis, no tokens, one clock that moves by whole ticks.

Lifetimes end at least 20 seconds before or after a tick, so that the duration of a test decides nothing. Their last two
digits differ, so that no two entries of an index end at the same time.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

TICK_SECONDS = 100
BESIDE_SECONDS = 50
CODE_SECONDS = 6_150
REMEMBERED_SECONDS = CODE_SECONDS
GRACE_SECONDS = 3_050
CONSENT_SECONDS = 18_050
REMEMBERED_END_SECONDS = 86_400
SESSIONS_PER_USER = 2
MAX_LOOK_AHEAD_SECONDS = 86_400
BROWSER_SECONDS = (12_050, 36_050, 900_050)
NO_SID = "-"
"""In records of a login at an identity provider that gave no session id. Those of realm `main` have an empty text."""


class Lifetimes(NamedTuple):
    """The lifetimes that a client has at a time, in seconds."""

    access_token_ttl: int
    refresh_token_ttl: int
    session_max_age: int


LIFETIMES = Lifetimes(6_050, 864_050, 2_592_060)
CHOICES_OF_LIFETIMES = (
    LIFETIMES,
    Lifetimes(650, 864_050, 9_075),
    Lifetimes(700_070, 864_050, 2_592_060),
    Lifetimes(200_020, 3_640, 400_030),
)


@dataclass
class AccessToken:
    expires: float


@dataclass
class Family:
    user: str
    client_id: str
    sid: str
    created: float
    expires: float
    access_until: float = 0
    indexed: float = 0
    head: int = 1
    spent: dict[int, float] = field(default_factory=dict)
    access: dict[int, AccessToken] = field(default_factory=dict)

    @property
    def lives_until(self) -> float:
        """The end of the family and of its last access token, which may be later if lifetimes were shortened."""
        return max(self.expires, self.access_until)

    @property
    def ends(self) -> list[float]:
        return [self.expires, self.lives_until, *(token.expires for token in self.access.values())]


@dataclass
class Code:
    user: str
    client_id: str
    sid: str
    expires: float
    created: float
    redeemed_for: int | None = None
    remembered_until: float = 0


@dataclass
class BrowserSession:
    user: str
    sid: str
    expires: float
    created: float


@dataclass
class Consent:
    """A consent. Its number is also that of its code."""

    user: str
    client_id: str
    sid: str
    browser: int
    expires: float
    created: float
    answer: str = ""


@dataclass
class Ended:
    """A family that ended early: the reason, the generation of its head, and the replayed generation."""

    reason: str
    head: int
    forgotten: float
    presented: int | None = None


@dataclass
class Model:
    """Families, codes, access tokens, browser sessions and consents by numbers; what is not here is dead.

    `ended` is what is remembered of families for a day, and `over` the expired families that the index still names.
    `lifetimes` has those of each client. `marks` has the time of the latest revokeAll of a user, and of the latest end
    of each login at a provider.
    """

    now: float = 0
    families: dict[int, Family] = field(default_factory=dict)
    codes: dict[int, Code] = field(default_factory=dict)
    browsers: dict[int, BrowserSession] = field(default_factory=dict)
    consents: dict[int, Consent] = field(default_factory=dict)
    ended: dict[int, Ended] = field(default_factory=dict)
    over: dict[int, Family] = field(default_factory=dict)
    marks: dict[tuple[str, str], float] = field(default_factory=dict)
    lifetimes: dict[str, Lifetimes] = field(default_factory=dict)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for number, family in list(self.families.items()):
            family.access = {name: token for name, token in family.access.items() if token.expires > self.now}
            if family.lives_until <= self.now:
                self.over[number] = self.families.pop(number)
        self.over = {number: each for number, each in self.over.items() if each.indexed > self.now}
        for number, code in list(self.codes.items()):
            ends = code.expires if code.redeemed_for is None else code.remembered_until
            if ends <= self.now:
                del self.codes[number]
        self.browsers = {number: each for number, each in self.browsers.items() if each.expires > self.now}
        self.consents = {number: each for number, each in self.consents.items() if each.expires > self.now}
        self.ended = {number: each for number, each in self.ended.items() if each.forgotten >= self.now}

    def sign_in(self, number: int, user: str, sid: str, seconds: float) -> None:
        self.browsers[number] = BrowserSession(user, sid, self.now + seconds, self.now)

    def sign_out(self, number: int) -> None:
        self.browsers.pop(number, None)

    def hold(self, number: int, browser: int, client_id: str) -> bool:
        session = self.browsers.get(browser)
        if session is None:
            return False
        expires = min(self.now + CONSENT_SECONDS, session.expires)
        self.consents[number] = Consent(session.user, client_id, session.sid, browser, expires, self.now)
        return True

    def allow(self, number: int, browser: int) -> str:
        consent = self.consents.get(number)
        if consent is None:
            return "unknown"
        if browser != consent.browser or browser not in self.browsers:
            return "signed_out"
        code = self.codes.get(number)
        if consent.answer == "allowed" and code is not None and code.redeemed_for is None:
            return "repeated"
        if consent.answer:
            return "answered"
        consent.answer = "allowed"
        self.issue_code(number, consent.user, consent.client_id, consent.sid)
        return "issued"

    def deny(self, number: int, browser: int) -> str:
        consent = self.consents.get(number)
        if consent is None:
            return "unknown"
        if browser != consent.browser or browser not in self.browsers:
            return "signed_out"
        if consent.answer:
            return "repeated" if consent.answer == "denied" else "answered"
        consent.answer = "denied"
        return "denied"

    def survives(self, user: str, sid: str, begun: float) -> bool:
        """Return True if no mark was set since the login began."""
        return all(begun > self.marks.get((user, each), begun - 1) for each in ("", sid))

    def start(self, number: int, access: int, user: str, client_id: str, sid: str) -> None:
        ends = self.now + min(self.lifetimes[client_id].refresh_token_ttl, self.lifetimes[client_id].session_max_age)
        self.families[number] = Family(user, client_id, sid, self.now, ends)
        self._add_access(self.families[number], access)
        named = {**self.families, **self.over}
        others = [each for each, family in named.items() if family.user == user and each != number]
        others.sort(key=lambda each: named[each].indexed)
        for other in others[: len(others) + 1 - SESSIONS_PER_USER]:
            if self.over.pop(other, None) is None:
                self._end(other, "session_displaced")

    def issue_code(self, number: int, user: str, client_id: str, sid: str) -> None:
        self.codes[number] = Code(user, client_id, sid, self.now + CODE_SECONDS, self.now)

    def redeem(self, number: int, family: int, access: int) -> str:
        code = self.codes.get(number)
        if code is None:
            return "unknown"
        if code.redeemed_for is not None:
            return "repeated"
        code.redeemed_for, code.remembered_until = family, self.now + REMEMBERED_SECONDS
        self.start(family, access, code.user, code.client_id, code.sid)
        return "redeemed"

    def spend(self, number: int, access: int, generation: int, client_id: str) -> str:
        family = self.families.get(number)
        if family is None:
            return "unknown"
        if family.client_id != client_id:
            return "foreign"
        if family.expires <= self.now:
            return "unknown"
        lifetimes = self.lifetimes[client_id]
        latest = family.created + lifetimes.session_max_age
        family.expires = min(family.expires, latest)
        if family.expires <= self.now:
            self._end(number, "too_old")
            return "unknown"
        if generation < family.head:
            if self.now - family.spent[generation] >= GRACE_SECONDS:
                self._end(number, "replayed", generation)
                return "replayed"
            self._add_access(family, access)
            return "repeated"
        verdict = "rotated" if generation == family.head else "recovered"
        family.spent |= dict.fromkeys(range(family.head, generation + 1), self.now)
        family.head = generation + 1
        family.expires = min(self.now + lifetimes.refresh_token_ttl, latest)
        self._add_access(family, access)
        return verdict

    def end(self, number: int, client_id: str) -> bool:
        family = self.families.get(number)
        if family is None or family.client_id != client_id:
            return False
        self._end(number, "revoked")
        return True

    def revoke_access(self, access: int, client_id: str) -> bool:
        for family in self.families.values():
            if access in family.access and family.client_id == client_id:
                del family.access[access]
                return True
        return False

    def revoke_all(self, user: str, until: float | None = None, sid: str = "") -> None:
        """Revoke what the user has, what was issued up to a time, or what came from one login at a provider."""
        last = self.now if until is None else until
        for each in (sid, NO_SID) if sid else ("",):
            marked = last if until is None else last + BESIDE_SECONDS
            self.marks[user, each] = max(marked, self.marks.get((user, each), marked))

        def is_covered(each: Family | Code | BrowserSession | Consent) -> bool:
            return each.user == user and each.created <= last and (not sid or each.sid in (sid, NO_SID))

        self.over = {number: family for number, family in self.over.items() if family.user != user}
        for number in [number for number, family in self.families.items() if is_covered(family)]:
            self._end(number, "provider_logout" if sid else "revoke_all")
        self.codes = {
            number: code for number, code in self.codes.items() if not is_covered(code) or code.redeemed_for is not None
        }
        self.browsers = {number: session for number, session in self.browsers.items() if not is_covered(session)}
        self.consents = {number: consent for number, consent in self.consents.items() if not is_covered(consent)}

    @property
    def live_access(self) -> set[int]:
        return {name for family in self.families.values() for name in family.access}

    @property
    def heads(self) -> dict[int, int]:
        return {number: family.head for number, family in self.families.items()}

    def _end(self, number: int, reason: str, presented: int | None = None) -> None:
        family = self.families.pop(number)
        self.ended[number] = Ended(reason, family.head, self.now + REMEMBERED_END_SECONDS, presented)

    def _add_access(self, family: Family, access: int) -> None:
        lifetimes = self.lifetimes[family.client_id]
        ends = min(self.now + lifetimes.access_token_ttl, family.expires)
        family.access[access] = AccessToken(ends)
        family.access_until = max(family.access_until, ends)
        longest = family.lives_until + min(MAX_LOOK_AHEAD_SECONDS, lifetimes.refresh_token_ttl // 10)
        if not family.lives_until <= family.indexed <= longest:
            family.indexed = longest
