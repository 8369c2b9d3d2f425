"""Browser sessions: a login that later pages of the same browser reuse instead of asking for it again.

Clauses: SPEC §4.1, §5.2
"""

from __future__ import annotations

from typing import Final, NamedTuple

from service.protocol.token_form import RandomToken
from service.protocol.user import Login, UserIdentity, identify_user
from service.store.client import StoreClient, load_script
from service.store.keys import browser_key, user_key
from service.store.records import BrowserSessionRecord, parse_browser_session
from service.store.user_index import list_records

_START: Final = load_script("browsers/start_browser_session")
_END: Final = load_script("browsers/end_browser_session")


class BrowserSession(NamedTuple):
    """A live browser session and its record.

    `login` of the record stays the same when the user logs in again in the same browser. `name` of the record is the
    user's display name at the identity provider; it is empty in realm main.
    """

    name: RandomToken
    record: BrowserSessionRecord

    @property
    def identity(self) -> UserIdentity:
        return identify_user(self.record.realm, self.record.username)


class BrowserSessions:
    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def start(
        self,
        name: RandomToken,
        login: Login,
        *,
        lifetime_ms: int,
        browser_name: str = "",
        former: RandomToken | None = None,
    ) -> bool:
        """Start a browser session after a login.

        Returns False if the user's record changed since the check, or the user's sessions were revoked since the login
        began.

        `former` is the session that the browser had until now, which may be another user's.
        """
        user, identity = login.user, login.user.identity
        verdict = await self._redis.run(
            _START,
            browser_key=browser_key(name.shard, name.digest),
            user_key=user_key(identity),
            browser_digest=name.digest,
            revision=user.revision,
            user_digest=identity.digest,
            subject=user.subject,
            sid=login.sid,
            begun_ms=login.begun_ms,
            realm=user.realm,
            username=user.username,
            name=login.shown_name,
            browser_name=browser_name,
            former_digest=former.digest if former is not None and former.shard == name.shard else "",
            ttl_ms=lifetime_ms,
        )
        return verdict[0] == "started"

    async def find(self, name: RandomToken) -> BrowserSession | None:
        """Return the session if its key exists, or None.

        The scripts that act on a session also check that no revokeAll covers it.
        """
        record = await self._redis.read("GET", browser_key(name.shard, name.digest))
        return None if record is None else BrowserSession(name, parse_browser_session(record))

    async def end(self, name: RandomToken) -> None:
        await self._redis.run(_END, browser_key=browser_key(name.shard, name.digest), browser_digest=name.digest)

    async def end_of_user(self, identity: UserIdentity, digest: str) -> bool:
        """End a session in any browser by its digest. Returns False if it is unknown or another user's."""
        key = browser_key(identity.shard, digest)
        record = await self._redis.read("GET", key)
        if record is None or parse_browser_session(record).user_digest != identity.digest:
            return False
        return (await self._redis.run(_END, browser_key=key, browser_digest=digest))[0] == "ended"

    async def list_of_user(
        self, identity: UserIdentity, most: int
    ) -> tuple[list[tuple[str, BrowserSessionRecord]], bool]:
        """Return at most `most` live browser sessions of the user, by digest, and True if there may be more.

        The sessions that expire last are chosen. They are sorted by their login, the latest first.
        """
        live, is_cut = await list_records(self._redis, identity, "browser", most, parse_browser_session)
        return sorted(live, key=lambda pair: pair[1].created_ms, reverse=True), is_cut
