"""revokeAll as a whole: thousands of sessions, several clients, a token that goes last, a break in the middle."""

import pytest

from service.protocol.user import identify_user
from service.store.connection import StoreUnavailable
from service.store.keys import access_key, index_key, revoked_key
from service.store.revocations import MOST_KEYS, Revocations
from tests.cast import ALICE, BOB
from tests.conftest import MakeSettings
from tests.store.interruptions import BreakingConnection
from tests.store.sessions import Sessions

IDENTITY = identify_user("main", ALICE.username)


@pytest.mark.clause("spec-4.4-all-tokens", "decided-revoke-all-covers")
async def test_everything_of_the_user_ends_in_every_client_and_nothing_of_others(sessions: Sessions) -> None:
    phone, shop = await sessions.start(), await sessions.start(client_id="web-shop", secret_used=True)
    code, bob = await sessions.issue_code(client_id="web-shop"), await sessions.start(BOB)
    await sessions.refresh(shop, 2)
    await sessions.parts.revocations.revoke_all(IDENTITY.shard, IDENTITY.subject)

    assert (sessions.live(phone), sessions.live(shop), sessions.live(bob)) == ([False], [False] * 3, [True])
    assert (await sessions.redeem(code))[0] == "unknown"
    assert (await sessions.spend(shop, 3)).verdict == "unknown"
    assert (await sessions.spend(bob, 1)).verdict == "rotated"


@pytest.mark.clause("decided-revoke-all-many-sessions")
async def test_more_sessions_than_one_step_takes_all_end(sessions: Sessions) -> None:
    started = [await sessions.start() for _ in range(MOST_KEYS + 20)]
    await sessions.parts.revocations.revoke_all(
        IDENTITY.shard, IDENTITY.subject, kept_family=started[7].first.family_digest
    )
    live = [access_key(IDENTITY.shard, session.access_tokens[0].digest) for session in started]

    assert sessions.store.exists(*live) == 0
    keys = (index_key(IDENTITY.shard, IDENTITY.subject), revoked_key(IDENTITY.shard, IDENTITY.subject))
    assert sessions.store.exists(*keys) == 0


@pytest.mark.clause("decided-revoke-all-presented-token-last", "decided-revoke-all-many-sessions")
@pytest.mark.parametrize("calls", range(5))
async def test_however_a_revoke_all_breaks_off_the_same_token_can_ask_again(
    sessions: Sessions, make_settings: MakeSettings, calls: int
) -> None:
    """Wherever it broke: the presented token is live, or nothing at all is."""
    started = [await sessions.start() for _ in range(600)]
    kept = started[300]
    connection = BreakingConnection(make_settings(), calls=calls)
    broken = Revocations(connection)
    with pytest.raises(StoreUnavailable):
        await broken.revoke_all(IDENTITY.shard, IDENTITY.subject, kept_family=kept.first.family_digest)
    await connection.close()
    live = [session for session in started if sessions.live(session)[0]]

    assert not live or kept in live
    await sessions.parts.revocations.revoke_all(IDENTITY.shard, IDENTITY.subject, kept_family=kept.first.family_digest)
    assert not [session for session in started if sessions.live(session)[0]]


async def test_a_user_without_anything_is_no_fault(sessions: Sessions) -> None:
    await sessions.parts.revocations.revoke_all(IDENTITY.shard, IDENTITY.subject, kept_family="unknown")

    assert (await sessions.spend(await sessions.start(), 1)).verdict == "rotated"
