"""The record of a token in Redis, judged as the service judges it, without a change of anything."""

import pytest
import redis

from service.crypto.keyring import make_access_token, make_first_refresh_token
from service.protocol.client import AUTHORIZATION_CODE
from service.protocol.token_form import RandomToken
from service.store.records import TombstoneRecord
from service.store.reports.token_inspection import (
    EndedFamily,
    ExchangedCode,
    InspectedAccessToken,
    InspectedRefreshToken,
    KnownFamily,
    TokenInspection,
    WaitingCode,
)
from tests.conftest import Clock
from tests.store.sessions import ENDUSER, Session, Sessions
from tests.support.clients_and_users import ALICE

pytestmark = pytest.mark.clause("decided-token-inspection")


class Inspector:
    """Inspects tokens and asserts that nothing in Redis changed."""

    def __init__(self, sessions: Sessions, store: redis.Redis) -> None:
        self._sessions = sessions
        self._store = store

    async def access_token(self, token: RandomToken) -> InspectedAccessToken:
        before = self._look()
        found = await self._inspection.inspect_access_token(token)
        assert self._look() == before
        return found

    async def refresh_token(self, session: Session, generation: int) -> InspectedRefreshToken:
        before = self._look()
        found = await self._inspection.inspect_refresh_token(session.first._replace(generation=generation))
        assert self._look() == before
        return found

    async def code(self, token: RandomToken) -> WaitingCode | ExchangedCode | None:
        before = self._look()
        found = await self._inspection.inspect_code(token)
        assert self._look() == before
        return found.code

    @property
    def _inspection(self) -> TokenInspection:
        return TokenInspection(self._sessions.worker.redis, self._sessions.lifetimes)

    def _look(self) -> dict[str, bytes | None]:
        return {str(key): self._store.dump(key) for key in self._store.scan_iter(count=1000)}


@pytest.fixture
def inspect(sessions: Sessions, store: redis.Redis) -> Inspector:
    return Inspector(sessions, store)


async def find_family(inspect: Inspector, session: Session) -> KnownFamily:
    family = (await inspect.refresh_token(session, 1)).family
    assert isinstance(family, KnownFamily)
    return family


async def test_a_live_family_is_told_with_all_that_its_record_says(
    sessions: Sessions, inspect: Inspector, clock: Clock
) -> None:
    session = await sessions.start(secret_used=True)
    clock.advance(100)
    await sessions.refresh(session, 2)
    record = sessions.parsed(session)

    assert await find_family(inspect, session) == KnownFamily(
        digest=session.first.family_digest,
        record=record._replace(
            head=3,
            grant_type="password",
            secret_used=True,
            client_id="phone-app",
            subject=session.identity.subject,
            username=ALICE.username,
            scope=ENDUSER,
        ),
        state="live",
        access_tokens=3,
        marked_at_ms=None,
    )
    clock.advance(550)
    assert (await find_family(inspect, session)).access_tokens == 2


async def test_covered_and_expired_tokens_have_separate_verdicts(
    sessions: Sessions, inspect: Inspector, clock: Clock
) -> None:
    session = await sessions.start()
    created_ms = sessions.parsed(session).created_ms
    sessions.set_mark(session, created_ms - 1)
    assert (await find_family(inspect, session)).state == "live"
    clock.advance(61)
    sessions.set_lifetimes(session_max_age_ms=60_000)
    family = await find_family(inspect, session)
    assert (family.state, family.record.expires_ms) == ("over", created_ms + 60_000)
    sessions.set_mark(session, created_ms)
    family = await find_family(inspect, session)
    assert (family.state, family.marked_at_ms) == ("revoked", created_ms)


@pytest.mark.clause("decided-ended-families")
async def test_a_family_that_ended_by_replay_is_told_for_a_day(
    sessions: Sessions, inspect: Inspector, clock: Clock
) -> None:
    session = await sessions.start()
    await sessions.refresh(session, 2)
    spent_ms = sessions.parsed(session).used_ms
    await sessions.refresh(session)
    record = sessions.parsed(session)
    clock.advance(301)
    await sessions.spend(session, 2)
    found = await inspect.refresh_token(session, 4)

    assert isinstance(found.family, EndedFamily)
    ended = found.family.record
    assert found.family.digest == session.first.family_digest
    assert ended._replace(ended_ms=0) == TombstoneRecord(
        reason="replayed",
        ended_ms=0,
        head=4,
        presented=2,
        spent_ms=spent_ms,
        client_id="phone-app",
        subject=session.identity.subject,
        username=ALICE.username,
        scope=ENDUSER,
        created_ms=record.created_ms,
    )
    assert 0 <= found.now_ms - ended.ended_ms < 1_000
    clock.advance(86_399)
    assert (await inspect.refresh_token(session, 4)).family is not None
    clock.advance(2)
    assert (await inspect.refresh_token(session, 4)).family is None


async def test_unknown_and_expired_families_are_not_found(sessions: Sessions, inspect: Inspector, clock: Clock) -> None:
    session = await sessions.start()
    clock.advance(2_678_401)
    never = Session(session.identity, "phone-app", False, make_first_refresh_token("0a3"))

    for unknown in (session, never):
        assert (await inspect.refresh_token(unknown, 1)).family is None


async def test_an_access_token_is_told_with_its_family(sessions: Sessions, inspect: Inspector) -> None:
    session = await sessions.start()
    token = session.access_tokens[0]
    found = await inspect.access_token(token)

    assert found.grant == await sessions.worker.access_tokens.find(token)
    assert found.family == await find_family(inspect, session)
    assert (await inspect.access_token(make_access_token("0a3")))[1:] == (None, None)


async def test_a_code_is_told_before_and_after_its_exchange(
    sessions: Sessions, inspect: Inspector, clock: Clock
) -> None:
    name = await sessions.issue_code()
    waiting = await inspect.code(name)
    assert isinstance(waiting, WaitingCode)
    code = waiting.record
    assert (waiting.state, code.client_id, code.username, code.scope) == ("live", "phone-app", ALICE.username, ENDUSER)
    assert code.expires_ms - code.created_ms == 60_000

    _, session = await sessions.redeem(name)
    sessions.set_mark(session, sessions.now_ms() - 1_000_000)
    exchanged = await inspect.code(name)
    assert exchanged == ExchangedCode("phone-app", session.first.family_digest, await find_family(inspect, session))
    assert (await find_family(inspect, session)).record.grant_type == AUTHORIZATION_CODE
    await sessions.worker.revocations.revoke_all(session.identity.shard, session.identity.subject)
    ended = await inspect.code(name)
    assert isinstance(ended, ExchangedCode)
    assert isinstance(ended.family, EndedFamily)
    clock.advance(601)
    assert await inspect.code(name) is None


async def test_a_code_that_a_mark_covers_is_told_as_revoked(sessions: Sessions, inspect: Inspector) -> None:
    session, name = await sessions.start(), await sessions.issue_code()
    sessions.set_mark(session, sessions.now_ms())

    waiting = await inspect.code(name)
    assert isinstance(waiting, WaitingCode)
    assert (waiting.state, waiting.record.subject) == ("revoked", session.identity.subject)
