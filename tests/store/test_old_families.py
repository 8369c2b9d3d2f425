"""Families that version 0.2.0 of the service wrote last: read by every operation, and rewritten by a refresh."""

import re
from collections.abc import Awaitable, Callable

import pytest
import redis

from service.redis_client.deadline import StoreUnavailable
from service.store.records import parse_family
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions

GRACE_MS = 300_000
OLD_FIELDS = set("vhtscurgfmop")
Operation = Callable[[Sessions, Session], Awaitable[object]]


def write_as_0_2_0(sessions: Sessions, session: Session, *, provider: str = "\n\n") -> None:
    """Write the family as version 0.2.0 did. The lifetimes of keys stay."""
    field = sessions.record(session)
    _, created_ms, _, grant_type, secret_used, _, subject = field["v"].split()
    head, expires_ms, access_ms, floor, stale_below, stale_ms, *rest = field["h"].split()
    merged = next((text for text in rest if not text.startswith("p")), "")
    replayed = {name: text for name, text in field.items() if re.fullmatch(r"p\d+", name)}

    def old_entry(text: str) -> str:
        ms, generation = text[22:].split(":")
        return f"{text[:22]}{int(created_ms) + int(ms):013d}{int(generation):08x}"

    old = {
        **{name: text for name, text in field.items() if name not in replayed},
        "v": "2",
        "h": head,
        "t": f"{created_ms} {expires_ms} {access_ms}",
        "s": subject,
        "f": floor,
        "m": merged,
        "g": f"{grant_type}\n{secret_used}\n{provider}",
        "o": f"{stale_below}:{int(access_ms) + int(stale_ms)}",
        "p": "".join(old_entry(replayed[name]) for name in sorted(replayed)),
        **{name: old_entry(text) for name, text in field.items() if re.fullmatch(r"a\d+", name)},
    }
    ttl_ms = sessions.pttl(session.key)
    sessions.store.delete(session.key)
    sessions.store.hset(session.key, mapping=old)  # type: ignore[arg-type]
    sessions.store.pexpire(session.key, ttl_ms)


async def start_and_refresh(sessions: Sessions, times: int) -> Session:
    """Return a session with a replay, after refreshes that took a minute."""
    session = await sessions.start()
    for _ in range(times):
        await sessions.refresh(session)
    assert (await sessions.spend(session, times)).verdict == "repeated"
    return session


@pytest.mark.parametrize("times", [1, 9, 120])
async def test_python_reads_what_it_read_before(sessions: Sessions, times: int) -> None:
    session = await start_and_refresh(sessions, times)
    before = sessions.parsed(session)
    write_as_0_2_0(sessions, session)

    assert set(sessions.record(session)) >= OLD_FIELDS
    assert before == sessions.parsed(session)


