"""A family started by a password login."""

import msgspec
import pytest

from service.crypto.keyring import make_access_token, make_first_refresh_token
from service.protocol.user import User
from service.store.records import FamilyRecord
from service.worker import Worker
from tests.conftest import Clock
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE, BOB


async def try_to_start(sessions: Sessions, user: User) -> int | None:
    shard = user.identity.shard
    return await sessions.families.start(
        user,
        client_id="phone-app",
        scope="realm:main role:enduser",
        secret_used=False,
        refresh_token=make_first_refresh_token(shard),
        access_token=make_access_token(shard),
    )


async def test_a_family_begins_with_its_first_generation_as_head(sessions: Sessions) -> None:
    before_ms = sessions.now_ms()
    session = await sessions.start(secret_used=True)
    family = sessions.parsed(session)

    assert before_ms <= family.created_ms <= sessions.now_ms()
    assert family == FamilyRecord(
        head=1,
        created_ms=family.created_ms,
        expires_ms=family.created_ms + 2_592_000_000,
        access_until_ms=family.created_ms + 600_000,
        subject=session.identity.subject,
        client_id="phone-app",
        username=ALICE.username,
        scope="realm:main role:enduser",
        grant_type="password",
        secret_used=True,
        used_ms=family.created_ms,
        access_digests=(session.access_tokens[0].digest,),
    )


async def test_first_access_token_is_live(sessions: Sessions, worker: Worker) -> None:
    session = await sessions.start()
    grant = await worker.access_tokens.find(session.access_tokens[0])

    assert grant is not None
    assert (session.identity.subject, ALICE.username) == (grant.subject, grant.username)
    assert (grant.client_id, grant.scope) == ("phone-app", "realm:main role:enduser")
    assert session.first.family_digest == grant.family_digest
    assert grant.expires_at_ms - grant.issued_at_ms == 600_000


@pytest.mark.clause("decided-access-token-within-family")
@pytest.mark.parametrize("lifetimes", [{"refresh_token_ms": 90_000}, {"session_max_age_ms": 90_000}])
async def test_no_access_token_outlives_its_family(sessions: Sessions, lifetimes: dict[str, int]) -> None:
    sessions.set_lifetimes(**lifetimes)
    session = await sessions.start()
    grant = await sessions.worker.access_tokens.find(session.access_tokens[0])

    assert grant is not None
    assert sessions.parsed(session).expires_ms == grant.expires_at_ms
    assert await try_to_start(sessions, await sessions.find_user()) == 90_000


@pytest.mark.clause("decided-i6-everything-expires")
async def test_family_access_token_and_index_end_by_themselves(
    sessions: Sessions, clock: Clock, registry: None
) -> None:
    kept = set(sessions.store.scan_iter())
    session = await sessions.start()
    in_index = sessions.index(session)[session.member]

    assert sessions.parsed(session).expires_ms + 86_400_000 == in_index
    clock.advance(2_678_400 - 1)
    assert sessions.record(session)
    clock.advance(2)
    assert kept == set(sessions.store.scan_iter())


async def test_login_with_a_changed_record_starts_no_session(sessions: Sessions) -> None:
    user = await sessions.find_user()
    await sessions.worker.registry.put_user(msgspec.structs.replace(user, disabled=True))
    before = set(sessions.store.scan_iter())

    assert await try_to_start(sessions, user) is None
    assert before == set(sessions.store.scan_iter())


async def test_login_of_a_deleted_user_starts_no_session(sessions: Sessions) -> None:
    user = await sessions.find_user()
    sessions.store.delete(f"user:{{{user.identity.shard}}}:{user.identity.subject}")

    assert await try_to_start(sessions, user) is None


@pytest.mark.clause("decided-revoke-all-later-tokens-live")
@pytest.mark.parametrize("ahead_ms", [0, 5_000])
async def test_session_after_a_mark_is_younger(sessions: Sessions, ahead_ms: int) -> None:
    """This holds in the millisecond of the mark, and if the clock went backwards since."""
    earlier = await sessions.start()
    marked_ms = sessions.now_ms() + 1_000 + ahead_ms
    sessions.set_mark(earlier, marked_ms)
    later = await sessions.run_at(marked_ms - ahead_ms, sessions.start)

    assert marked_ms + 1 == sessions.parsed(later).created_ms
    assert (await sessions.spend(later, 1)).verdict == "rotated"
    assert (await sessions.spend(earlier, 1)).verdict == "unknown"


async def test_two_logins_of_one_user_are_two_families(sessions: Sessions) -> None:
    one, two = await sessions.start(), await sessions.start()

    assert one.key != two.key
    assert {one.member, two.member} == set(sessions.index(one))


async def test_users_have_indexes_of_their_own(sessions: Sessions) -> None:
    alice, bob = await sessions.start(), await sessions.start(BOB)

    def members(session: Session) -> set[str]:
        return set(sessions.index(session))

    assert ({alice.member}, {bob.member}) == (members(alice), members(bob))
