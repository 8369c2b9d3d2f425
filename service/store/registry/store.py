"""Records of clients, realms and users, and the entries of a seed file as they were last applied.

Clauses: RFC 6749 §2, SPEC §2.3
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Generic, Literal, NamedTuple, TypeVar

import msgspec

from service.protocol.client import Client, find_narrowing
from service.protocol.provider import IdentityProvider
from service.protocol.uri import list_origins
from service.protocol.user import User, UserIdentity
from service.redis_client.connection import Command
from service.redis_client.lock import RedisLock
from service.store.client import StoreClient, load_script
from service.store.keys import mark_key, registry_key, user_key, user_seed_key
from service.store.records import read_json, reading
from service.store.sessions.families import UserEnding

LOCK_SECONDS: Final = 10
COMMANDS_AT_ONCE: Final = 100
"""The most commands in one call. Each call has a deadline, and the console may have a tenth of a core."""

_PUT_CLIENT: Final = load_script("registry/put_client")
_DELETE_CLIENT: Final = load_script("registry/delete_client")
_PUT_REALM: Final = load_script("registry/put_realm")
_PUT_USER: Final = load_script("registry/put_user")
_REMOVE_USER: Final = load_script("registry/remove_user")
_REPLACE_PASSWORD_HASH: Final = load_script("registry/replace_password_hash")

_read_client: Final = msgspec.json.Decoder(Client).decode
_read_realm: Final = msgspec.json.Decoder(IdentityProvider).decode
_read_user: Final = msgspec.json.Decoder(User).decode

Name = TypeVar("Name")
Record = TypeVar("Record")
Item = TypeVar("Item")
KeyCommand = tuple[str, str, *tuple[str, ...]]
"""A command that reads one key, which is its second word."""


class RecordKind(NamedTuple, Generic[Name, Record]):
    """A kind of record: the kind of its keys, the command that reads the record of a name, and the response's parser.

    If there is no record, `parse` returns None or False.
    """

    kind: str
    command: Callable[[Name], KeyCommand]
    parse: Callable[[Any], Record]


def _make_revision() -> str:
    return secrets.token_hex(8)


def split_parts(items: Sequence[Item], size: int) -> Iterator[Sequence[Item]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]


PendingScan = Literal["pending_scans", "pending_realm_scans"]


def _list_origins(client: Client) -> str:
    """Return the web origins whose pages may call. A public client may use any port of a loopback redirect URI."""
    origins = list_origins(client.redirect_uris, any_loopback_port=client.is_public)
    return msgspec.json.encode(sorted({*origins, *client.cors_origins})).decode()


SeedName = str | UserIdentity
"""The name of a seed entry as last applied: `client:<id>`, `realm:<name>` or a user. `file` has a file's digest."""


def _get_seed_field(name: SeedName) -> tuple[str, str]:
    """Return the key and the field of a seed entry as last applied. A user's lies in the slot of the user's record."""
    if isinstance(name, UserIdentity):
        return user_seed_key(name.shard), name.subject
    return registry_key("seed"), name


def _parse_client(record: bytes | None) -> Client | None:
    return None if record is None else read_json(_read_client, record, "a client")


def _parse_realm(record: bytes | None) -> IdentityProvider | None:
    return None if record is None else read_json(_read_realm, record, "a realm")


@reading("a user")
def _parse_user(fields: Sequence[bytes | None]) -> User | None:
    record, revision = fields
    if record is None or revision is None:
        return None
    return msgspec.structs.replace(read_json(_read_user, record, "a user"), revision=revision.decode())


def _drop_disabled_client(record: bytes | None) -> Client | None:
    client = _parse_client(record)
    return None if client is None or client.disabled else client


CLIENTS: Final = RecordKind[str, Client | None](
    "client", lambda client_id: ("GET", registry_key("client", client_id)), _parse_client
)
ENABLED_CLIENTS: Final = RecordKind[str, Client | None](CLIENTS.kind, CLIENTS.command, _drop_disabled_client)
"""Clients as requests see them: a disabled client is an unknown one."""

ORIGINS: Final = RecordKind[str, bool]("origin", lambda origin: ("EXISTS", registry_key("origin", origin)), bool)
"""Web origins. The record is True if pages of the origin may call for some client."""

