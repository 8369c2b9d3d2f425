"""The parts of `scripts/bench` that need no servers."""

from collections import Counter

from redis.crc import key_slot

from benchmarks import imports, million, upgrade
from benchmarks.__main__ import GROUPS, choose_groups
from benchmarks.goals import list_violations
from benchmarks.million import name_slot
from benchmarks.report import format_report
from benchmarks.results import Machine, Results
from service.crypto.keyring import make_first_refresh_token
from service.store.keys import family_key
from tests.faults.deployment import KEYRING
from tests.faults.soak.checker import Violation
from tests.faults.soak.run import Report

CALLS = Counter(
    {("refresh", "200"): 7, ("refresh", "503"): 2, ("verify", "401"): 1, ("login", "ConnectError"): 4}
) + Counter({("verify", "ReadError"): 3})
MACHINE = Machine("2026-11-29", "a processor", 2, 0.0, "Redis 7", "Python 3", {})


def test_long_groups_run_only_if_they_are_named() -> None:
    assert set(GROUPS) - set(choose_groups(quick=False)) == {"million", "upgrade"}
    assert not {"million", "upgrade"} & set(choose_groups(quick=True))


def test_upgrade_counts_requests_by_outcome_and_kind() -> None:
    rows = upgrade.count_answers(Report(calls=CALLS))

    assert rows[upgrade.ANSWERED] == {"refresh": [7], "verify": [1], "all": [8]}
    assert rows[upgrade.REFUSED] == {"refresh": [2], "all": [2]}
    assert rows[upgrade.STOPPED] == {"login": [4], "all": [4]}
    assert rows[upgrade.LOST] == {"verify": [3], "all": [3]}
    assert set(map(tuple, rows[upgrade.WRONG].values())) == {(0,)}


def test_a_wrong_answer_of_an_upgrade_exceeds_its_bound() -> None:
    accepted = Violation("I7", "a token is live after its revocation", ())
    right = Results(MACHINE, rows=upgrade.count_answers(Report(calls=CALLS)))
    wrong = Results(MACHINE, rows=upgrade.count_answers(Report(calls=CALLS, violations=[accepted] * 2)))

    assert list_violations(right) == []
    (line,) = list_violations(wrong)
    assert line.startswith(f"{upgrade.WRONG}: 2.00 (a revoked token was accepted)")
    assert "| a revoked token was accepted" in format_report(wrong)


def test_report_lists_the_numbers_for_sizing() -> None:
    rows = {million.MANY: {million.IDLE: [610.1]}, imports.USER_BYTES: {imports.ONE_SERVER: [580.0, 582.0]}}

    table = format_report(Results(MACHINE, rows=rows)).partition("## Numbers for sizing\n")[2].partition("\n## ")[0]

    assert [[cell.strip() for cell in line.split("|")[1:3]] for line in table.splitlines()[3:] if line] == [
        ["an idle session", "610"],
        [imports.USER_BYTES, "581"],
    ]


def test_name_of_a_slot_lies_in_the_slot_of_the_session() -> None:
    token = make_first_refresh_token("0a3")
    slot = key_slot(name_slot(("", KEYRING.sign_refresh_token(token))).encode())

    assert slot == key_slot(family_key(token.shard, token.family_digest).encode())
