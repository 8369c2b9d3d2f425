"""An access token revoked by its own client."""

import pytest

from tests.store.sessions import Sessions


@pytest.mark.clause("decided-revoke-access-token-alone")
async def test_revoking_an_access_token_ends_only_that_token(sessions: Sessions) -> None:
    session = await sessions.start()
    await sessions.refresh(session)
    user = await sessions.worker.access_tokens.revoke(session.access_tokens[0], client_id="phone-app")

    assert session.identity == user
    assert sessions.live(session) == [False, True]
    assert (await sessions.spend(session, 2)).verdict == "rotated"


@pytest.mark.clause("7009-2.1-own-tokens-only", "decided-revoke-foreign-token")
async def test_another_client_ends_nothing(sessions: Sessions) -> None:
    session = await sessions.start()

    assert await sessions.worker.access_tokens.revoke(session.access_tokens[0], client_id="web-shop") is None
    assert sessions.live(session) == [True]
