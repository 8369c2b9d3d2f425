"""A family started by a password login."""

import msgspec
import pytest

from service.crypto.keyring import make_access_token, make_first_refresh_token
from service.protocol.user import User
from service.store.records import FamilyRecord
from tests.store.sessions import Sessions
from tests.support.clients_and_users import ALICE


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


@pytest.mark.clause("decided-access-token-within-family")
@pytest.mark.parametrize("lifetimes", [{"refresh_token_ms": 90_000}, {"session_max_age_ms": 90_000}])
async def test_no_access_token_outlives_its_family(sessions: Sessions, lifetimes: dict[str, int]) -> None:
    sessions.set_lifetimes(**lifetimes)
    session = await sessions.start()
    grant = await sessions.worker.access_tokens.find(session.access_tokens[0])

    assert grant is not None
    assert sessions.parsed(session).expires_ms == grant.expires_at_ms
    assert await try_to_start(sessions, await sessions.find_user()) == 90_000


async def test_login_with_a_changed_record_starts_no_session(sessions: Sessions) -> None:
    user = await sessions.find_user()
    await sessions.worker.registry.put_user(msgspec.structs.replace(user, disabled=True))
    before = set(sessions.store.scan_iter())

    assert await try_to_start(sessions, user) is None
    assert before == set(sessions.store.scan_iter())


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
