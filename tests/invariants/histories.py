"""Random histories of clients, thieves and operators: the store does what a small model in Python does."""

import asyncio
from collections.abc import Callable, Mapping, Sequence, Set
from copy import deepcopy
from functools import partial
from random import Random
from typing import Any, NamedTuple, TypeVar

from tests.conftest import AnyRedis
from tests.invariants import model
from tests.invariants.model import TICK_SECONDS, Model
from tests.invariants.service_under_test import ServiceUnderTest

STEPS = 60

users = ["alice", "bob"]
client_ids = ["phone-app", "phone-app", "phone-app", "web-shop"]
sids = ["", model.NO_SID, "one", "two"]
choices = range(1_000_000)
booleans = [False, True]
short_pauses = [0, 0, 100, 600, 1_400, 1_500, 2_900, 3_000, 3_100]
long_pauses = [6_000, 6_100, 6_200, 36_000, 86_400, 861_000, 864_000, 864_100, 2_592_100]


class Violation(AssertionError):
    """The service did something else than the model."""


class Rule(NamedTuple):
    """The values that each argument of an operation may have, and whether it is possible at a time."""

    values: Mapping[str, Sequence[Any]]
    is_possible: Callable[["Histories"], object]


class Step(NamedTuple):
    """An operation with its arguments. It is left out of a history when it is not possible."""

    name: str
    arguments: Mapping[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


RULES: dict[str, Rule] = {}
Operation = TypeVar("Operation", bound=Callable[..., None])


def rule(
    is_possible: Callable[["Histories"], object] = lambda _: True, /, **values: Sequence[Any]
) -> Callable[[Operation], Operation]:
    """Return a decorator for an operation that histories consist of."""

    def register(operation: Operation) -> Operation:
        RULES[operation.__name__] = Rule(values, is_possible)
        return operation

    return register


def draw_history(seed: str) -> list[Step]:
    rng = Random(seed)
    names = ["begin", *rng.choices([name for name in RULES if name != "begin"], k=STEPS)]
    return [Step(name, {each: rng.choice(some) for each, some in RULES[name].values.items()}) for name in names]


class Histories:
    """Each rule does the same to the model and to the service; after each the two are compared."""

    def __init__(self, server: AnyRedis, loop: asyncio.AbstractEventLoop) -> None:
        self.model = Model()
        self.service = ServiceUnderTest(server, loop)
        self.names = 0
        self.generations: dict[int, int] = {}
        self.users: dict[int, str] = {}
        self.browsers: dict[int, int] = {}

    def play(self, steps: Sequence[Step]) -> int:
        """Take the steps that are possible, and return how many. Raises Violation with the steps until then."""
        taken: list[str] = []
        try:
            for step in steps:
                if RULES[step.name].is_possible(self):
                    taken.append(f"{self.model.now:.0f} s: {step}")
                    getattr(self, step.name)(**step.arguments)
                    self.compare()
        except Violation as violation:
            raise Violation("\n  ".join([str(violation), *taken])) from None
        finally:
            self.service.close()
        return len(taken)

    @rule(lifetimes=model.CHOICES_OF_LIFETIMES)
    def begin(self, lifetimes: model.Lifetimes) -> None:
        self.set_lifetimes("phone-app", lifetimes)
        self.set_lifetimes("web-shop", model.LIFETIMES)
        self.log_in("alice", "phone-app", "", 0)

    @rule(user=users, client_id=client_ids, sid=sids, seconds=[0, 0, 100, 200, 600])
    def log_in(self, user: str, client_id: str, sid: str, seconds: float) -> None:
        """Finish a login that began that many seconds ago. One takes ten minutes at most, and a mark outlives it."""
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
        self.service.issue_code(code, user, client_id, sid)
        self.model.issue_code(code, user, client_id, sid)

    @rule(user=users, sid=sids, seconds=model.BROWSER_SECONDS)
    def sign_in(self, user: str, sid: str, seconds: float) -> None:
        browser = self.name()
        self.users[browser] = user
        self.service.sign_in(browser, user, sid, seconds)
        self.model.sign_in(browser, user, sid, seconds)

    @rule(lambda self: self.service.browser_names, choice=choices)
    def sign_out(self, choice: int) -> None:
        browser = self.pick(list(self.service.browser_names), choice)
        self.service.sign_out(browser)
        self.model.sign_out(browser)

    @rule(lambda self: self.service.browser_names, choice=choices, client_id=client_ids)
    def open_page(self, choice: int, client_id: str) -> None:
        browser, consent = self.pick(list(self.service.browser_names), choice), self.name()
        self.browsers[consent] = browser
        expected = self.model.hold(consent, browser, client_id)
        self.check(expected, self.service.hold(consent, browser, self.users[browser], client_id))

    @rule(lambda self: self.service.consents, choice=choices, allows=booleans, times=range(1, 3), seconds=short_pauses)
    def answer_page(self, choice: int, allows: bool, times: int, seconds: float) -> None:
        """Answer any page that was ever opened, once or twice."""
        consent = self.pick(list(self.service.consents), choice)
        for _ in range(times):
            self.answer(consent, self.browsers[consent], allows)
            self.wait(seconds)

    @rule(lambda self: self.service.consents, choice=choices, other=choices, allows=booleans)
    def answer_page_elsewhere(self, choice: int, other: int, allows: bool) -> None:
        """Answer a page in any browser, which need not be the page's."""
        consent = self.pick(list(self.service.consents), choice)
        self.answer(consent, self.pick(list(self.service.browser_names), other), allows)

    @rule(lambda self: self.model.browsers, choice=choices)
    def end_all_from_page(self, choice: int) -> None:
        browser = self.pick(list(self.model.browsers), choice)
        user = self.model.browsers[browser].user
        self.service.revoke_all(user, kept_browser=browser)
        self.model.revoke_all(user)

    @rule(lambda self: self.service.code_names, choice=choices)
    def exchange(self, choice: int) -> None:
        """Exchange a code as the endpoint does. A second exchange ends the session of the first."""
        code = self.pick(list(self.service.code_names), choice)
        self.wait(TICK_SECONDS)
        known = self.model.codes.get(code)
        family, access = self.name(), self.name()
        client_id = known.client_id if known else "phone-app"
        expected = self.model.redeem(code, family, access)
        self.check(expected, self.service.redeem(code, family, access, client_id))
        self.generations[family] = 1
        if expected == "repeated":
            assert known is not None
            assert known.redeemed_for is not None
            ended = self.model.end(known.redeemed_for, known.client_id)
            self.check(ended, self.service.end(known.redeemed_for, known.client_id))

    @rule(lambda self: self.model.families, choice=choices, times=range(1, 4), seconds=short_pauses)
    def refresh(self, choice: int, times: int, seconds: float) -> None:
        """Refresh with the newest token of the client. A Redis that lost its last writes may be behind it."""
        family = self.pick(list(self.model.families), choice)
        for _ in range(times):
            self.wait(seconds)
            if family in self.model.families:
                self.spend(family, self.generations[family], self.http_client_for(family))

    @rule(lambda self: self.model.families, choice=choices, back=range(5), seconds=short_pauses, times=range(1, 7))
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

    @rule(lambda self: self.model.families, choice=choices, generation=choices)
    def steal(self, choice: int, generation: int) -> None:
        """Another client presents it."""
        family = self.pick(list(self.model.families), choice)
        client_id = "web-shop" if self.http_client_for(family) == "phone-app" else "phone-app"
        self.spend(family, 1 + generation % self.generations[family], client_id)

    @rule(lambda self: self.model.families, choice=choices, seconds=short_pauses, is_newest_first=booleans)
    def present_ancestors(self, choice: int, seconds: float, is_newest_first: bool) -> None:
        """Present every earlier token of a family, within the grace or later."""
        family = self.pick(list(self.model.families), choice)
        self.wait(seconds)
        for generation in sorted(range(1, self.generations[family]), reverse=is_newest_first):
            self.spend(family, generation, self.http_client_for(family))

    @rule(lambda self: self.model.families, choice=choices, lifetimes=model.CHOICES_OF_LIFETIMES)
    def change_lifetimes(self, choice: int, lifetimes: model.Lifetimes) -> None:
        """Change the lifetimes of a client, and refresh one of its families."""
        family = self.pick(list(self.model.families), choice)
        client_id = self.model.families[family].client_id
        self.set_lifetimes(client_id, lifetimes)
        self.spend(family, self.generations[family], client_id)

    @rule(seconds=[*short_pauses, *long_pauses])
    def wait(self, seconds: float) -> None:
        self.model.advance(seconds)
        self.service.move_time(self.model.now)

    @rule(lambda self: self.model.families, choice=choices, is_over=booleans)
    def wait_for_an_end(self, choice: int, is_over: bool) -> None:
        """Wait until shortly before or after the end of a family or an access token."""
        ends = [end for family in self.model.families.values() for end in family.ends]
        ticks = (self.pick(ends, choice) - self.model.now) // TICK_SECONDS
        self.wait(max(0, ticks + is_over) * TICK_SECONDS)

    @rule(lambda self: self.service.access_names, choice=choices, client_id=client_ids, is_live=booleans)
    def revoke_access_token(self, choice: int, client_id: str, is_live: bool) -> None:
        live = sorted(self.model.live_access) if is_live else []
        access = self.pick(live or list(self.service.access_names), choice)
        expected = self.model.revoke_access(access, client_id)
        self.check(expected, self.service.revoke_access(access, client_id))

    @rule(lambda self: self.service.family_names, choice=choices, client_id=client_ids)
    def revoke_refresh_token(self, choice: int, client_id: str) -> None:
        family = self.pick(list(self.service.family_names), choice)
        expected = self.model.end(family, client_id)
        self.check(expected, self.service.end(family, client_id))

    @rule(lambda self: self.model.families, choice=choices, keeps=booleans)
    def revoke_all(self, choice: int, keeps: bool) -> None:
        family = self.pick(list(self.model.families), choice)
        user = self.model.families[family].user
        self.service.revoke_all(user, kept_family=family if keeps else None)
        self.model.revoke_all(user)

    @rule(user=users, sid=["one", "two"])
    def end_provider_login(self, user: str, sid: str) -> None:
        self.service.end_provider_login(user, sid)
        self.model.revoke_all(user, sid=sid)

    @rule(user=users, seconds=[100, 600, 3_000, 36_000])
    def revoke_until(self, user: str, seconds: float) -> None:
        """Revoke what is older than that many seconds."""
        self.service.revoke_until(user, self.model.now - seconds)
        self.model.revoke_all(user, self.model.now - seconds)

    @rule(choice=choices, times=range(1, 4), seconds=short_pauses, revokes=booleans)
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

    @rule(
        lambda self: self.model.families,
        choice=choices,
        keeps=booleans,
        sid=["", "", "", "one"],
        at=[1, 1, 2, 3, 3, 4, 4, 6, 0],
        back=[0, 0, 1, 2],
        breaks=booleans,
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

    def compare(self) -> None:
        """Compare all that there is. A tombstone may be there or not after a day, which is one of the pauses."""
        self.service.move_time(self.model.now)
        self.check(self.model.live_access, self.service.live_access)
        self.check(self.model.heads, self.service.heads)
        self.check(set(self.model.browsers), self.service.browsers)
        self.check({number: consent.answer for number, consent in self.model.consents.items()}, self.service.answers)
        waiting = {number for number, code in self.model.codes.items() if code.redeemed_for is None}
        self.check(waiting, self.service.waiting_codes)
        ended, found = self.model.ended.items(), self.service.ended
        may = {number: (each.reason, each.head, each.presented) for number, each in ended}
        must = {number: may[number] for number, each in ended if each.forgotten > self.model.now}
        self.check(must | {number: end for number, end in may.items() if number in found}, found)
        self.check(set(), self.service.indexed - self.model.families.keys() - self.model.over.keys())
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
        for family in [number for number, each in self.model.families.items() if each.user == user]:
            client_id = self.http_client_for(family)
            self.check("unknown", self.service.spend(family, self.name(), self.generations[family], client_id))
        for code in [number for number, each in self.model.codes.items() if each.user == user]:
            verdict = self.service.redeem(code, self.name(), self.name(), "phone-app")
            self.check(True, verdict != "redeemed")
        for browser in [number for number, each in self.model.browsers.items() if each.user == user]:
            consent = self.name()
            self.browsers[consent] = browser
            self.check(False, self.service.hold(consent, browser, user, "phone-app"))

    def check(self, expected: object, found: object) -> None:
        if expected == found:
            return
        if isinstance(expected, dict) and isinstance(found, dict):
            expected, found = expected.items(), found.items()
        if isinstance(expected, Set) and isinstance(found, Set):
            expected, found = expected - found, found - expected
        raise Violation(f"at {self.model.now:.0f} s the model has {expected}, the service {found}, after")

    def http_client_for(self, family: int) -> str:
        known = self.model.families.get(family)
        return known.client_id if known else "phone-app"

    def name(self) -> int:
        self.names += 1
        return self.names

    @staticmethod
    def pick(names: list[Any], choice: int) -> Any:
        return names[choice % len(names)]
