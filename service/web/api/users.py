"""PUT and DELETE /oauth2/v1/users/{username}, by which a program creates, changes and deletes users of realm main.

Clauses: SPEC §2.3, §3, RFC 9110 §13.1.1, §13.1.2
"""

from __future__ import annotations

import asyncio
import re
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from service.crypto.hashing_pool import HashingPool
from service.crypto.password_hashing import hash_password
from service.protocol.client import Client, check_managed_roles, check_user_management
from service.protocol.errors import InvalidRequest, TemporarilyUnavailable
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.parameters import decode_field
from service.protocol.token_response import NO_STORE_HEADERS
from service.protocol.user import User, UserIdentity
from service.redis_client.lock import LockHeld
from service.registry.editor import ChangeRefused, RegistryEditor, Taken
from service.registry.password_change import LOCK_WAIT_SECONDS
from service.registry.pending_revocations import PendingRevocations
from service.registry.seed_file.check import Mistakes
from service.registry.seed_file.keeper import SeedKeeper
from service.registry.user_changes import UserChange, read_user_change
from service.store.registry.store import RegistryStore
from service.web.request.client_address import get_peer
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.reading import list_header_values, read_json

MEMBERS: Final = ("username", "id", "password", "password_hash", "roles", "name", "disabled")
MAX_DESCRIPTION_CHARACTERS: Final = 300

_UNDESCRIBABLE: Final = re.compile(r"[^\x20-\x21\x23-\x5B\x5D-\x7E]")
"""The characters that RFC 6749 §5.2 does not allow in a description."""


@dataclass(frozen=True, slots=True)
class UsersEndpoint:
    authenticator: ClientAuthenticator
    registry: RegistryStore
    pending_revocations: PendingRevocations
    passwords: HashingPool
    min_password_characters: int
    seed_keeper: SeedKeeper

    async def answer(self, request: Request) -> Response:
        """Answer both methods. They have one route, so that a response to another method names both."""
        try:
            async with self.seed_keeper.required():
                return await (self._put(request) if request.method == "PUT" else self._delete(request))
        except LockHeld:
            raise TemporarilyUnavailable("registry_locked", retry_after_seconds=1) from None

    async def _put(self, request: Request) -> Response:
        """Create the user, or change what the body names. Under the lock, the record that is replaced decides.

        A password is hashed before that, since a hash takes longer than the change. A program takes turns as
        one caller, whatever its addresses, because no throttle limits its hashes.
        """
        body = await read_json(request)
        client = await self._authenticate(request)
        identity, change = await asyncio.to_thread(parse_change, request, body, self.min_password_characters)
        password_hash = password = change.entry.password
        if password:
            password_hash = await self.passwords.run(hash_password, password, network=client.client_id)
            client = await self._authenticate(request)  # it may have lost the right since

        def replace(old: User | None) -> User:
            new = change.apply(old, password_hash)
            check_change(request, client, old, new)
            if old is None and new.identity != identity:
                raise InvalidRequest("user_missing", status=404)
            if change.changes_id(old):
                raise InvalidRequest("user_malformed", name="id: differs from the user's id, which cannot be changed")
            if old is None and not change.names_password:
                raise InvalidRequest("password_missing")
            return new

        try:
            user, is_created = await self._make_editor(request, client).put_user(identity, replace)
        except Taken as taken:
            raise InvalidRequest("user_taken", name=taken.field, status=409) from None
        return JSONResponse({"id": user.id}, 201 if is_created else 200, headers=NO_STORE_HEADERS)

    async def _delete(self, request: Request) -> Response:
        """End everything of the user and delete the record. If there is none, an interrupted deletion is completed."""
        client = await self._authenticate(request)
        identity, _ = parse_change(request, {}, self.min_password_characters)
        try:
            await self._make_editor(request, client).delete_user(
                identity, lambda user: check_change(request, client, user)
            )
        except ChangeRefused:
            check_change(request, client, None)
        return Response(status_code=204, headers=NO_STORE_HEADERS)

    async def _authenticate(self, request: Request) -> Client:
        """Return the client. Before the seed is in force nobody changes users, because it would undo the change."""
        client = (await self.authenticator.authenticate(request, {})).client
        check_user_management(client)
        if not await self.seed_keeper.is_in_force():
            raise TemporarilyUnavailable("seed_not_loaded", retry_after_seconds=1)
        return client

    def _make_editor(self, request: Request, client: Client) -> RegistryEditor:
        origin = {"actor": client.client_id, "client_id": client.client_id, "reason": "client"}
        origin["address"] = get_peer(request.scope)
        return RegistryEditor(self.registry, self.pending_revocations, origin, wait_seconds=LOCK_WAIT_SECONDS)


def check_change(request: Request, client: Client, old: User | None, new: User | None = None) -> None:
    """Raise UnauthorizedClient for a role beyond the client, and then InvalidRequest unless the conditions are true.

    Each of If-Match and If-None-Match may only be `*`, since users have no entity tags. Content-Range is refused, since
    a body is always whole.

    Clauses: RFC 9110 §13.1.1, §13.1.2, §14.4
    """
    check_managed_roles(client, [role for user in (old, new) if user is not None for role in user.roles])
    if_match, if_none_match = (list_header_values(request.scope, name) for name in (b"if-match", b"if-none-match"))
    is_known = all([each.strip(" \t") for each in values] in ([], ["*"]) for values in (if_match, if_none_match))
    if not is_known or list_header_values(request.scope, b"content-range"):
        raise InvalidRequest("condition_malformed")
    if if_match if old is None else if_none_match:
        raise InvalidRequest("condition_false", status=412)


def parse_change(request: Request, body: Any, min_password_characters: int) -> tuple[UserIdentity, UserChange]:
    """Return the user that the path names, and the change. A `username` in the body is a new name.

    Raises InvalidRequest, which tells the first mistake.
    """
    mistakes: Mistakes = {}
    username = _read_name(request)
    if username is None:
        mistakes["username"] = "expected one percent-encoded segment in UTF-8 (/ is %2F, ? is %3F), and no query"
    if isinstance(body, dict):
        known = f"unknown field; allowed fields: {', '.join(MEMBERS)}"
        mistakes |= dict.fromkeys((name for name in body if name not in MEMBERS), known)
        if {"id", "username"} <= body.keys():
            mistakes["id"] = "expected no id together with a username"
        body = {"username": username or ""} | body
    named = read_user_change({"username": username or ""}, "", mistakes, min_password_characters)
    change = read_user_change(body, "", mistakes, min_password_characters)
    if named is None or change is None or mistakes:
        place, mistake = next(iter(mistakes.items()))
        text = _UNDESCRIBABLE.sub("?", f"{place or 'the body'}: {mistake}")
        raise InvalidRequest("user_malformed", name=text[:MAX_DESCRIPTION_CHARACTERS])
    return named.identity, change


def _read_name(request: Request) -> str | None:
    """Return the user name in the path, or None if it is malformed or the address has a query.

    The name has the characters of a login's user name. Clients and proxies take `.` and `..` away, and some proxies
    decode the path for their rules first.
    """
    sent = request.path_params["username"]
    name = decode_field(sent.replace("+", "%2B").encode("latin-1"))
    if name is None or "/" in sent or request.scope["query_string"] or not {".", ".."}.isdisjoint(name.split("/")):
        return None
    return name if is_unicode_without_line_ends(name) else None
