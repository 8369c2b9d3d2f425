"""Sessions below HTTP, for the tests of the store and of the invariants."""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast
from unittest.mock import patch

import msgspec
import redis

from service.crypto.keyring import RefreshToken, make_access_token, make_first_refresh_token
from service.gateway.access_record import access_key
from service.protocol.authorization_code import AuthorizationCode
from service.protocol.client import Client, Lifetimes
from service.protocol.scope import MAIN_REALM
from service.protocol.token_form import RandomToken
from service.protocol.user import Login, User, UserIdentity, identify_user
from service.redis_client.deadline import StoreUnavailable
from service.redis_client.script import Script
from service.store.browsers.consents import Consents
from service.store.client import load_script
from service.store.keys import code_key, ended_key, family_key, index_key, mark_key, revoked_key
from service.store.records import FamilyRecord, parse_family
from service.store.sessions.codes import Codes
from service.store.sessions.families import Families, RefreshRefused, Spent
from service.store.sessions.revocations import Revocations
from service.worker import Worker
from tests.conftest import Elapsed, read_server_ms
from tests.store.interruptions import BreakingConnection
from tests.support.clients_and_users import ALICE, PHONE_CALLBACK, UserCredentials
from tests.support.codes import allow_code, make_code_to_allow
from tests.support.logins import login_of

ENDUSER = "realm:main role:enduser"
ALL_SCOPES = "realm:main realm:cep role:enduser role:organisation role:device"

DEFAULT_LIFETIMES = Lifetimes(
    access_token_ms=600_000,
    refresh_token_ms=2_592_000_000,
    session_max_age_ms=None,
    code_ms=60_000,
    refresh_grace_ms=300_000,
    sessions_per_user=1_000,
)

KEPT_MS = 2_592_000_000 + 86_400_000
"""How long the entry of a family in the index lives, with the look-ahead of a day."""

Result = TypeVar("Result")

_TOMBSTONE_LINES = "version ended_ms reason head presented spent_ms created_ms client_id subject username scope"


@dataclass
class Session:
    """The result of a grant: the family, and every access token in the order of issue."""

    identity: UserIdentity
    client_id: str
    secret_used: bool
    first: RefreshToken
    access_tokens: list[RandomToken] = field(default_factory=list)

    @property
    def key(self) -> str:
        return family_key(self.identity.shard, self.first.family_digest)

    @property
    def member(self) -> str:
        """Return the family's name in the user's index."""
        return f"family:{self.first.family_digest}"


