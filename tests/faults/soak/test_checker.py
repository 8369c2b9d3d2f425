"""The checker of the fault harness: what it must find in a history made by hand, and what it must let pass."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from service.crypto.keyring import Keyring, make_refresh_token
from tests.conftest import SECRET_KEY
from tests.faults.soak.checker import Generation, Promise, Verdict, check_history
from tests.faults.soak.history import Call, Fault, History, Stall
from tests.faults.soak.proof import Proof, find_waits
from tests.faults.soak.run import KEYRING

ALICE, BOB = "alice@example.com", "bob@example.com"
NEXT_KEY = b"another key of the tests of 32 bytes or more"
BOTH_KEYS = Keyring((NEXT_KEY, SECRET_KEY.encode()))
STRANGER = Keyring((b"a key that is not the service's, of 32 bytes or more",))


def token(family: str, generation: int, keyring: Keyring = KEYRING) -> str:
    return keyring.sign_refresh_token(make_refresh_token("0a3", family.encode().ljust(16), generation))


def call(kind: str, started: float, status: int = 200, *, took: float = 0.1, **fields: Any) -> Call:
    usual: dict[str, Any] = {"kind": kind, "user": ALICE, "client_id": "phone-app", "instance": 0}
    times = {"started": started, "ended": started + took, "status": status}
    if status == 503:
        usual |= {"error": "temporarily_unavailable", "has_retry_after": True}
    if status == 400:
        usual |= {"error": "invalid_grant"}
    if status == 401:
        usual |= {"error": "invalid_token"}
    return Call(**{**usual, **times, **fields})


def tokens(family: str, generation: int, access_token: str) -> dict[str, Any]:
    return {"refresh_token": token(family, generation), "access_token": access_token, "expires_in": 600.0}


def login(started: float, family: str = "one", access_token: str = "a1", **fields: Any) -> Call:
    return call("login", started, **{**tokens(family, 1, access_token), **fields})


def code(started: float, text: str = "code", **fields: Any) -> Call:
    return call("code", started, 303, code=text, **fields)


def exchange(started: float, family: str = "one", access_token: str = "a1", **fields: Any) -> Call:
    return call("exchange", started, sent="code", **{**tokens(family, 1, access_token), **fields})


def refresh(started: float, presented: int, given: int = 0, access_token: str = "", **fields: Any) -> Call:
    """Answered with this generation; with 0, with nothing."""
    gift = tokens("one", given, access_token or f"a{given} at {started}") if given else {}
    return call("refresh", started, sent=token("one", presented), **{**gift, **fields})


def refused(started: float, presented: int, **fields: Any) -> Call:
    return refresh(started, presented, status=400, **fields)


def verify(started: float, access_token: str = "a1", **fields: Any) -> Call:
    return call("verify", started, sent=access_token, **{"named": ALICE, **fields})


def revoke(started: float, text: str, **fields: Any) -> Call:
    return call("revoke", started, sent=text, **fields)


def revoke_all(started: float, access_token: str = "a1", **fields: Any) -> Call:
    return call("revoke_all", started, sent=access_token, **fields)


def read_generation(text: str) -> Generation | None:
    refresh_token = BOTH_KEYS.parse_refresh_token(text)
    return None if refresh_token is None else Generation(refresh_token.family_digest, refresh_token.generation)


def check(*calls: Call, faults: Iterable[Fault] = (), promise: Promise | None = None, **fields: Any) -> Verdict:
    history = History(calls=list(calls), faults=list(faults), **fields)
    return check_history(history, promise or Promise(), read_generation)


def accusations(verdict: Verdict) -> list[tuple[str, str]]:
    return [(violation.rule, violation.what) for violation in verdict.violations]


QUICK = Promise(latest_seconds=2.5, back_seconds=2.0)
FAILOVER = Fault(name="kill_master", started=9, ended=20, took_over=13)
KILLED = Fault(name="kill_redis", started=10, ended=11)

GUILTY = {
    "a code with two winners": ("I1", [code(0), exchange(1), exchange(1, family="two", access_token="a2")]),
    "two tokens of one generation": (
        "I2",
        [login(0), refresh(1, 1, 2), refresh(2, 1, 2, refresh_token=token("one", 2, BOTH_KEYS))],
    ),
    "two branches": ("I2", [login(0), refresh(1, 1, 2), refresh(2, 2, 3), refresh(3, 1, 2)]),
    "a refresh that stands still": ("I2", [login(0), refresh(1, 1, 1)]),
    "a refresh into another session": (
        "I2",
        [login(0), login(0, "two", "a2"), refresh(1, 1, 2, refresh_token=token("two", 2))],
    ),
    "a spent generation as the head": (
        "I2",
        [login(0), refresh(1, 1, 2), call("introspect", 2, sent=token("one", 1), named=ALICE)],
    ),
    "a replay after the grace": ("I2", [login(0), refresh(1, 1, 2), refresh(302, 1, 2)]),
    "an access token after its revocation": ("I7", [login(0), revoke(1, "a1"), verify(2)]),
    "a refresh after a revocation by an old generation": (
        "I7",
        [login(0), refresh(1, 1, 2), revoke(2, token("one", 1)), refresh(3, 2, 3)],
    ),
    "a session after revokeAll": ("I7", [login(0), revoke_all(1), refresh(2, 1, 2)]),
    "a code after revokeAll": ("I7", [login(0, "two", "a2"), code(0), revoke_all(1, "a2"), exchange(2)]),
    "what a code gave while revokeAll ran": (
        "I7",
        [login(0, "two", "a2"), code(0), revoke_all(1, "a2"), exchange(1.05), verify(2)],
    ),
    "a session whose code was exchanged again": (
        "I7",
        [code(0), exchange(1), call("exchange", 2, 400, sent="code"), verify(3)],
    ),
    "a session after the theft was seen": ("I7", [login(0), refresh(1, 1, 2), refused(302, 1), refresh(303, 2, 3)]),
    "500": ("I8", [login(0, status=500, refresh_token="", access_token="")]),
    "503 while nothing was wrong": ("I8", [call("verify", 0, 503, sent="a1")]),
    "503 without Retry-After": ("I8", [call("verify", 10.5, 503, sent="a1", has_retry_after=False)]),
    "a connection lost": ("I8", [call("verify", 0, 0, sent="a1", trouble="ReadError")]),
    "no answer": ("I8", [call("verify", 0, 0, took=5, sent="a1", trouble="ReadTimeout")]),
    "a slow answer": ("I8", [login(0, took=0.5), verify(1, took=2.7)]),
    "somebody else's name": ("I8", [login(0), verify(1, named=BOB)]),
    "a foreign client that refreshes": ("I8", [login(0), refresh(1, 1, 2, client_id="web-shop")]),
    "a token that nobody signed": ("I8", [login(0, refresh_token=token("one", 1, STRANGER))]),
    "a session that died": ("I10", [login(0), refused(1, 1)]),
    "a session that died of an outage": ("I10", [login(0), refresh(10.5, 1, status=503), refused(12, 1)]),
    "a session that a foreign client ended": (
        "I10",
        [login(0), revoke(1, token("one", 1), client_id="web-shop"), refused(2, 1)],
    ),
    "a session that an earlier revokeAll ended": (
        "I10",
        [login(0, "two", "a2"), revoke_all(1, "a2"), login(2), refused(3, 1)],
    ),
    "an access token that died": ("I10", [login(0), verify(1, status=401, named="")]),
    "a head that is taken for dead": ("I10", [login(0), call("introspect", 1, sent=token("one", 1))]),
    "a code that died": ("I10", [code(0), call("exchange", 1, 400, sent="code")]),
}


@pytest.mark.parametrize(("rule", "calls"), GUILTY.values(), ids=GUILTY)
def test_a_guilty_history_is_found(rule: str, calls: list[Call]) -> None:
    verdict = check(*calls, faults=[KILLED], promise=QUICK)

    assert [violation.rule for violation in verdict.violations] == [rule], verdict.violations


def test_a_request_that_hangs_or_is_refused_to_the_end_is_found() -> None:
    hanging, refused_ever = verify(1, took=60, status=0, trouble="ReadTimeout"), verify(20, status=503)

    assert accusations(check(login(0), hanging)) == [("I8", "no answer at all")]
    assert accusations(check(login(0), refused_ever, faults=[KILLED], unanswered=[refused_ever])) == [
        ("I8", "503 or no answer again and again, after the last fault")
    ]


INNOCENT = {
    "a life": [
        login(0),
        verify(1),
        refresh(2, 1, 2),
        refresh(2.05, 1, 2),
        refresh(3, 2, 3),
        refresh(4, 1, 3),
        call("introspect", 5, sent=token("one", 2)),
        revoke(6, token("one", 1)),
        verify(7, status=401, named=""),
        refused(8, 3),
    ],
    "a login after revokeAll": [login(0), revoke_all(1), login(2, "two", "a2"), verify(3, "a2")],
    "a login while revokeAll ran": [login(0), revoke_all(1), login(1.05, "two", "a2"), verify(3, "a2")],
    "a revocation whose answer was lost": [login(0), revoke(10.5, "a1", status=503), verify(11)],
    "a refresh under way at a revocation": [login(0), revoke(1, token("one", 1)), refresh(1.05, 1, 2)],
    "a second exchange": [code(0), exchange(1), call("exchange", 2, 400, sent="code"), refused(3, 1)],
    "an exchange whose answer was lost": [
        code(9),
        call("exchange", 10.5, 503, sent="code"),
        call("exchange", 12, 400, sent="code"),
    ],
    "a code too late": [code(0), call("exchange", 61, 400, sent="code")],
    "a foreign client's tries": [
        login(0),
        refused(1, 1, client_id="web-shop"),
        revoke(2, token("one", 1), client_id="web-shop"),
        refresh(3, 1, 2),
    ],
    "a replay at the very end of the grace": [login(0), refresh(1, 1, 2), refused(301.05, 1)],
    "an access token that expired": [login(0), verify(601, status=401, named="")],
}


@pytest.mark.parametrize("calls", INNOCENT.values(), ids=INNOCENT)
def test_an_innocent_history_passes(calls: list[Call]) -> None:
    assert check(*calls, faults=[KILLED], promise=QUICK).violations == []


def test_checker_finds_a_lost_session() -> None:
    calls = [login(0), refresh(5, 1, 2)]

    assert check(*calls, refresh(12, 2, 3), faults=[KILLED], is_closed=True).violations == []
    assert accusations(check(*calls, faults=[KILLED], is_closed=True)) == [
        ("I10", "a session that nobody ended was not seen alive at the end")
    ]


def test_revoke_all_may_void_an_overlapping_login_of_its_user() -> None:
    def violations_of(started: float, **fields: Any) -> int:
        void = call("login", started, 503, **fields)
        return len(check(revoke_all(10.5, status=503), void, faults=[KILLED], promise=QUICK).violations)

    assert violations_of(15) == 0
    assert violations_of(15, user=BOB) == 1
    assert violations_of(30) == 1
    assert len(check(revoke_all(5), call("login", 6, 503), promise=QUICK).violations) == 1
    assert len(check(revoke_all(5, took=1), call("refresh", 5.5, 503), promise=QUICK).violations) == 1


def test_an_instance_that_was_killed_need_not_answer() -> None:
    lost = call("verify", 9.5, 0, took=1, sent="a1", trouble="ReadError")
    killed = replace(KILLED, instance=0)

    assert check(lost, faults=[killed]).violations == []
    assert len(check(lost, faults=[replace(killed, instance=1)]).violations) == 1
    assert len(check(lost, faults=[KILLED]).violations) == 1


def test_benchmark_excludes_time_of_the_machine() -> None:
    for slow in (verify(1, took=4.5), verify(1, took=4.5, status=0, trouble="ReadTimeout")):
        assert check(login(0), slow, stalls=[Stall(2, 4.5)], promise=QUICK).violations == []
        assert len(check(login(0), slow, stalls=[Stall(2, 3)], promise=QUICK).violations) == 1


RESURRECTIONS = [
    [login(0), revoke(9.5, "a1"), verify(21)],
    [login(0), revoke(9.5, token("one", 1)), refresh(21, 1, 2)],
    [login(0, "two", "a2"), code(0), revoke_all(9.5, "a2"), exchange(21)],
]


@pytest.mark.parametrize("calls", RESURRECTIONS)
def test_failover_undoes_only_unconfirmed_revocations(calls: list[Call]) -> None:
    for durability in ("memory", "disk"):
        verdict = check(*calls, faults=[FAILOVER], promise=Promise(durability=durability))
        assert verdict.violations == []
        assert verdict.unchecked.total() == 1
    verdict = check(*calls, faults=[FAILOVER], promise=Promise(durability="replica"))
    assert [violation.rule for violation in verdict.violations] == ["I7"]


def test_failover_may_undo_only_unreplicated_exchanges() -> None:
    calls = [code(0), exchange(9.5), refused(21, 1), exchange(22, "two", "a2")]

    assert check(*calls, faults=[FAILOVER]).violations == []
    verdict = check(*calls, faults=[FAILOVER], promise=Promise(durability="replica"))
    assert [violation.rule for violation in verdict.violations] == ["I1", "I10"]


def test_failover_loses_only_new_writes() -> None:
    calls = [login(0), revoke(2, "a1"), verify(21)]

    assert len(check(*calls, faults=[FAILOVER]).violations) == 1
    assert len(check(login(0), refused(21, 1), faults=[FAILOVER]).violations) == 1
    assert check(login(9.5), refused(21, 1), faults=[FAILOVER]).violations == []
    others = replace(FAILOVER, users=frozenset({BOB}))
    assert len(check(login(9.5), refused(21, 1), faults=[others]).violations) == 1


def test_generations_that_a_failover_lost_may_be_given_again() -> None:
    calls = [login(0), refresh(9.5, 1, 2), refresh(9.8, 2, 3), refresh(21, 1, 2), refresh(22, 3, 4)]

    assert check(*calls, faults=[FAILOVER], promise=Promise(durability="replica")).violations == []
    assert len(check(*calls).violations) == 1


def test_undone_revocations_are_counted_even_if_they_are_excused() -> None:
    calls = [login(0), revoke(9.5, "a1"), revoke(9.6, "a1", client_id="web-shop"), verify(21), verify(22)]

    for durability in ("memory", "replica"):
        verdict = check(*calls, faults=[FAILOVER], promise=Promise(durability=durability))
        assert (verdict.revocations, len(verdict.undone)) == (1, 1)
    assert check(*calls[:3]).undone == set()


LOST = {
    "kill_master lost the login that began it": [login(9.5), refused(21, 1)],
    "its code was sent again after an answer was lost": [
        code(0),
        call("exchange", 1, 503, sent="code"),
        exchange(2),
        refused(3, 1),
    ],
    "its refresh token was sent again after the grace period": [login(0), refresh(1, 1, 2), refused(302, 1)],
    "for no reason, which is a violation": [login(0), refused(1, 1)],
}


@pytest.mark.parametrize(("reason", "calls"), LOST.items(), ids=LOST)
def test_lost_sessions_are_counted_by_reason(reason: str, calls: list[Call]) -> None:
    assert check(*calls, faults=[FAILOVER]).lost == {reason: 1}


def test_sessions_that_were_ended_or_misused_are_not_lost() -> None:
    ended = [login(0), revoke(9.5, token("one", 1)), refused(21, 1)]
    misused = LOST["its refresh token was sent again after the grace period"]

    assert not check(*ended, faults=[FAILOVER]).lost
    assert not check(*misused, misused={token("one", 1)}).lost


def test_waits_are_counted_from_the_fault_to_the_answer() -> None:
    waiting = [
        refresh(10.5, 1, status=503),
        refresh(10.55, 1, 2, access_token="another tab"),
        refresh(11, 1, 0, status=0, trouble="ReadTimeout", took=1),
        refresh(12.5, 1, 2),
    ]
    given_up = [verify(10.5, status=503), verify(15)]
    elsewhere = [verify(10.5, "a2", status=503, instance=1), verify(10.8, "a2", instance=1)]
    history = History(calls=[*waiting, *given_up, *elsewhere], faults=[replace(KILLED, instance=0)])
    proof = Proof()

    proof.add(history, Verdict())

    assert list(proof.lines())[-2:] == [
        "    kill_redis, 1 times: p50 2.60, worst 2.60 from the fault; p50 2.10, worst 2.10 from the first try",
        "    no fault, 1 times: p50 0.40, worst 0.40 from the fault; p50 0.40, worst 0.40 from the first try",
    ]


def test_waits_through_two_faults_belong_to_neither() -> None:
    calls = [refresh(10.5, 1, status=503), refresh(11.2, 1, status=503), refresh(12, 1, 2)]
    next_fault = Fault(name="kill_master", started=11.1, ended=12)

    ((name, wait),) = find_waits(History(calls=calls, faults=[KILLED, next_fault]))

    assert (name, round(wait.from_fault, 1), round(wait.from_first_try, 1)) == ("several faults in a row", 2.1, 1.6)
