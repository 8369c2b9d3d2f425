"""A revokeAll whose mark or deletions a failover loses, and sessions that are younger than every mark."""

import asyncio
from functools import partial

import pytest

from service.protocol.user import identify_user
from service.redis_client.deadline import StoreUnavailable
from service.store.keys import index_key, mark_key, revoked_key
from service.store.sessions.revocations import Revocations
from tests.conftest import MakeSettings
from tests.store.interruptions import InterposedConnection, Rollback
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE

pytestmark = pytest.mark.single_server("test_spend_refresh_token.py and test_revocations.py run the scripts elsewhere")

IDENTITY = identify_user("main", ALICE.username)
KEYS = [key(IDENTITY.shard, IDENTITY.digest) for key in (index_key, revoked_key, mark_key)]
KEYS_PER_STEP = 2
CONTENDERS = 20
ROUNDS = 5


class LossyRevocation:
    """A revokeAll of a few sessions, in small steps, during which Redis returns to an earlier state."""

    def __init__(self, sessions: Sessions, make_settings: MakeSettings) -> None:
        self._sessions = sessions
        self._settings = make_settings()

    async def run(
        self, *, lost_at: int = -1, returns_to: int = -1, stays_lost: bool = False, what: str = "everything"
    ) -> int:
        """Return to the state before script `returns_to` when script `lost_at` is about to run.

        What ends is everything, or what is older than a time just after the logins, or what came from one login at an
        identity provider. Returns the number of scripts.
        """
        sid = "a-login" if what == "one login" else ""
        self._sessions.store.delete(*KEYS, *self._sessions.store.scan_iter("mark:*"))
        rollback = Rollback(self._sessions.store)
        self.kept, *_ = self.started = [await self._sessions.start(sid=sid) for _ in range(4)]
        until_ms = self._sessions.now_ms() if what == "older" else 0

        async def before(number: int) -> None:
            rollback.save()
            if number == lost_at or (stays_lost and number > lost_at):
                rollback.return_to(returns_to)

        connection = InterposedConnection(self._settings, before)
        connection.clock_offset_ms = lambda: 1_000
        try:
            async with asyncio.timeout(20):
                revocations, kept = Revocations(connection, max_keys=KEYS_PER_STEP), self.kept.first.family_digest
                shard, user_digest = IDENTITY.shard, IDENTITY.digest
                if sid:
                    await revocations.end_provider_login(shard, user_digest, sid)
                else:
                    await revocations.revoke_all(shard, user_digest, until_ms=until_ms, kept_family=kept)
        finally:
            await connection.close()
        return connection.calls

    @property
    def live(self) -> list[Session]:
        return [session for session in self.started if any(self._sessions.live(session))]


@pytest.mark.clause("decided-i7-revocation-is-final", "decided-revoke-all-survives-lost-mark")
@pytest.mark.parametrize("what", ["everything", "older", "one login"])
async def test_a_lost_mark_or_deletion_is_made_again(
    sessions: Sessions, make_settings: MakeSettings, what: str
) -> None:
    """Redis returns to the state before each of the scripts, when each later one is about to run."""
    revocation = LossyRevocation(sessions, make_settings)
    scripts = await revocation.run(what=what)
    assert scripts >= 3
    for lost_at in range(1, scripts):
        for returns_to in range(lost_at):
            await revocation.run(lost_at=lost_at, returns_to=returns_to, what=what)

            assert revocation.live == [], (lost_at, returns_to)
            assert not sessions.store.exists(*KEYS[:2])


@pytest.mark.clause("decided-revoke-all-survives-lost-mark", "decided-revoke-all-presented-token-last")
async def test_a_mark_that_is_lost_again_and_again_is_an_outage(
    sessions: Sessions, make_settings: MakeSettings
) -> None:
    revocation = LossyRevocation(sessions, make_settings)
    with pytest.raises(StoreUnavailable):
        await revocation.run(lost_at=1, returns_to=0, stays_lost=True)

    assert revocation.kept in revocation.live


