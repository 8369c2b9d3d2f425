"""The real store behind the model's vocabulary: numbers for names, one event loop, a clock that jumps by ticks."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, TypeVar

from service.config.settings import load_settings
from service.crypto.keyring import (
    Keyring,
    RefreshToken,
    make_access_token,
    make_browser_session,
    make_consent,
    make_first_refresh_token,
)
from service.gateway.access_record import access_key
from service.protocol.authorization_code import AuthorizationCode
from service.protocol.client import Client, Lifetimes
from service.protocol.token_form import RandomToken
from service.protocol.user import User
from service.redis_client.deadline import StoreUnavailable
from service.store.browsers.browser_sessions import BrowserSessions
from service.store.browsers.consents import Consents
from service.store.keys import browser_key, code_key, consent_key, ended_key, family_key, index_key
from service.store.records import parse_family
from service.store.registry.store import RegistryStore
from service.store.sessions.access_tokens import AccessTokens
from service.store.sessions.codes import Codes
from service.store.sessions.families import Families
from service.store.sessions.revocations import Revocations
from tests.conftest import SECRET_KEY, AnyRedis, environment_of, read_server_ms
from tests.invariants import model
from tests.store.interruptions import InterposedConnection
from tests.support.codes import allow_code, consent_request_for, make_code_to_allow
from tests.support.logins import login_of

Result = TypeVar("Result")

SCOPE = "realm:main role:enduser"
USERS = {name: User(realm="main", username=name, roles=("enduser",)) for name in ("alice", "bob")}
LIFETIMES = Lifetimes(
    access_token_ms=round(model.LIFETIMES.access_token_ttl * 1000),
    refresh_token_ms=round(model.LIFETIMES.refresh_token_ttl * 1000),
    session_max_age_ms=round(model.LIFETIMES.session_max_age * 1000),
    code_ms=round(model.CODE_SECONDS * 1000),
    refresh_grace_ms=round(model.GRACE_SECONDS * 1000),
    sessions_per_user=model.SESSIONS_PER_USER,
)


def make_code(user: str, client_id: str) -> AuthorizationCode:
    return make_code_to_allow(user, client_id, "https://app.example/", SCOPE)


class ServiceUnderTest:
    """`loop` runs in another thread, so that connections live on between two operations.

    `move_time` must come before each operation: it sets the scripts' clock and lets the keys age with it.
    """

    def __init__(self, server: AnyRedis, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._store = server.connect()
        self._store.flushall()
        self._began_ms = read_server_ms(self._store)
        self._offset_ms = 0
        self._before: Callable[[int], None] = lambda _: None
        self._connection = InterposedConnection(load_settings(environment_of(server)), self._fail)
        self._connection.clock_offset_ms = lambda: self._offset_ms
        self._families = Families(self._connection, LIFETIMES)
        self._codes = Codes(self._connection, LIFETIMES)
        self._browser_sessions = BrowserSessions(self._connection)
        self._consents = Consents(self._connection, LIFETIMES, consent_ms=round(1000 * model.CONSENT_SECONDS))
        self._keyring = Keyring((SECRET_KEY.encode(),))
        self._access_tokens = AccessTokens(self._connection)
        self._revocations = Revocations(self._connection, max_keys=1)  # so most take several steps
        self._registry = RegistryStore(self._connection)
        for user in USERS.values():
            self._run(self._registry.users.put(user))
        self._users = {name: self._run(self._registry.users.find(user.identity)) for name, user in USERS.items()}
        self._clients: dict[str, Client] = {}
        self.family_names: dict[int, RefreshToken] = {}
        self.code_names: dict[int, RandomToken] = {}
        self.access_names: dict[int, RandomToken] = {}
        self.browser_names: dict[int, RandomToken] = {}
        self.consents: dict[int, tuple[RandomToken, AuthorizationCode]] = {}
        self.immortal: list[str] = []
        """Keys without an end that are not a user's record, as `move_time` saw them."""

    def close(self) -> None:
        self._run(self._connection.close())
        self._store.close()

    def move_time(self, seconds: float) -> None:
        """Move the time by Redis to this many seconds after the beginning, and let every key age accordingly.

        It is never set back. Otherwise a mark could be earlier than a record that was created before it.
        """
        offset_ms = self._began_ms + round(1000 * seconds) - read_server_ms(self._store)
        step_ms = max(0, offset_ms - self._offset_ms)
        self._offset_ms += step_ms
        keys = list(self._store.scan_iter(count=1000))
        pipeline = self._store.pipeline(transaction=False)
        for key in keys:
            pipeline.pttl(key)
        left = dict(zip(keys, pipeline.execute(), strict=True))
        self.immortal = [key for key, left_ms in left.items() if left_ms == -1 and not key.startswith("user:")]
        for key, left_ms in left.items():
            if left_ms >= 0 and step_ms:
                pipeline.pexpire(key, max(0, left_ms - step_ms))
        pipeline.execute()

    def set_lifetimes(self, client_id: str, lifetimes: model.Lifetimes) -> None:
        self._clients[client_id] = Client(client_id=client_id, scope=SCOPE, **lifetimes._asdict())

    def start(self, number: int, access: int, user: str, client_id: str, sid: str, begun: float) -> bool:
        """Finish a login that began at that time. Returns False if a revocation overtook it."""
        found = self._user(user)
        family, token = make_first_refresh_token(found.identity.shard), make_access_token(found.identity.shard)
        lives_ms = self._run(
            self._families.start(
                login_of(found, sid, begun_ms=self._began_ms + round(1000 * begun)),
                client=self._clients[client_id],
                scope=SCOPE,
                secret_used=False,
                refresh_token=family,
                access_token=token,
            )
        )
        if lives_ms is not None:
            self.family_names[number], self.access_names[access] = family, token
        return lives_ms is not None

    def issue_code(self, number: int, user: str, client_id: str, sid: str) -> None:
        """All that it takes, in a browser of its own."""
        code = make_code(user, client_id)
        self.code_names[number] = self._run(
            allow_code(self._browser_sessions, self._consents, self._keyring, self._user(user), code, sid)
        )

    def sign_in(self, number: int, user: str, sid: str, seconds: float) -> None:
        found = self._user(user)
        name = make_browser_session(found.identity.shard)
        assert self._run(self._browser_sessions.start(name, login_of(found, sid), lifetime_ms=round(1000 * seconds)))
        self.browser_names[number] = name

    def sign_out(self, number: int) -> None:
        self._run(self._browser_sessions.end(self.browser_names[number]))

    def hold(self, number: int, browser: int, user: str, client_id: str) -> bool:
        session = self.browser_names[browser]
        name, code = make_consent(session.shard), make_code(user, client_id)
        self.consents[number] = name, code
        return self._run(self._consents.hold(name, session, consent_request_for(code)))

    def allow(self, number: int, browser: int) -> str:
        name, code = self.consents[number]
        code_name = self._keyring.derive_code(name)
        session, user = self.browser_names[browser], self._user(code.username)
        answer = self._run(self._consents.allow(name, session, user, code_name, consent_request_for(code)))
        if answer in ("issued", "repeated"):
            self.code_names[number] = code_name
        return answer

    def deny(self, number: int, browser: int) -> str:
        return self._run(self._consents.deny(self.consents[number][0], self.browser_names[browser]))

    def redeem(self, number: int, family: int, access: int, client_id: str) -> str:
        name, client = self.code_names[number], self._clients[client_id]
        refresh_token, token = make_first_refresh_token(name.shard), make_access_token(name.shard)
        outcome = self._run(
            self._codes.redeem(name, client=client, secret_used=False, refresh_token=refresh_token, access_token=token)
        )
        self.family_names[family], self.access_names[access] = refresh_token, token
        return outcome if isinstance(outcome, str) else "redeemed"

    def spend(self, number: int, access: int, generation: int, client_id: str) -> str:
        family = self.family_names[number]
        token = make_access_token(family.shard)
        outcome = self._run(
            self._families.spend(
                family._replace(generation=generation),
                client=self._clients[client_id],
                secret_used=False,
                wanted_scope="",
                access_token=token,
            )
        )
        self.access_names[access] = token
        return outcome.verdict

    def end(self, number: int, client_id: str) -> bool:
        family = self.family_names[number]
        work = self._families.end(family.shard, family.family_digest, client_id=client_id, reason="revoked")
        return self._run(work) is not None

    def revoke_access(self, access: int, client_id: str) -> bool:
        return self._run(self._access_tokens.revoke(self.access_names[access], client_id=client_id)) is not None

    def revoke_all(self, user: str, *, kept_family: int | None = None, kept_browser: int | None = None) -> None:
        identity = USERS[user].identity
        family = "" if kept_family is None else self.family_names[kept_family].family_digest
        browser = "" if kept_browser is None else self.browser_names[kept_browser].digest
        self._run(
            self._revocations.revoke_all(identity.shard, identity.digest, kept_family=family, kept_browser=browser)
        )

    def end_provider_login(self, user: str, sid: str) -> None:
        identity = USERS[user].identity
        self._run(self._revocations.end_provider_login(identity.shard, identity.digest, sid))

    def revoke_until(self, user: str, seconds: float) -> None:
        """Revoke what was made up to that time after the beginning. The time that the test itself takes counts."""
        identity = USERS[user].identity
        until_ms = self._began_ms + round(1000 * (seconds + model.BESIDE_SECONDS))
        self._run(self._revocations.revoke_all(identity.shard, identity.digest, until_ms=until_ms))

    def fail_over_during(self, revoke: Callable[[], None], at: int, back: int, *, breaks: bool) -> int | None:
        """Revoke something, and let Redis lose the writes of the last `back` scripts before the script `at`.

        With `breaks` the connection is lost then, too. Returns the number of scripts whose writes were kept if that
        broke off the revocation, or None if it completed.
        """
        states: list[dict[str, tuple[bytes, int]]] = []
        kept = max(0, at - back)

        def fail(number: int) -> None:
            states.append(self.dump())
            if number == at:
                self.restore(states[kept], 0)
                if breaks:
                    raise StoreUnavailable("broken by the test")

        self._connection.calls, self._before = 0, fail
        try:
            revoke()
        except StoreUnavailable:
            return kept
        finally:
            self._before = lambda _: None
        return None

    def dump(self) -> dict[str, tuple[bytes, int]]:
        keys = list(self._store.scan_iter(count=1000))
        return {key: (self._store.dump(key) or b"", int(self._store.pttl(key))) for key in keys}

    def restore(self, dump: Mapping[str, tuple[bytes, int]], passed_seconds: float) -> None:
        """Restore the dump, as a failover to a copy does that is this much behind."""
        self._store.flushall()
        passed_ms = round(1000 * passed_seconds)
        for key, (value, left_ms) in dump.items():
            if left_ms == -1:
                self._store.restore(key, 0, value)  # 0 stands for a key without a TTL
            elif left_ms > passed_ms:
                self._store.restore(key, left_ms - passed_ms, value)

    @property
    def live_access(self) -> set[int]:
        keys = {number: access_key(token.shard, token.digest) for number, token in self.access_names.items()}
        return {number for number, record in self._read(keys).items() if record is not None}

    @property
    def heads(self) -> dict[int, int]:
        """Return the head of each family that is not over."""
        keys = {number: family_key(name.shard, name.family_digest) for number, name in self.family_names.items()}
        records = self._read(keys).items()
        families = {number: parse_family(record.encode()) for number, record in records if record is not None}
        now_ms = read_server_ms(self._store) + self._offset_ms
        return {number: family.head for number, family in families.items() if now_ms < family.lives_until_ms}

    @property
    def ended(self) -> dict[int, tuple[str, int, int | None]]:
        """Return for each remembered family why it ended, its head, and the replayed generation."""
        keys = {number: ended_key(name.shard, name.family_digest) for number, name in self.family_names.items()}
        lines = {number: record.split("\n") for number, record in self._read(keys).items() if record}
        return {number: (line[2], int(line[3]), int(line[4]) if line[4] else None) for number, line in lines.items()}

    @property
    def indexed(self) -> set[int]:
        """Return the families that the indexes of the users name, without expired entries."""
        now_ms = read_server_ms(self._store) + self._offset_ms
        keys = [index_key(user.identity.shard, user.identity.digest) for user in USERS.values()]
        members: set[Any] = {member for key in keys for member in self._store.zrangebyscore(key, now_ms, "+inf")}
        return {number for number, name in self.family_names.items() if f"family:{name.family_digest}" in members}

    @property
    def browsers(self) -> set[int]:
        keys = {number: browser_key(name.shard, name.digest) for number, name in self.browser_names.items()}
        return {number for number, record in self._read(keys).items() if record is not None}

    @property
    def answers(self) -> dict[int, str]:
        """Return for each consent its answer: "", "denied" or "allowed"."""
        keys = {number: consent_key(name.shard, name.digest) for number, (name, _) in self.consents.items()}
        answers = {number: record.split("\n")[5] for number, record in self._read(keys).items() if record}
        return {number: answer if answer in ("", "denied") else "allowed" for number, answer in answers.items()}

    @property
    def waiting_codes(self) -> set[int]:
        keys = {number: code_key(name.shard, name.digest) for number, name in self.code_names.items()}
        return {number for number, record in self._read(keys).items() if record is not None}

    async def _fail(self, number: int) -> None:
        self._before(number)

    def _user(self, user: str) -> User:
        found = self._users[user]
        assert found is not None
        return found

    def _read(self, keys: Mapping[int, str], command: str = "get") -> dict[int, Any]:
        pipeline: Any = self._store.pipeline(transaction=False)
        for key in keys.values():
            getattr(pipeline, command)(key)
        return dict(zip(keys, pipeline.execute(), strict=True))

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()
