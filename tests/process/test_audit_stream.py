"""The buffer in front of the event stream: bounded, outside the path of requests, with a count of lost events."""

import asyncio
import io
from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from service.config.settings import load_settings
from service.observability import metrics
from service.observability.audit import GROUPS, VITAL, record_event, use_audit_stream
from service.observability.audit_stream import LAST_SECONDS, MAX_A_MINUTE, MAX_NAMED, MAX_WAITING, AuditStream
from service.redis_client.deadline import StoreUnavailable
from service.worker import Worker
from tests.conftest import environment_of
from tests.support.events import events_of
from tests.support.loop_time import SAME_SECONDS, STEP_SECONDS, LoopTime
from tests.support.metrics_scrape import Scrape
from tests.support.servers import RedisServer, start_redis, stop
from tests.support.waiting import until_reachable


class RecordingStream:
    """A stream that stores batches, fails or hangs."""

    def __init__(self) -> None:
        self.batches: list[list[dict[str, Any]]] = []
        self.groups: dict[str, list[dict[str, Any]]] = {}
        self.is_away = False
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def append(self, *batches: Sequence[bytes]) -> None:
        await self.may_answer.wait()
        if self.is_away:
            raise StoreUnavailable("away")
        decoded = [[msgspec.json.decode(event) for event in batch] for batch in batches]
        self.groups = dict(zip(GROUPS, decoded, strict=True))
        self.batches.append([entry for group in decoded for entry in group])

    @property
    def entries(self) -> list[dict[str, Any]]:
        return [entry for batch in self.batches for entry in batch]


class SettableClock:
    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def settable_clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
async def stream() -> RecordingStream:
    return RecordingStream()


@pytest.fixture
async def audit_stream(stream: RecordingStream, settable_clock: SettableClock) -> AuditStream:
    audit_stream = AuditStream(stream.append, settable_clock)
    use_audit_stream(audit_stream)
    return audit_stream


def record_unknown_users(times: int) -> None:
    for number in range(times):
        record_event("login_failed", realm="main", reason="user_unknown", address=f"192.0.2.{number}")


def record_replays(times: int) -> None:
    for number in range(times):
        record_event(
            "refresh_token_replayed",
            client_id="shop",
            username="alice",
            realm="main",
            sub="alice's id",
            session=f"{number}",
        )


@pytest.mark.clause("decided-event-stream")
async def test_only_rare_events_go_to_the_stream_in_batches(
    audit_stream: AuditStream, stream: RecordingStream, json_logs: io.StringIO
) -> None:
    record_replays(2)
    record_event("tokens_refreshed", client_id="shop", username="alice", realm="main", sub="alice's id")
    record_unknown_users(1)
    await audit_stream.flush()
    await audit_stream.flush()

    assert [[entry["event"] for entry in batch] for batch in stream.batches] == [
        ["refresh_token_replayed", "refresh_token_replayed", "login_failed"]
    ]
    assert [event for event, _ in events_of(json_logs)].count("tokens_refreshed") == 1


@pytest.mark.clause("decided-events-sampled")
async def test_flood_of_events_is_recorded_in_part_and_counted(
    audit_stream: AuditStream, stream: RecordingStream, settable_clock: SettableClock, json_logs: io.StringIO
) -> None:
    for _ in range(20):
        record_unknown_users(50)
        await audit_stream.flush()
        settable_clock.seconds += 1
    record_replays(3)
    settable_clock.seconds += 40
    await audit_stream.flush()
    record_unknown_users(1)
    await audit_stream.flush()
    failures = [entry for entry in stream.entries if entry["event"] == "login_failed"]

    assert [entry.get("address") for entry in failures[:MAX_A_MINUTE]] == [
        f"192.0.2.{number}" for number in range(MAX_A_MINUTE)
    ]
    assert failures[MAX_A_MINUTE]["address"] == "192.0.2.49"
    assert failures[MAX_A_MINUTE]["repeats"] == 1000 - MAX_A_MINUTE
    assert len(failures) == MAX_A_MINUTE + 1
    assert len([entry for entry in stream.entries if entry["event"] == "refresh_token_replayed"]) == 3
    assert len(events_of(json_logs)) == 1000 + 3 + 1


def record_wrong_passwords(username: str, times: int = 1) -> None:
    for _ in range(times):
        record_event(
            "login_failed", username=username, realm="main", sub=username, reason="password_wrong", address="192.0.2.1"
        )