REALMS: Final = RecordKind[str, IdentityProvider | None](
    "realm", lambda realm: ("GET", registry_key("realm", realm)), _parse_realm
)
USERS: Final = RecordKind[UserIdentity, User | None](
    "user", lambda identity: ("HMGET", user_key(identity), "record", "revision"), _parse_user
)

_KINDS: Final[dict[str, RecordKind[Any, Any]]] = {each.kind: each for each in (CLIENTS, REALMS, USERS)}


class RegistryStore:
    """The registry's records in Redis. Every read goes to Redis; there is no cache."""

    def __init__(self, redis: StoreClient) -> None:
        self._redis = redis

    async def find_client(self, client_id: str) -> Client | None:
        return await self._find(CLIENTS, client_id)

    async def put_client(self, client: Client, old: Client | None = None, *, applied: str | None = None) -> None:
        """Write the client's record and the web origins. `old` is the record until now.

        If the client lost something, the same script records that its sessions must be scanned for that. It stores
        `applied`, the seed entry that the record comes from.
        """
        narrowing = find_narrowing(old, client) if old else None
        await self._redis.run(
            _PUT_CLIENT,
            client_key=registry_key("client", client.client_id),
            scans_key=registry_key("pending_scans"),
            seed_key=registry_key("seed"),
            client_id=client.client_id,
            record=msgspec.json.encode(client).decode(),
            mark=f"{narrowing}:{_make_revision()}" if narrowing else "",
            old_origins=_list_origins(old) if old else "[]",
            new_origins=_list_origins(client),
            applied=applied or "",
        )

    async def delete_client(self, client: Client, *, is_forgotten: bool = False) -> None:
        """Delete the client's record and web origins, and record in the same script that all its sessions must end.

        If `is_forgotten`, its seed entry as last applied goes too.
        """
        await self._redis.run(
            _DELETE_CLIENT,
            client_key=registry_key("client", client.client_id),
            scans_key=registry_key("pending_scans"),
            seed_key=registry_key("seed"),
            client_id=client.client_id,
            origins=_list_origins(client),
            mark=f"refresh:{_make_revision()}",
            is_forgotten=int(is_forgotten),
        )

    async def find_realm(self, realm: str) -> IdentityProvider | None:
        return await self._find(REALMS, realm)

    async def put_realm(
        self, realm: str, provider: IdentityProvider | None, *, applied: str = "", ends_sessions: bool = False
    ) -> None:
        """Write or delete the realm's record, and store or delete the seed entry that it comes from.

        If `ends_sessions`, the same script records that the sessions of the realm's users must be scanned.
        """
        await self._redis.run(
            _PUT_REALM,
            realm_key=registry_key("realm", realm),
            scans_key=registry_key("pending_realm_scans"),
            seed_key=registry_key("seed"),
            realm=realm,
            record="" if provider is None else msgspec.json.encode(provider).decode(),
            mark=_make_revision() if ends_sessions else "",
            applied=applied,
        )

    async def find_user(self, identity: UserIdentity) -> User | None:
        return await self._find(USERS, identity)

    async def find_users(self, identities: Sequence[UserIdentity]) -> list[User | None]:
        commands = [USERS.command(identity) for identity in identities]
        parts = split_parts(commands, COMMANDS_AT_ONCE)
        return [USERS.parse(fields) for part in parts for fields in await self._redis.read_many(part)]

    async def find_records(self, names: Sequence[tuple[str, Any]]) -> list[Client | IdentityProvider | User | None]:
        """Return the records of these kinds and names, each None if there is none."""
        kinds: list[tuple[RecordKind[Any, Any], Any]] = [(_KINDS[kind], name) for kind, name in names]
        answers = await self._redis.read_many([kind.command(name) for kind, name in kinds])
        return [kind.parse(answer) for (kind, _), answer in zip(kinds, answers, strict=True)]

    async def put_user(self, user: User, applied: str | None = None) -> None:
        """Write a user's record under a new revision, and the seed entry that it comes from in the same script."""
        await self._redis.run(
            _PUT_USER,
            user_key=user_key(user.identity),
            seed_key=user_seed_key(user.identity.shard),
            subject=user.identity.subject,
            record=msgspec.json.encode(user).decode(),
            revision=_make_revision(),
            applied=applied or "",
        )

    async def put_users(self, users: Sequence[tuple[UserIdentity, User]]) -> None:
        """Write the records of many users at once, each under a new revision. Seed entries in Redis stay."""
        commands: list[Command] = [
            ("HSET", user_key(identity), "record", msgspec.json.encode(user), "revision", _make_revision())
            for identity, user in users
        ]
        for part in split_parts(commands, COMMANDS_AT_ONCE):
            await self._redis.write_many(part)

    async def delete_user(self, identity: UserIdentity) -> None:
        """Delete a user's record. The seed entry that it came from stays, so no seed adds it again."""
        await self._redis.write("DEL", user_key(identity))

    async def remove_user(self, identity: UserIdentity) -> None:
        """Delete a user's record and the seed entry as last applied in one script."""
        await self._redis.run(
            _REMOVE_USER,
            user_key=user_key(identity),
            seed_key=user_seed_key(identity.shard),
            subject=identity.subject,
        )

    async def add_pending_users(self, users: Sequence[UserEnding]) -> None:
        """Record users whose sessions must end before a change is complete. Call this before the change is written."""
        if users:
            await self._redis.write("SADD", registry_key("pending_revocations"), *map(":".join, users))

    async def list_pending_users(self) -> list[UserEnding]:
        members = await self._redis.read("SMEMBERS", registry_key("pending_revocations"))
        with reading("a pending revocation"):
            return [UserEnding(*member.decode().split(":")) for member in members]

    async def clear_pending_users(self, users: Sequence[UserEnding]) -> None:
        if users:
            await self._redis.write("SREM", registry_key("pending_revocations"), *map(":".join, users))

    async def replace_password_hash(self, user: User, new_hash: str, upgraded_from: str) -> None:
        """Store a stronger hash of the same password, unless the user's record or hash changed since it was read."""
        new = msgspec.structs.replace(user, password_hash=new_hash, upgraded_from=upgraded_from)
        await self._replace_password_hash(new, user.revision, sys.maxsize, user.password_hash or "")

    async def put_password(self, user: User, begun_ms: int) -> User | None:
        """Store the user's new password under a new revision, unless the record changed since it was read.

        `begun_ms` is when the login began that checked the former password. Returns the user with the new revision, or
        None if the record had changed, or if what the user has was revoked since then.
        """
        revision = _make_revision()
        verdict = await self._replace_password_hash(user, revision, begun_ms)
        return msgspec.structs.replace(user, revision=revision) if verdict == "replaced" else None

    async def _replace_password_hash(self, user: User, revision: str, begun_ms: int, former_hash: str = "") -> str:
        identity = user.identity
        verdict = await self._redis.run(
            _REPLACE_PASSWORD_HASH,
            user_key=user_key(identity),
            mark_key=mark_key(identity.shard, identity.subject),
            revision=user.revision,
            new_revision=revision,
            record=msgspec.json.encode(user).decode(),
            begun_ms=begun_ms,
            former_hash=former_hash,
        )
        return str(verdict[0])

    async def list_pending_scans(self, kind: PendingScan) -> dict[str, str]:
        """Return a mark for each client or realm whose sessions must be scanned. Each change makes another mark.

        The mark of a client begins with its narrowing and a colon.
        """
        fields = await self._redis.read("HGETALL", registry_key(kind))
        return {name.decode(): mark.decode() for name, mark in fields.items()}

    async def clear_pending_scans(self, kind: PendingScan, marks: Mapping[str, str]) -> None:
        """Clear these marks, except those that a later change replaced. The caller holds the lock."""
        present = await self.list_pending_scans(kind)
        done = [name for name, mark in marks.items() if present.get(name) == mark]
        if done:
            await self._redis.write("HDEL", registry_key(kind), *done)

    async def has_pending(self) -> bool:
        """Return True if sessions of users, clients or realms must still end, whichever process made the change."""
        keys = (registry_key(f"pending_{what}") for what in ("revocations", "scans", "realm_scans"))
        return bool(await self._redis.read("EXISTS", *keys))

    async def find_seed(self, name: SeedName) -> str | None:
        text = await self._redis.read("HGET", *_get_seed_field(name))
        return None if text is None else text.decode()

    async def find_seeds(self, names: Sequence[SeedName]) -> list[str | None]:
        """Return the seed entries under these names as last applied, or None for each that was not applied."""
        answers = await self._redis.read_many([("HGET", *_get_seed_field(name)) for name in names])
        return [None if text is None else text.decode() for text in answers]

    async def put_seed(self, name: SeedName, applied: str) -> None:
        await self._redis.write("HSET", *_get_seed_field(name), applied)

    async def list_clients(self) -> list[Client]:
        """Return all clients, sorted by client_id."""
        return [client for _, client in sorted((await self._list_all("client", _read_client)).items())]

    async def list_realms(self) -> dict[str, IdentityProvider]:
        """Return the external realms by name, in the order of their names."""
        return dict(sorted((await self._list_all("realm", _read_realm)).items()))

    async def list_seeds(self) -> dict[str, str]:
        """Return all texts that `find_seed` can find, but for those of users, by their names."""
        fields = await self._redis.read("HGETALL", registry_key("seed"))
        return {name.decode(): applied.decode() for name, applied in fields.items()}

    async def list_seeded_users(self, shards: Sequence[str]) -> list[tuple[UserIdentity, str]]:
        """Return the users of these shards whose entries a seed applied, with the entry as last applied.

        Only shard and subject are set, because the store keeps no user name for a seed entry.
        """
        answers = await self._redis.read_many([("HGETALL", user_seed_key(shard)) for shard in shards])
        return [
            (UserIdentity("", "", subject.decode(), shard), applied.decode())
            for shard, fields in zip(shards, answers, strict=True)
            for subject, applied in fields.items()
        ]

    async def forget_seed(self, name: SeedName) -> None:
        await self._redis.write("HDEL", *_get_seed_field(name))

    async def list_users(self, *realms: str) -> list[User]:
        """Return the users of these realms, sorted by realm and user name."""
        users = [user async for user in self.scan_users() if user.realm in realms]
        found = {(user.realm, user.identity.username): user for user in users}
        return [found[name] for name in sorted(found)]

    async def scan_users(self) -> AsyncIterator[User]:
        """Yield each user of each realm in no order. A user can come twice while Redis resizes its table of keys."""
        async for keys in self._redis.scan("user:{*}:*"):
            commands: list[Command] = [("HMGET", key, "record", "revision") for key in keys]
            for fields in await self._redis.read_many(commands):
                user = _parse_user(fields)
                if user is not None:
                    yield user

    async def _list_all(self, kind: str, read: Callable[[bytes], Record]) -> dict[str, Record]:
        """Return all records of a kind, by name."""
        records: dict[str, Record] = {}
        beginning = registry_key(kind, "*").removesuffix("*")
        async for keys in self._redis.scan(f"{beginning}*"):
            answers = await self._redis.read_many([("GET", key) for key in keys])
            found = zip(keys, answers, strict=True)
            records |= {key.removeprefix(beginning): read(answer) for key, answer in found if answer is not None}
        return records

    def make_lock(
        self, on_wait: Callable[[], object] = lambda: None, *, wait_seconds: float | None = None
    ) -> RedisLock:
        """Return the lock to hold while changing a record.

        The lock expires after LOCK_SECONDS unless it is renewed. If another holder keeps it for `wait_seconds`, taking
        it raises LockHeld. If `wait_seconds` is None, taking it waits without a limit.
        """
        return RedisLock(self._redis, registry_key("lock"), LOCK_SECONDS, on_wait, wait_seconds)

    def make_seed_lock(self, on_wait: Callable[[], object] = lambda: None) -> RedisLock:
        """Return the lock to hold while applying a seed, which takes the other lock for each batch."""
        return RedisLock(self._redis, registry_key("lock", "seed"), LOCK_SECONDS, on_wait, None)

    def make_scan_lock(self, on_wait: Callable[[], object] = lambda: None) -> RedisLock:
        """Return the lock to hold during a scan of sessions. Its holder may take the other lock, but not vice versa."""
        return RedisLock(self._redis, registry_key("lock", "scan"), LOCK_SECONDS, on_wait, None)

    async def _find(self, kind: RecordKind[Name, Record], name: Name) -> Record:
        return kind.parse(await self._redis.read(*kind.command(name)))
