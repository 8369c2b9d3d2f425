"""Random histories of clients, thieves and operators: the store does what a small model in Python does."""

import asyncio
from collections.abc import Callable, Set
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, TypeVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition
from hypothesis.stateful import rule as hypothesis_rule

from tests.conftest import AnyRedis
from tests.invariants import model
from tests.invariants.model import TICK_SECONDS, Model
from tests.invariants.service_under_test import ServiceUnderTest

LAST_OPERATIONS = 15

Choice = TypeVar("Choice")

users = st.sampled_from(["alice", "bob"])
client_ids = st.sampled_from(["phone-app", "phone-app", "phone-app", "web-shop"])
sids = st.sampled_from(["", model.NO_SID, "one", "two"])
choices = st.integers(0, 1_000_000)
short_pauses = st.sampled_from([0, 0, 100, 600, 1_400, 1_500, 2_900, 3_000, 3_100])
long_pauses = st.sampled_from([6_000, 6_100, 6_200, 36_000, 86_400, 861_000, 864_000, 864_100, 2_592_100])


class Violation(AssertionError):
    """The service did something else than the model."""


@dataclass
class Course:
    """The course of several histories: `seed` repeats them. `last_operations` are those of the latest history."""

    seed: str
    histories: int = 0
    operations: int = 0
    violated_after: int | None = None
    last_operations: list[str] = field(default_factory=list)

    def note(self, operation: str) -> None:
        self.operations += 1
        self.last_operations = [*self.last_operations, operation][-LAST_OPERATIONS:]


def rule(**strategies: Any) -> Callable[[Callable[..., None]], Any]:
    """Return Hypothesis's decorator for a rule, which here also notes each call that is not made by another rule."""

    decorator: Any = hypothesis_rule(**strategies)

    def decorate(function: Callable[..., None]) -> Any:
        @wraps(function)
        def operate(self: "Histories", *values: Any, **named: Any) -> None:
            given = [*map(repr, values), *(f"{name}={value!r}" for name, value in named.items())]
            if not self.is_within_rule:
                self.course.note(f"{self.model.now:.0f} s: {function.__name__}({', '.join(given)})")
            outer, self.is_within_rule = self.is_within_rule, True
            function(self, *values, **named)
            self.is_within_rule = outer

        return decorator(operate)

    return decorate