@pytest.mark.clause("decided-events-of-users", "decided-events-sampled")
async def test_user_who_floods_hides_no_other_user(
    audit_stream: AuditStream, stream: RecordingStream, settable_clock: SettableClock
) -> None:
    for _ in range(3):
        record_wrong_passwords("alice", 100)
        for number in range(50):
            record_wrong_passwords(f"user{number}", 2)
        settable_clock.seconds += 60
    await audit_stream.flush()
    of_alice = [entry.get("repeats") for entry in stream.entries if entry.get("username") == "alice"]

    assert of_alice == [None] * MAX_A_MINUTE + [100 - MAX_A_MINUTE, 100, 100]
    assert len(stream.entries) == len(of_alice) + 3 * 50 * 2


@pytest.mark.clause("decided-vital-events")
async def test_each_user_has_vital_events_in_a_flood(audit_stream: AuditStream, stream: RecordingStream) -> None:
    """Each of 1,200 users ends all sessions after failed logins have filled up what a minute allows."""
    for number in range(MAX_NAMED):
        record_event("session_revoked", username=f"user{number}", realm="main", sub=f"id{number}")
    for number in range(2 * MAX_NAMED):
        record_event(
            "revoke_all",
            username=f"user{number}",
            realm="main",
            sub=f"id{number}",
            reason="bearer",
            address="192.0.2.2",
        )
    await audit_stream.flush()
    ended = [entry["username"] for entry in stream.groups["users"] if entry["event"] == "revoke_all"]

    assert ended == [f"user{number}" for number in range(2 * MAX_NAMED)]


@pytest.mark.clause("decided-events-of-users")
@pytest.mark.parametrize("event", sorted(VITAL))
async def test_one_user_has_one_bound_over_all_streams(
    audit_stream: AuditStream, stream: RecordingStream, settable_clock: SettableClock, event: str
) -> None:
    """3,300 events in each of three minutes leave seven entries, and the newest of each minute is among them."""
    for minute in range(3):
        for number in range(3_300):
            record_event(event, username="alice", realm="main", sub="alice's id", reason=f"{minute} {number}")
        settable_clock.seconds += 60
        await audit_stream.flush()

    first = [f"0 {number}" for number in range(MAX_A_MINUTE)]
    assert [entry["reason"] for entry in stream.entries] == [*first, "0 3299", "1 3299", "2 3299"]
    assert sum(entry.get("repeats", 1) for entry in stream.entries) == 3 * 3_300
    assert {entry["sub"] for entry in stream.entries} == {"alice's id"}


@pytest.mark.clause("decided-events-of-users", "decided-managed-users-events")
@pytest.mark.parametrize(
    ("event", "fields", "group"),
    [
        ("user_deleted", {"actor": "root", "reason": "cli"}, "operators"),
        ("revoke_all_by_cli", {"actor": "root", "reason": "client"}, "operators"),
        ("user_deleted", {"actor": "back-office", "reason": "client", "address": "192.0.2.1"}, "programs"),
        ("revoke_all", {"reason": "client", "address": "192.0.2.1"}, "programs"),
        ("provider_logout", {"reason": "user", "address": "192.0.2.1"}, "programs"),
        ("revoke_all", {"reason": "bearer", "address": "192.0.2.1"}, "users"),
        ("login_failed", {"reason": "password_wrong", "address": "192.0.2.1"}, "unauthenticated"),
    ],
)
async def test_an_event_is_in_the_stream_of_who_causes_it(
    audit_stream: AuditStream, stream: RecordingStream, event: str, fields: dict[str, str], group: str
) -> None:
    record_event(event, username="alice", realm="main", sub="alice's id", client_id="back-office", **fields)
    await audit_stream.flush()

    assert [name for name, entries in stream.groups.items() if entries] == [group]


@pytest.mark.clause("decided-events-sampled")
async def test_number_of_users_in_the_stream_per_minute_is_bounded(
    audit_stream: AuditStream, stream: RecordingStream, settable_clock: SettableClock
) -> None:
    for number in range(2 * MAX_NAMED):
        record_wrong_passwords(f"user{number}")
    settable_clock.seconds += 60
    await audit_stream.flush()

    assert len(stream.entries) == MAX_NAMED + 1
    assert stream.entries[-1] == {"event": "login_failed", "repeats": MAX_NAMED}


