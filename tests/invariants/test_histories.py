"""Random histories of clients, thieves and operators: the store does what a small model in Python does."""

import asyncio
import threading
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.conftest import AnyRedis
from tests.invariants import model
from tests.invariants.model import Model
from tests.invariants.service_under_test import ServiceUnderTest

STEPS = 40

users = st.sampled_from(["alice", "bob"])
client_ids = st.sampled_from(["phone-app", "phone-app", "phone-app", "web-shop"])
sids = st.sampled_from(["", model.NO_SID, "one", "two"])
choices = st.integers(0, 1_000_000)
short_pauses = st.sampled_from([0, 0, 100, 600, 1_400, 1_500, 2_900, 3_000, 3_100])
long_pauses = st.sampled_from([6_000, 6_100, 6_200, 36_000, 86_400, 861_000, 864_000, 864_100, 2_592_100])


class Histories(RuleBasedStateMachine):
    """Each rule does the same to the model and to the service; after each the two are compared."""

    server: AnyRedis
    loop: asyncio.AbstractEventLoop

    @initialize()
    def begin(self) -> None:
        self.model = Model()
        self.service = ServiceUnderTest(self.server, self.loop)
        self.names = 0
        self.generations: dict[int, int] = {}
        self.users: dict[int, str] = {}
        self.browsers: dict[int, int] = {}
        self.log_in("alice", "phone-app", "", 0)

    def teardown(self) -> None:
        if hasattr(self, "service"):
            self.service.close()

    @rule(user=users, client_id=client_ids, sid=sids, seconds=st.sampled_from([0, 0, 0, 100, 600]))
    def log_in(self, user: str, client_id: str, sid: str, seconds: float) -> None:
        """Finish a login that began that many seconds ago."""
        family, access = self.name(), self.name()
        self.wait(1)  # the order of two logins decides which session ends
        begun = self.model.now - seconds
        survives = self.model.survives(user, sid, begun)
        assert self.service.start(family, access, user, client_id, sid, begun) == survives
        if survives:
            self.generations[family] = 1
            self.model.start(family, access, user, client_id, sid)

    @rule(user=users, client_id=client_ids, sid=sids)
    def get_code(self, user: str, client_id: str, sid: str) -> None:
        """Get a code through pages that are used for nothing else."""
        code = self.name()
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
        self.browsers[consent] = browser
        expected = self.model.hold(consent, browser, client_id)
        assert self.service.hold(consent, browser, self.users[browser], client_id) == expected

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
        self.wait(1)
        known = self.model.codes.get(code)
        family, access = self.name(), self.name()
        expected = self.model.redeem(code, family, access)
        assert self.service.redeem(code, family, access) == expected
        self.generations[family] = 1
        if expected == "repeated":
            assert known is not None
            assert known.redeemed_for is not None
            ended = self.model.end(known.redeemed_for, known.client_id)
            assert self.service.end(known.redeemed_for, known.client_id) == ended

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

    @rule(seconds=short_pauses | long_pauses)
    def wait(self, seconds: float) -> None:
        self.model.advance(seconds)
        self.service.hold_time(self.model.now)

    @precondition(lambda self: self.service.access_names)
    @rule(choice=choices, client_id=client_ids)
    def revoke_access_token(self, choice: int, client_id: str) -> None:
        access = self.pick(list(self.service.access_names), choice)
        expected = self.model.revoke_access(access, client_id)
        assert self.service.revoke_access(access, client_id) == expected

    @precondition(lambda self: self.service.family_names)
    @rule(choice=choices, client_id=client_ids)
    def revoke_refresh_token(self, choice: int, client_id: str) -> None:
        family = self.pick(list(self.service.family_names), choice)
        expected = self.model.end(family, client_id)
        assert self.service.end(family, client_id) == expected

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

    @invariant()
    def no_time_passes_by_itself(self) -> None:
        self.service.hold_time(self.model.now)

    @invariant()
    def exactly_the_access_tokens_of_the_model_are_live(self) -> None:
        assert self.service.live_access == self.model.live_access

    @invariant()
    def exactly_the_families_of_the_model_are_live_each_with_its_head(self) -> None:
        assert self.service.heads == self.model.heads

    @invariant()
    def exactly_the_browser_sessions_consents_and_codes_of_the_model_are_there(self) -> None:
        assert self.service.browsers == set(self.model.browsers)
        assert self.service.answers == {number: consent.answer for number, consent in self.model.consents.items()}
        assert self.service.waiting_codes == {
            number for number, code in self.model.codes.items() if code.redeemed_for is None
        }

    @invariant()
    def what_ended_is_remembered_as_in_the_model(self) -> None:
        """A day is one of the pauses that tests make: after exactly that it may be there or not."""
        ended = self.model.ended.items()
        may = {number: (each.reason, each.head, each.presented) for number, each in ended}
        must = {number: may[number] for number, each in ended if each.forgotten > self.model.now}
        assert must.items() <= self.service.ended.items() <= may.items()

    @invariant()
    def everything_has_an_end(self) -> None:
        assert self.service.immortal == []

    def spend(self, family: int, generation: int, client_id: str) -> None:
        access = self.name()
        self.wait(1)  # the order of two refreshes decides which session ends
        expected = self.model.spend(family, access, generation, client_id)
        assert self.service.spend(family, access, generation, client_id) == expected
        if expected in ("rotated", "recovered"):
            self.generations[family] = max(self.generations[family], generation + 1)

    def answer(self, consent: int, browser: int, allows: bool) -> None:
        if self.users[browser] != self.users[self.browsers[consent]]:
            answer = self.service.allow if allows else self.service.deny
            assert answer(consent, browser) == "signed_out"
        elif allows:
            expected = self.model.allow(consent, browser)
            assert self.service.allow(consent, browser) == expected
        else:
            expected = self.model.deny(consent, browser)
            assert self.service.deny(consent, browser) == expected

    def http_client_for(self, family: int) -> str:
        known = self.model.families.get(family)
        return known.client_id if known else "phone-app"

    def name(self) -> int:
        self.names += 1
        return self.names

    @staticmethod
    def pick(names: list[int], choice: int) -> int:
        return names[choice % len(names)]


@pytest.mark.clause("decided-sessions-per-user", "decided-i2-one-head", "decided-i7-revocation-is-final")
@pytest.mark.clause("decided-i6-everything-expires")
@pytest.mark.parametrize("histories", [60, pytest.param(1_000, marks=pytest.mark.long)])
def test_random_histories_go_as_the_design_says(redis_server: AnyRedis, histories: int) -> None:
    """Prints a seed and the shortest history it finds when one goes differently."""
    assert model.GRACE_SECONDS < model.ACCESS_SECONDS < model.REFRESH_SECONDS < model.MAX_AGE_SECONDS
    Histories.server, Histories.loop = redis_server, asyncio.new_event_loop()
    thread = threading.Thread(target=Histories.loop.run_forever)
    thread.start()
    try:
        run_state_machine_as_test(
            Histories,
            settings=settings(
                max_examples=histories,
                stateful_step_count=STEPS,
                deadline=None,
                database=None,
                print_blob=True,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        Histories.loop.call_soon_threadsafe(Histories.loop.stop)
        thread.join()
        Histories.loop.close()