@pytest.mark.clause("decided-revoke-all-survives-lost-mark")
async def test_mark_of_another_revoke_all_hides_no_loss(sessions: Sessions, make_settings: MakeSettings) -> None:
    """A failover loses all steps of a revokeAll. Then another one is interrupted at what a third had left."""
    revoke = partial(Revocations.revoke_all, shard=IDENTITY.shard, digest=IDENTITY.digest)
    for lost_at in range(1, 100):
        sessions.store.delete(*KEYS)
        rollback = Rollback(sessions.store)
        started = [await sessions.start() for _ in range(3)]
        assert await sessions.is_interrupted(1, revoke)
        started += [await sessions.start() for _ in range(2)]
        rollback.save()

        async def before(number: int, lost_at: int = lost_at, rollback: Rollback = rollback) -> None:
            if number == lost_at:
                rollback.return_to(0)
                assert await sessions.is_interrupted(1, revoke)

        connection = InterposedConnection(make_settings(), before)
        await revoke(Revocations(connection, max_keys=KEYS_PER_STEP))
        await connection.close()

        assert not [session for session in started if sessions.live(session)[0]], lost_at
        if connection.calls <= lost_at:
            break
    assert lost_at >= 4


@pytest.mark.clause("decided-revoke-all-younger-than-mark-lives")
async def test_a_session_younger_than_every_mark_stays(sessions: Sessions, make_settings: MakeSettings) -> None:
    """Before its last step the kept session is revoked, the user logs in, and an operator revokes older sessions."""
    kept, younger = await sessions.start(), []
    hour_ago_ms = sessions.now_ms() - 3_600_000

    async def before(number: int) -> None:
        if number == 1:
            await sessions.families.end(
                IDENTITY.shard, kept.first.family_digest, client_id="phone-app", reason="revoked"
            )
            younger.append(await sessions.start())
            revoke = partial(Revocations.revoke_all, shard=IDENTITY.shard, digest=IDENTITY.digest)
            assert await sessions.is_interrupted(1, partial(revoke, until_ms=hour_ago_ms), max_keys=0)

    connection = InterposedConnection(make_settings(), before)
    await Revocations(connection).revoke_all(IDENTITY.shard, IDENTITY.digest, kept_family=kept.first.family_digest)
    await connection.close()

    assert connection.calls == 2
    assert (sessions.live(kept), sessions.live(younger[0])) == ([False], [True])
    assert (await sessions.spend(younger[0], 1)).verdict == "rotated"
    assert set(sessions.index(younger[0])) == {younger[0].member}


@pytest.mark.clause("decided-revoke-all-younger-than-mark-lives", "decided-i7-revocation-is-final")
async def test_mark_decides_during_many_revocations_and_logins(sessions: Sessions) -> None:
    """A few contenders revoke all, with steps of one key; the others log in and revoke all before an hour ago."""
    hour_ago_ms = sessions.now_ms() - 3_600_000
    revocations = Revocations(sessions.worker.redis, max_keys=1)
    for _ in range(ROUNDS):
        started = [await sessions.start() for _ in range(CONTENDERS)]

        async def contend(number: int, started: list[Session]) -> None:
            if number % 5 == 0:
                kept = started[number].first.family_digest
                await revocations.revoke_all(IDENTITY.shard, IDENTITY.digest, kept_family=kept)
                return
            for _ in range(3):
                started.append(await sessions.start())
                await revocations.revoke_all(IDENTITY.shard, IDENTITY.digest, until_ms=hour_ago_ms)

        await asyncio.gather(*(contend(number, started) for number in range(CONTENDERS)))
        marked_ms = int(str(sessions.store.get(KEYS[2])))
        created_ms = [sessions.created_ms(each) for each in started]
        assert [each > marked_ms for each in created_ms] == [sessions.live(each)[0] for each in started]