class Histories(RuleBasedStateMachine):
    """Each rule does the same to the model and to the service; after each the two are compared."""

    def __init__(self, server: AnyRedis, loop: asyncio.AbstractEventLoop, course: Course) -> None:
        super().__init__()
        self.server, self.loop, self.course = server, loop, course
        self.is_within_rule = False

    @initialize(lifetimes=st.sampled_from(model.CHOICES_OF_LIFETIMES))
    def begin(self, lifetimes: model.Lifetimes) -> None:
        self.course.histories += 1
        self.course.last_operations = []
        self.model = Model()
        self.service = ServiceUnderTest(self.server, self.loop)
        self.names = 0
        self.generations: dict[int, int] = {}
        self.users: dict[int, str] = {}
        self.browsers: dict[int, int] = {}
        self.clients_of_codes: dict[int, str] = {}
        self.set_lifetimes("phone-app", lifetimes)
        self.log_in("alice", "phone-app", "", 0)

    def teardown(self) -> None:
        if hasattr(self, "service"):
            self.service.close()

    @rule(user=users, client_id=client_ids, sid=sids, seconds=st.sampled_from([0, 0, 100, 600, 3_000]))
    def log_in(self, user: str, client_id: str, sid: str, seconds: float) -> None:
        """Finish a login that began that many seconds ago."""
        family, access = self.name(), self.name()
        self.wait(TICK_SECONDS)  # the order of two logins decides which session ends
        begun = self.model.now - seconds
        survives = self.model.survives(user, sid, begun)
        self.check(survives, self.service.start(family, access, user, client_id, sid, begun))
        if survives:
            self.generations[family] = 1
            self.model.start(family, access, user, client_id, sid)

    @rule(user=users, client_id=client_ids, sid=sids)
    def get_code(self, user: str, client_id: str, sid: str) -> None:
        """Get a code through pages that are used for nothing else."""
        code = self.name()
        self.clients_of_codes[code] = client_id
        self.service.issue_code(code, user, client_id, sid)
        self.model.issue_code(code, user, client_id, sid)

    @rule(user=users, sid=sids, seconds=st.sampled_from(model.BROWSER_SECONDS))
    def sign_in(self, user: str, sid: str, seconds: float) -> None:
        browser = self.name()
        self.users[browser] = user
        self.service.sign_in(browser, user, sid, seconds)
        self.model.sign_in(browser, user, sid, seconds)

    @precondition(lambda self: self.service.browser_names)
    @rule(choice=choices)
    def sign_out(self, choice: int) -> None:
        browser = self.pick(list(self.service.browser_names), choice)
        self.service.sign_out(browser)
        self.model.sign_out(browser)

    @precondition(lambda self: self.service.browser_names)
    @rule(choice=choices, client_id=client_ids)
    def open_page(self, choice: int, client_id: str) -> None:
        browser, consent = self.pick(list(self.service.browser_names), choice), self.name()
        self.browsers[consent], self.clients_of_codes[consent] = browser, client_id
        expected = self.model.hold(consent, browser, client_id)
        self.check(expected, self.service.hold(consent, browser, self.users[browser], client_id))

    @precondition(lambda self: self.service.consents)
    @rule(choice=choices, allows=st.booleans(), times=st.integers(1, 2), seconds=short_pauses)
    def answer_page(self, choice: int, allows: bool, times: int, seconds: float) -> None:
        """Answer any page that was ever opened, once or twice."""
        consent = self.pick(list(self.service.consents), choice)
        for _ in range(times):
            self.answer(consent, self.browsers[consent], allows)
            self.wait(seconds)

    @precondition(lambda self: self.service.consents)
    @rule(choice=choices, other=choices, allows=st.booleans())
    def answer_page_elsewhere(self, choice: int, other: int, allows: bool) -> None:
        """Answer a page in any browser, which need not be the page's."""
        consent = self.pick(list(self.service.consents), choice)
        self.answer(consent, self.pick(list(self.service.browser_names), other), allows)

    @precondition(lambda self: self.model.browsers)
    @rule(choice=choices)
    def end_all_from_page(self, choice: int) -> None:
        browser = self.pick(list(self.model.browsers), choice)
        user = self.model.browsers[browser].user
        self.service.revoke_all(user, kept_browser=browser)
        self.model.revoke_all(user)

    @precondition(lambda self: self.service.code_names)
    @rule(choice=choices)
    def exchange(self, choice: int) -> None:
        """Exchange a code as the endpoint does. A second exchange ends the session of the first."""
        code = self.pick(list(self.service.code_names), choice)
        self.wait(TICK_SECONDS)
        known = self.model.codes.get(code)
        family, access = self.name(), self.name()
        client_id = self.clients_of_codes[code]
        expected = self.model.redeem(code, family, access)
        self.check(expected, self.service.redeem(code, family, access, client_id))
        self.generations[family] = 1
        if expected == "repeated":
            assert known is not None
            assert known.redeemed_for is not None
            ended = self.model.end(known.redeemed_for, known.client_id)
            self.check(ended, self.service.end(known.redeemed_for, known.client_id))

    @precondition(lambda self: self.model.families)
    @rule(choice=choices, times=st.integers(1, 3), seconds=short_pauses)
    def refresh(self, choice: int, times: int, seconds: float) -> None:
        """Refresh with the newest token of the client. A Redis that lost its last writes may be behind it."""
        family = self.pick(list(self.model.families), choice)
        for _ in range(times):
            self.wait(seconds)
            if family in self.model.families:
                self.spend(family, self.generations[family], self.http_client_for(family))

    @precondition(lambda self: self.model.families)
    @rule(choice=choices, back=st.integers(0, 4), seconds=short_pauses, times=st.integers(1, 6))
    def replay(self, choice: int, back: int, seconds: float, times: int) -> None:
        """Replay one of the last tokens of a live family after some time, once or several times."""
        family = self.pick(list(self.model.families), choice)
        self.wait(seconds)
        for _ in range(times):
            self.spend(family, max(1, self.generations[family] - back), self.http_client_for(family))

    @rule(choice=choices, generation=choices)
    def come_late(self, choice: int, generation: int) -> None:
        """Any token that was ever given out, of a family dead or alive."""
        family = self.pick(list(self.generations), choice)
        self.spend(family, 1 + generation % self.generations[family], self.http_client_for(family))

    @precondition(lambda self: self.model.families)
    @rule(choice=choices, generation=choices)
    def steal(self, choice: int, generation: int) -> None:
        """Another client presents it."""
        family = self.pick(list(self.model.families), choice)
        client_id = "web-shop" if self.http_client_for(family) == "phone-app" else "phone-app"
        self.spend(family, 1 + generation % self.generations[family], client_id)

    @precondition(lambda self: self.model.families)
    @rule(choice=choices, seconds=short_pauses, is_newest_first=st.booleans())
    def present_ancestors(self, choice: int, seconds: float, is_newest_first: bool) -> None:
        """Present every earlier token of a family, within the grace or later."""
        family = self.pick(list(self.model.families), choice)
        self.wait(seconds)
        for generation in sorted(range(1, self.generations[family]), reverse=is_newest_first):
            self.spend(family, generation, self.http_client_for(family))

    @precondition(lambda self: self.model.families)
    @rule(choice=choices, lifetimes=st.sampled_from(model.CHOICES_OF_LIFETIMES))
    def change_lifetimes(self, choice: int, lifetimes: model.Lifetimes) -> None:
        """Change the lifetimes of a client, and refresh one of its families."""
        family = self.pick(list(self.model.families), choice)
        client_id = self.model.families[family].client_id
        self.set_lifetimes(client_id, lifetimes)
        self.spend(family, self.generations[family], client_id)

    @rule(seconds=short_pauses | long_pauses)
    def wait(self, seconds: float) -> None:
        self.model.advance(seconds)
        self.service.hold_time(self.model.now)

    @precondition(lambda self: self.model.families)
    @rule(choice=choices, is_over=st.booleans())
    def wait_for_an_end(self, choice: int, is_over: bool) -> None:
        """Wait until shortly before or after the end of a family or an access token."""
        ends = [end for family in self.model.families.values() for end in family.ends]
        ticks = (self.pick(ends, choice) - self.model.now) // TICK_SECONDS
        self.wait(max(0, ticks + is_over) * TICK_SECONDS)

    @precondition(lambda self: self.service.access_names)
    @rule(choice=choices, client_id=client_ids)
    def revoke_access_token(self, choice: int, client_id: str) -> None:
        access = self.pick(list(self.service.access_names), choice)
        expected = self.model.revoke_access(access, client_id)
        self.check(expected, self.service.revoke_access(access, client_id))

    @precondition(lambda self: self.service.family_names)
    @rule(choice=choices, client_id=client_ids)
    def revoke_refresh_token(self, choice: int, client_id: str) -> None:
        family = self.pick(list(self.service.family_names), choice)
        expected = self.model.end(family, client_id)
        self.check(expected, self.service.end(family, client_id))

    @precondition(lambda self: self.model.families)
    @rule(choice=choices, keeps=st.booleans())
    def revoke_all(self, choice: int, keeps: bool) -> None:
        family = self.pick(list(self.model.families), choice)
        user = self.model.families[family].user
        self.service.revoke_all(user, kept_family=family if keeps else None)
        self.model.revoke_all(user)

    @rule(user=users, sid=st.sampled_from(["one", "two"]))
    def end_provider_login(self, user: str, sid: str) -> None:
        self.service.end_provider_login(user, sid)
        self.model.revoke_all(user, sid=sid)

    @rule(user=users, seconds=st.sampled_from([100, 600, 3_000, 36_000]))
    def revoke_until(self, user: str, seconds: float) -> None:
        """Revoke what is older than that many seconds."""
        self.service.revoke_until(user, self.model.now - seconds)
        self.model.revoke_all(user, self.model.now - seconds)

    @rule(choice=choices, times=st.integers(1, 3), seconds=short_pauses, revokes=st.booleans())
    def fail_over(self, choice: int, times: int, seconds: float, revokes: bool) -> None:
        """Redis falls back to a copy: what was done since then is lost, but clients keep the tokens they got."""
        kept, dump = deepcopy(self.model), self.service.dump()
        if self.model.families:
            self.refresh(choice, times, seconds)
        if self.service.consents:
            self.answer_page(choice, allows=True, times=1, seconds=0)
        if self.model.families and revokes:
            self.revoke_all(choice, keeps=False)
        passed = self.model.now - kept.now
        kept.advance(passed)
        self.model = kept
        self.service.restore(dump, passed)

    @precondition(lambda self: self.model.families)
    @rule(
        choice=choices,
        keeps=st.booleans(),
        sid=st.sampled_from(["", "", "", "one"]),
        at=st.sampled_from([1, 1, 2, 3, 3, 4, 4, 6, 0]),
        back=st.sampled_from([0, 0, 1, 2]),
        breaks=st.booleans(),
    )
    def fail_over_in_revoke_all(self, choice: int, keeps: bool, sid: str, at: int, back: int, breaks: bool) -> None:
        """Redis loses the last steps of a revokeAll or of the end of a login. With `breaks` the caller repeats it."""
        user = self.model.families[self.pick(list(self.model.families), choice)].user
        self.get_code(user, "phone-app", sid)
        self.sign_in(user, sid, model.BROWSER_SECONDS[0])
        browser = self.names
        if sid:
            revoke = partial(self.service.end_provider_login, user, sid)
        else:
            revoke = partial(self.service.revoke_all, user, kept_browser=browser if keeps else None)
        steps_kept = self.service.fail_over_during(revoke, at, back, breaks=breaks)
        if steps_kept is not None:
            if not sid and steps_kept:
                self.check_marked(user)
            others = {number for number, family in self.model.families.items() if family.user == user}
            if not sid and keeps and not others.isdisjoint(self.service.heads):
                self.check(True, browser in self.service.browsers)
            revoke()
        self.model.revoke_all(user, sid=sid)

    @invariant()
    def no_time_passes_by_itself(self) -> None:
        self.service.hold_time(self.model.now)

    @invariant()
    def exactly_the_access_tokens_of_the_model_are_live(self) -> None:
        self.check(self.model.live_access, self.service.live_access)

    @invariant()
    def exactly_the_families_of_the_model_are_live_each_with_its_head(self) -> None:
        self.check(self.model.heads, self.service.heads)

    @invariant()
    def exactly_the_browser_sessions_consents_and_codes_of_the_model_are_there(self) -> None:
        self.check(set(self.model.browsers), self.service.browsers)
        self.check({number: consent.answer for number, consent in self.model.consents.items()}, self.service.answers)
        waiting = {number for number, code in self.model.codes.items() if code.redeemed_for is None}
        self.check(waiting, self.service.waiting_codes)

    @invariant()
    def what_ended_is_remembered_as_in_the_model(self) -> None:
        """A day is one of the pauses that tests make: after exactly that it may be there or not."""
        ended = self.model.ended.items()
        may = {number: (each.reason, each.head, each.presented) for number, each in ended}
        must = {number: may[number] for number, each in ended if each.forgotten > self.model.now}
        found = self.service.ended
        self.check(must | {number: end for number, end in may.items() if number in found}, found)

    @invariant()
    def an_index_names_no_family_that_has_ended(self) -> None:
        self.check(set(), self.service.indexed - self.model.families.keys() - self.model.over.keys())

    @invariant()
    def everything_has_an_end(self) -> None:
        self.check([], self.service.immortal)

    def spend(self, family: int, generation: int, client_id: str) -> None:
        access = self.name()
        self.wait(TICK_SECONDS)  # the order of two refreshes decides which session ends
        expected = self.model.spend(family, access, generation, client_id)
        self.check(expected, self.service.spend(family, access, generation, client_id))
        if expected in ("rotated", "recovered"):
            self.generations[family] = max(self.generations[family], generation + 1)

    def set_lifetimes(self, client_id: str, lifetimes: model.Lifetimes) -> None:
        self.service.set_lifetimes(client_id, lifetimes)
        self.model.lifetimes[client_id] = lifetimes

    def answer(self, consent: int, browser: int, allows: bool) -> None:
        if self.users[browser] != self.users[self.browsers[consent]]:
            answer = self.service.allow if allows else self.service.deny
            self.check("signed_out", answer(consent, browser))
        elif allows:
            expected = self.model.allow(consent, browser)
            self.check(expected, self.service.allow(consent, browser))
        else:
            expected = self.model.deny(consent, browser)
            self.check(expected, self.service.deny(consent, browser))

    def check_marked(self, user: str) -> None:
        """Check that nothing of a user can be used whose revokeAll has begun, although its records may be there."""
        for family, each in self.model.families.items():
            if each.user == user:
                verdict = self.service.spend(family, self.name(), self.generations[family], each.client_id)
                self.check("unknown", verdict)
        for number, code in self.model.codes.items():
            if code.user == user and code.redeemed_for is None:
                verdict = self.service.redeem(number, self.name(), self.name(), code.client_id)
                self.check(True, verdict in ("revoked", "unknown"))
        for browser, session in self.model.browsers.items():
            if session.user == user:
                consent = self.name()
                self.browsers[consent], self.clients_of_codes[consent] = browser, "phone-app"
                self.check(False, self.service.hold(consent, browser, user, "phone-app"))

    def check(self, expected: object, found: object) -> None:
        if expected == found:
            return
        if isinstance(expected, dict) and isinstance(found, dict):
            expected, found = expected.items(), found.items()
        if isinstance(expected, Set) and isinstance(found, Set):
            expected, found = expected - found, found - expected
        self.course.violated_after = self.course.violated_after or self.course.histories
        lines = [f"the model has {expected}, the service {found}"]
        lines += [f"at {self.model.now:.0f} s in history {self.course.histories} of seed {self.course.seed}, after"]
        raise Violation("\n  ".join(lines + self.course.last_operations))

    def http_client_for(self, family: int) -> str:
        known = self.model.families.get(family)
        return known.client_id if known else "phone-app"

    def name(self) -> int:
        self.names += 1
        return self.names

    @staticmethod
    def pick(names: list[Choice], choice: int) -> Choice:
        return names[choice % len(names)]
