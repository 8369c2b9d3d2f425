"""A sweep over all users, which ends the families that the judge rejects, of the given clients only."""

import pytest

from service.protocol.client import AUTHORIZATION_CODE, PASSWORD
from service.protocol.user import identify_user
from service.redis_client.deadline import UnreadableRecord
from service.store.keys import index_key, revoked_key
from service.store.reports.session_scan import Session as Judged
from service.store.reports.session_scan import SessionScan
from tests.store.pages import Pages
from tests.store.sessions import ENDUSER, Sessions
from tests.support.clients_and_users import ALICE, BOB, METER, UserCredentials


@pytest.fixture
def session_scan(sessions: Sessions) -> SessionScan:
    return SessionScan(sessions.worker.redis, sessions.families)


async def test_judge_receives_scope_and_client_of_a_session(sessions: Sessions, session_scan: SessionScan) -> None:
    await sessions.start(scope="realm:main role:enduser role:organisation")
    await sessions.redeem(await sessions.issue_code(client_id="web-shop"), client_id="web-shop")
    await sessions.issue_code()
    judged: list[Judged] = []

    def keep(session: Judged) -> None:
        judged.append(session)

    assert await session_scan.end_sessions({"phone-app", "web-shop"}, keep) == 0
    assert {
        ("phone-app", PASSWORD, ALICE.username, "realm:main role:enduser role:organisation"),
        ("web-shop", AUTHORIZATION_CODE, ALICE.username, ENDUSER),
        ("phone-app", AUTHORIZATION_CODE, ALICE.username, ENDUSER),
    } == {(each.client_id, each.grant_type, each.username, each.scope) for each in judged}


async def test_hundreds_of_sessions_are_all_seen(sessions: Sessions, session_scan: SessionScan) -> None:
    started = [await sessions.start(person) for person in (ALICE, BOB) for _ in range(150)]

    assert await session_scan.end_sessions({"phone-app"}, lambda _: "cli") == 300
    assert not [session for session in started if sessions.record(session) or sessions.live(session)[0]]
    assert {} == sessions.index(started[0]) == sessions.index(started[-1])


@pytest.mark.clause("decided-revoke-all-issued-before")
async def test_scan_finds_every_user_with_sessions(sessions: Sessions, pages: Pages, session_scan: SessionScan) -> None:
    """This includes a user who has only a browser session, and a user whose revokeAll was cut short."""
    started = [await sessions.start(person) for person in (ALICE, BOB)]
    page = await pages.open(METER)
    await sessions.start(BOB)
    gone = await sessions.start(UserCredentials("gone", "", realm="cep"))
    await sessions.worker.revocations.revoke_all(gone.identity.shard, gone.identity.digest)
    shard, user_digest = started[0].identity.shard, started[0].identity.digest
    sessions.store.rename(index_key(shard, user_digest), revoked_key(shard, user_digest))
    expected = {(session.identity.shard, session.identity.digest) for session in started}
    meter = identify_user(METER.realm, METER.username)

    assert await session_scan.list_shard_groups() == [""]
    found = list(await session_scan.list_users(with_records=False))
    assert len(found) == len(set(found))
    assert set(found) == expected | {(meter.shard, meter.digest)}
    session_scan.listed_keys = 1  # as if Redis had more keys than the console can list
    groups = await session_scan.list_shard_groups()
    assert len(groups) in (16, 4096)
    taken = [group for group in groups if any(shard.startswith(group) for shard, _ in found)]
    assert sorted(found) == sorted(
        [each for group in taken for each in await session_scan.list_users(group, with_records=False)]
    )
    assert page.browser.shard == meter.shard


@pytest.mark.clause("decided-newer-record")
async def test_session_that_cannot_be_ended_keeps_no_other(sessions: Sessions) -> None:
    started = [await sessions.start() for _ in range(9)]
    for broken in started[::2]:
        sessions.store.set(broken.key, str(sessions.record(broken)).replace("\np\n0\n", "\np\nx\n"), keepttl=True)
    with pytest.raises(UnreadableRecord):
        await sessions.worker.session_scan.end_sessions(["phone-app"], lambda _: "cli")
    assert not any(sessions.record(each) for each in started[1::2])