@pytest.mark.clause("decided-events-of-users", "decided-events-lost-counted")
async def test_callers_cannot_fill_the_queue_of_user_events(
    audit_stream: AuditStream, stream: RecordingStream, settable_clock: SettableClock
) -> None:
    """Clients that anybody can name have their first event of each minute, while Redis hangs."""
    for _ in range(MAX_WAITING // MAX_NAMED + 1):
        for number in range(MAX_NAMED):
            record_event("client_throttled", client_id=f"client{number}", address="::1")
        settable_clock.seconds += 60
    record_replays(3)
    await audit_stream.flush()

    assert [entry["event"] for entry in stream.entries[:4]] == ["refresh_token_replayed"] * 3 + ["events_lost"]


@pytest.mark.clause("decided-events-lost-counted")
async def test_lost_events_are_logged_and_counted_later(
    audit_stream: AuditStream, stream: RecordingStream, json_logs: io.StringIO
) -> None:
    stream.is_away = True
    record_replays(3)
    await audit_stream.flush()
    await audit_stream.flush()
    record_unknown_users(2)
    await audit_stream.flush()
    logged = [fields for event, fields in events_of(json_logs) if event == "events_lost"]
    stream.is_away = False
    record_replays(1)
    await audit_stream.flush()
    await audit_stream.flush()

    assert logged == [{"count": 3, "reason": "away"}, {"count": 2, "reason": "away"}]
    assert [entry["event"] for entry in stream.entries] == ["refresh_token_replayed", "events_lost"]
    assert stream.entries[-1] == {"event": "events_lost", "count": 5}


def read_lost_events() -> float:
    return Scrape(metrics.render().decode()).sum("token_service_events_lost_total")


@pytest.mark.clause("decided-events-lost-counted", "decided-audit-off-the-way")
async def test_more_than_can_wait_is_counted(
    audit_stream: AuditStream, stream: RecordingStream, settable_clock: SettableClock, json_logs: io.StringIO
) -> None:
    """The buffer is bounded while Redis hangs, and no request waits for it."""
    stream.may_answer.clear()
    for _ in range(MAX_WAITING // MAX_NAMED + 1):
        for number in range(MAX_NAMED):
            record_event("lost_generations_recovered", username=f"user{number}", realm="main", sub=f"id{number}")
        settable_clock.seconds += 60
    stream.may_answer.set()
    await audit_stream.flush()

    assert len(stream.entries) == MAX_WAITING + 1
    assert stream.entries[-1] == {"event": "events_lost", "count": -MAX_WAITING % MAX_NAMED}
    lost = [fields for event, fields in events_of(json_logs) if event == "events_lost"]
    assert lost == [{"count": 1, "reason": "too many at once"}] * (-MAX_WAITING % MAX_NAMED)


@pytest.mark.clause("decided-audit-off-the-way")
async def test_hanging_redis_delays_the_shutdown_within_its_bound(
    held_time: LoopTime, audit_stream: AuditStream, stream: RecordingStream, json_logs: io.StringIO
) -> None:
    stream.may_answer.clear()
    audit_stream.start()
    record_replays(4)
    began = held_time.read()
    await held_time.advance_until_done(audit_stream.close())
    waited = held_time.read() - began

    assert -SAME_SECONDS <= waited - LAST_SECONDS <= STEP_SECONDS + SAME_SECONDS
    assert events_of(json_logs)[-1] == ("events_lost", {"count": 4, "reason": "the worker exited"})


@pytest.mark.clause("decided-events-lost-counted", "decided-audit-off-the-way")
async def test_redis_outage_is_reported_in_the_stream_afterwards(own_redis: RedisServer) -> None:
    worker = Worker(load_settings(environment_of(own_redis)))
    use_audit_stream(worker.audit_stream)
    stop(own_redis.process)
    lost_before = read_lost_events()
    record_replays(2)
    await worker.audit_stream.flush()
    assert read_lost_events() - lost_before == 2
    again = start_redis(own_redis.folder, port=own_redis.port)
    await until_reachable(worker)
    await worker.audit_stream.flush()
    entries = [msgspec.json.decode(entry.text) for entry in await worker.event_stream.read()]
    await worker.close()
    stop(again.process)

    assert entries == [{"event": "events_lost", "count": 2}]


async def test_shutdown_writes_waiting_events_and_counts(audit_stream: AuditStream, stream: RecordingStream) -> None:
    audit_stream.start()
    record_unknown_users(MAX_A_MINUTE + 5)
    await audit_stream.close()

    assert len(stream.entries) == MAX_A_MINUTE + 1
    assert stream.entries[-1]["repeats"] == 5