@pytest.mark.parametrize("times", [1, 9, 120])
async def test_a_refresh_rewrites_the_record_and_forgets_nothing(sessions: Sessions, clock: Clock, times: int) -> None:
    session = await start_and_refresh(sessions, times)
    write_as_0_2_0(sessions, session)
    before = sessions.parsed(session)
    assert (await sessions.spend(session, times + 1)).verdict == "rotated"
    after = sessions.parsed(session)

    assert not set("tsgfmo") & set(sessions.record(session))
    assert (after.head, after.created_ms, after.subject) == (times + 2, before.created_ms, before.subject)
    assert set(before.access[1:]) <= {*after.access, *before.access[: times // 100 + 1]}
    # At 100 live access tokens, a refresh deletes the oldest one of a replay.
    assert after.replayed == (before.replayed if times < 100 else ())
    assert before.find_spent_ms(times) == after.find_spent_ms(times)
    assert (await sessions.spend(session, times)).verdict == "repeated"
    clock.advance(301)
    assert (await sessions.spend(session, times)).verdict == "replayed"
    assert not any(sessions.live(session))


@pytest.mark.clause("decided-i6-everything-expires")
async def test_the_next_refresh_gives_the_record_its_look_ahead(sessions: Sessions, clock: Clock) -> None:
    session = await sessions.start()
    write_as_0_2_0(sessions, session)
    clock.advance(1)
    await sessions.refresh(session)
    index = sessions.index(session)[session.member]

    assert 0 <= index - sessions.parsed(session).lives_until_ms <= 86_400_000
    assert int(sessions.record(session)["v"].split()[2]) + sessions.parsed(session).created_ms == index


OPERATIONS: dict[str, Operation] = {
    "refresh": lambda sessions, session: sessions.spend(session, 2),
    "replay": lambda sessions, session: sessions.spend(session, 1),
    "jump": lambda sessions, session: sessions.spend(session, 7),
    "foreign": lambda sessions, session: sessions.spend(session, 2, client_id="web-shop"),
    "revoke": lambda sessions, session: sessions.families.end(
        session.identity.shard, session.first.family_digest, client_id="phone-app", reason="revoked"
    ),
    "revokeAll": lambda sessions, session: sessions.worker.revocations.revoke_all(
        session.identity.shard, session.identity.subject
    ),
    "list": lambda sessions, session: sessions.families.list_of_user(session.identity, 9),
}


@pytest.mark.parametrize("name", OPERATIONS)
async def test_an_operation_has_the_outcome_that_it_has_with_a_new_record(sessions: Sessions, name: str) -> None:
    outcomes = []
    for make_old in (False, True):
        session = await sessions.start()
        await sessions.refresh(session)
        if make_old:
            write_as_0_2_0(sessions, session)
        outcome = await OPERATIONS[name](sessions, session)
        live = sessions.live(session)
        outcomes.append((getattr(outcome, "verdict", None), live, bool(sessions.record(session))))
        await sessions.worker.revocations.revoke_all(session.identity.shard, session.identity.subject)

    assert outcomes[0] == outcomes[1]


@pytest.mark.clause("decided-foreign-client-harms-nothing", "decided-late-replay-ends-family")
async def test_a_full_redis_answers_about_an_old_record_as_about_a_new_one(
    sessions: Sessions, store: redis.Redis, clock: Clock
) -> None:
    """A refusal writes nothing. The end of a replayed session begins with a deletion, which a full Redis accepts."""
    session = await sessions.start()
    await sessions.refresh(session)
    write_as_0_2_0(sessions, session)
    before = sessions.record(session)
    clock.advance(301)
    store.config_set("maxmemory", 1)
    try:
        foreign = await sessions.spend(session, 2, client_id="web-shop")
        with pytest.raises(StoreUnavailable):
            await sessions.spend(session, 2)
        assert before == sessions.record(session)
        late = await sessions.spend(session, 1)
    finally:
        store.config_set("maxmemory", 0)

    assert (foreign.verdict, late.verdict) == ("foreign", "replayed")
    assert (sessions.record(session), sessions.live(session)) == ({}, [False, False])


async def test_the_lines_of_a_provider_are_kept(sessions: Sessions) -> None:
    session = await sessions.start()
    write_as_0_2_0(sessions, session, provider="sid\nupstream\napi")
    await sessions.refresh(session)
    family = sessions.parsed(session)

    assert (family.sid, family.upstream_subject, family.audience) == ("sid", "upstream", "api")
    assert sessions.record(session)["g"] == "sid\nupstream\napi"
    await sessions.refresh(session)
    token = session.access_tokens[-1]
    record = str(sessions.store.get(f"access:{{{token.shard}}}:{token.digest}"))
    assert record.endswith("\nsid\nupstream\napi")


@pytest.mark.parametrize("field", ["t", "g", "o", "f", "s", "h"])
async def test_a_broken_record_is_refused(sessions: Sessions, field: str) -> None:
    session = await sessions.start()
    write_as_0_2_0(sessions, session)
    sessions.store.hdel(session.key, field)
    record = {name.encode(): text.encode() for name, text in sessions.record(session).items()}

    with pytest.raises(StoreUnavailable):
        parse_family(record)
    before = sessions.record(session)
    with pytest.raises(Exception, match=r"broken record|nil|script"):
        await sessions.spend(session, 1)
    assert before == sessions.record(session)
