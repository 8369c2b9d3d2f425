"""Every script that reads a record of lines treats one of another version, or without all lines, as an outage."""

from collections.abc import Awaitable, Callable

import pytest

from service.gateway.access_record import access_key
from service.redis_client.deadline import UnreadableRecord
from tests.store.pages import Pages
from tests.store.sessions import Sessions

KINDS = ("browser", "consent", "code", "access", "family")


@pytest.mark.clause("decided-newer-record", "decided-i10-outage-is-not-theft")
@pytest.mark.parametrize("kind", KINDS)
async def test_an_unreadable_record_is_an_outage(sessions: Sessions, pages: Pages, kind: str) -> None:
    session, page, answered = await sessions.start(), await pages.open(), await pages.open()
    assert await pages.allow(answered) == "issued"
    digest, access = session.first.family_digest, session.access_tokens[0]
    shard, worker = session.identity.shard, sessions.worker
    key = {
        "browser": page.browser_key,
        "consent": page.consent_key,
        "code": answered.code_key,
        "access": access_key(shard, access.digest),
        "family": session.key,
    }[kind]
    calls: dict[str, list[Callable[[], Awaitable[object]]]] = {
        "browser": [
            lambda: pages.hold(page),
            lambda: pages.deny(page),
            lambda: worker.browser_sessions.end(page.browser),
        ],
        "consent": [lambda: pages.allow(page), lambda: pages.deny(page)],
        "code": [lambda: sessions.redeem(answered.code_name)],
        "access": [lambda: worker.access_tokens.revoke(access, client_id="phone-app")],
        "family": [
            lambda: sessions.spend(session, 1),
            lambda: sessions.families.end(shard, digest, client_id="phone-app", reason="revoked"),
        ],
    }
    lines = str(sessions.store.get(key)).split("\n")
    for unreadable in (["3", *lines[1:]], *(lines[:count] for count in (0, 1, 3, len(lines) - 1))):
        sessions.store.set(key, "\n".join(unreadable), keepttl=True)
        before = set(sessions.store.scan_iter())
        for call in calls[kind]:
            with pytest.raises(UnreadableRecord):
                await call()
        assert set(sessions.store.scan_iter()) == before