class Sessions:
    """Starts and refreshes sessions. The lifetimes may change between the calls. `own` are those of the client."""

    def __init__(self, worker: Worker, store: redis.Redis, **lifetimes: int | None) -> None:
        self.worker = worker
        self.store = store
        self.elapsed = Elapsed(store)
        self.set_lifetimes(**lifetimes)

    def set_lifetimes(self, **lifetimes: int | None) -> None:
        """Change the lifetimes, as a restart of the service with other settings does."""
        self.lifetimes = msgspec.structs.replace(DEFAULT_LIFETIMES, **lifetimes)
        self.families = Families(self.worker.redis, self.lifetimes)
        self.codes = Codes(self.worker.redis, self.lifetimes)
        self.consents = Consents(self.worker.redis, self.lifetimes)

    async def find_user(self, credentials: UserCredentials = ALICE) -> User:
        """Return the user. Users of other realms than main may have no record."""
        user = await self.worker.registry.users.find(identify_user(credentials.realm, credentials.username))
        assert user is not None or credentials.realm != MAIN_REALM
        return user or User(realm=credentials.realm, username=credentials.username)

    async def start(
        self,
        credentials: UserCredentials = ALICE,
        client_id: str = "phone-app",
        *,
        scope: str = ENDUSER,
        secret_used: bool = False,
        sid: str = "",
        **own: Any,
    ) -> Session:
        user = await self.find_user(credentials)
        session = Session(
            user.identity,
            client_id,
            secret_used,
            make_first_refresh_token(user.identity.shard),
            [self._make_access_token(user)],
        )
        lives_ms = await self.families.start(
            login_of(user, sid),
            client=Client(client_id=client_id, **own),
            scope=scope,
            secret_used=secret_used,
            refresh_token=session.first,
            access_token=session.access_tokens[0],
        )
        assert lives_ms is not None
        return session

    async def try_to_start(self, login: Login) -> int | None:
        """Start a session that is not used any more. Returns the lifetime of its access token, or None if refused."""
        return await self.families.start(
            login,
            client=Client(client_id="phone-app"),
            scope=ENDUSER,
            secret_used=False,
            refresh_token=make_first_refresh_token(login.user.identity.shard),
            access_token=self._make_access_token(login.user),
        )

    async def spend(
        self,
        session: Session,
        generation: int,
        *,
        client_id: str | None = None,
        secret_used: bool | None = None,
        wanted_scope: str = "",
        allowed_scope: str = ALL_SCOPES,
        **own: Any,
    ) -> Spent | RefreshRefused:
        access_token = make_access_token(session.identity.shard)
        outcome = await self.families.spend(
            session.first._replace(generation=generation),
            client=Client(client_id=client_id or session.client_id, scope=allowed_scope, **own),
            secret_used=session.secret_used if secret_used is None else secret_used,
            wanted_scope=wanted_scope,
            access_token=access_token,
        )
        if isinstance(outcome, Spent):
            session.access_tokens.append(access_token)
        return outcome

    async def refresh(self, session: Session, times: int = 1) -> Spent:
        """Spend the newest generation so many times."""
        assert times > 0
        outcomes = [await self.spend(session, self.parsed(session).head) for _ in range(times)]
        last = outcomes[-1]
        assert isinstance(last, Spent), last
        return last

    async def issue_code(
        self, credentials: UserCredentials = ALICE, client_id: str = "phone-app", **fields: str
    ) -> RandomToken:
        """Issue a code that the user allowed in a browser that is signed out again. The answered consent stays."""
        code = msgspec.structs.replace(make_code_of(credentials), client_id=client_id, **fields)
        user = await self.find_user(credentials)
        return await allow_code(self.worker.browser_sessions, self.consents, self.worker.keyring, user, code)

    async def redeem(
        self,
        name: RandomToken,
        credentials: UserCredentials = ALICE,
        client_id: str = "phone-app",
        *,
        secret_used: bool = False,
    ) -> tuple[int | str, Session]:
        identity = identify_user(credentials.realm, credentials.username)
        session = Session(identity, client_id, secret_used, make_first_refresh_token(name.shard))
        client, access_token = Client(client_id=client_id), make_access_token(name.shard)
        outcome = await self.codes.redeem(
            name, client=client, secret_used=secret_used, refresh_token=session.first, access_token=access_token
        )
        session.access_tokens.append(access_token)
        return outcome, session

    def record(self, session: Session) -> str | None:
        """Return the family's record, or None if there is none."""
        return cast("str | None", self.store.get(session.key))

    def parsed(self, session: Session) -> FamilyRecord:
        """Return the family's record as the service reads it."""
        return parse_family((self.record(session) or "").encode())

    def tombstone(self, session: Session) -> dict[str, str]:
        """Return the tombstone by the names of its lines, or nothing if there is none."""
        text = self.store.get(ended_key(session.identity.shard, session.first.family_digest))
        return {} if text is None else dict(zip(_TOMBSTONE_LINES.split(), str(text).split("\n"), strict=True))

    def created_ms(self, session: Session) -> int:
        """Return the time of the login, also if the session has ended."""
        tombstone = self.tombstone(session)
        return int(tombstone["created_ms"]) if tombstone else self.parsed(session).created_ms

    def live(self, session: Session) -> list[bool]:
        """Return for each access token, in the order of issue, whether it is live."""
        return [bool(self.store.exists(access_key(token.shard, token.digest))) for token in session.access_tokens]

    def code_is_there(self, name: RandomToken) -> bool:
        return bool(self.store.exists(code_key(name.shard, name.digest)))

    def index(self, session: Session) -> dict[str, int]:
        """Return the user's index: each member, and when it ends in milliseconds."""
        key = index_key(session.identity.shard, session.identity.digest)
        members: Any = self.store.zrange(key, 0, -1, withscores=True)
        return {str(member): int(ends_ms) for member, ends_ms in members}

    def pttl(self, key: str) -> int:
        return int(self.store.pttl(key))

    async def is_interrupted(
        self, calls: int, revoke: Callable[[Revocations], Awaitable[object]], *, max_keys: int = 2
    ) -> bool:
        """Revoke over a connection that fails after so many calls. Returns True if it failed.

        An endless loop fails the test.
        """
        connection = BreakingConnection(self.worker.settings, calls=calls)
        connection.clock_offset_ms = self.worker.redis.clock_offset_ms
        try:
            async with asyncio.timeout(20):
                await revoke(Revocations(connection, max_keys=max_keys))
        except StoreUnavailable:
            return True
        finally:
            await connection.close()
        return False

    async def run_revoke_all(
        self,
        identity: UserIdentity,
        most_keys: int,
        *,
        kept: Session | None = None,
        until_ms: int = 0,
        marked_ms: int = 0,
    ) -> list[str | int]:
        """Run one step of a revokeAll."""
        return await self.worker.redis.run(
            load_script("sessions/revoke_all"),
            user_keys=[key(identity.shard, identity.digest) for key in (mark_key, index_key, revoked_key)],
            most_keys=most_keys,
            kept_member=kept.member if kept else "",
            until_ms=until_ms,
            least_lifetime_ms=60_000,
            sid="",
            reason="revoke_all",
            marks=[marked_ms],
        )

    def now_ms(self) -> int:
        """Return the time of Redis with the offset that the scripts get."""
        return read_server_ms(self.store) + self.worker.redis.clock_offset_ms()

    def set_mark(self, session: Session, marked_ms: int) -> None:
        """Set the mark of a revokeAll that has deleted nothing yet."""
        self.store.set(mark_key(session.identity.shard, session.identity.digest), marked_ms, px=10_000_000)

    async def run_at(self, at_ms: int, call: Callable[[], Awaitable[Result]]) -> Result:
        """Run the call with a clock that stands still at that millisecond for each of its scripts."""
        connection = self.worker.redis
        run, stands_ms = connection._run, read_server_ms(self.store)

        async def run_then(
            ask: Callable[..., Awaitable[Any]], script: Script, keys: Sequence[str], arguments: Sequence[str | int]
        ) -> list[str | int]:
            return await run(ask, stop_clock(script, stands_ms), keys, arguments)

        with (
            patch.object(connection, "_run", run_then),
            patch.object(connection, "clock_offset_ms", lambda: at_ms - stands_ms),
        ):
            return await call()

    @staticmethod
    def _make_access_token(user: User) -> RandomToken:
        return make_access_token(user.identity.shard)


def make_code_of(credentials: UserCredentials) -> AuthorizationCode:
    """Return the code that a user may allow phone-app."""
    return make_code_to_allow(credentials.username, "phone-app", PHONE_CALLBACK, ENDUSER)


def stop_clock(script: Script, stands_ms: int) -> Script:
    """Return the script with this time, in milliseconds, instead of the server's."""
    seconds, ms = divmod(stands_ms, 1000)
    text = script.text.replace("redis.call('TIME')", f"{{{seconds}, {ms * 1000}}}")
    return script._replace(text=text, sha1=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())
