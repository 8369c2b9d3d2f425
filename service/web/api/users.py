"""PUT and DELETE /oauth2/v1/users/{username}, by which a program creates, changes and deletes users of realm main.

Clauses: SPEC §2.3, §3, RFC 9110 §13.1.2
"""

from __future__ import annotations

import asyncio
import re
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.hashing_pool import HashingPool
from service.crypto.password_hashing import hash_password
from service.protocol.client import Client, check_managed_roles, check_user_management
from service.protocol.errors import InvalidRequest, TemporarilyUnavailable
from service.protocol.token_response import NO_STORE_HEADERS
from service.protocol.user import User
from service.redis_client.lock import LockHeld
from service.registry.editor import ChangeRefused, RegistryEditor
from service.registry.password_change import LOCK_WAIT_SECONDS
from service.registry.pending_revocations import PendingRevocations
from service.registry.seed_file.check import Mistakes
from service.registry.user_changes import UserChange, read_user_change
from service.store.registry.store import RegistryStore
from service.web.request.client_address import get_peer, get_prefixes
from service.web.request.client_authentication import ClientAuthenticator
from service.web.request.reading import list_header_values, read_json

MEMBERS: Final = ("password", "password_hash", "roles", "name", "disabled")
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

    async def answer(self, request: Request) -> Response:
        """Answer both methods. They have one route, so that a response to another method names both."""
        try:
            return await (self._put(request) if request.method == "PUT" else self._delete(request))
        except LockHeld:
            raise TemporarilyUnavailable("registry_locked", retry_after_seconds=1) from None

    async def _put(self, request: Request) -> Response:
        """Create the user, or change what the body names. Under the lock, the record that is replaced decides.

        A password is hashed before that, since a hash takes longer than the change.
        """
        body = await read_json(request)
        client = await self._authenticate(request)
        change = await asyncio.to_thread(parse_change, request, body, self.min_password_characters)
        network, password = get_prefixes(request)[-1].network, change.entry.password
        password_hash = password and await self.passwords.run(hash_password, password, network=network)
        conditions = ",".join(list_header_values(request.scope, b"if-none-match")).split(",")
        must_be_new = any(condition.strip(" \t") == "*" for condition in conditions)

        def replace(old: User | None) -> User:
            if old is None and not change.names_password:
                raise InvalidRequest("password_missing")
            new = change.apply(old, password_hash)
            check_managed_roles(client, (*(old.roles if old else ()), *new.roles))
            if old is not None and must_be_new:
                raise InvalidRequest("user_exists", status=412)
            return new

        is_created = await self._make_editor(request, client).put_user(change.identity, replace)
        return Response(status_code=201 if is_created else 200, headers=NO_STORE_HEADERS)

    async def _delete(self, request: Request) -> Response:
        """End everything of the user and delete the record. If there is none, an interrupted deletion is completed."""
        client = await self._authenticate(request)
        identity = parse_change(request, {}, self.min_password_characters).identity
        with suppress(ChangeRefused):
            await self._make_editor(request, client).delete_user(
                identity, lambda user: check_managed_roles(client, user.roles)
            )
        return Response(status_code=204, headers=NO_STORE_HEADERS)

    async def _authenticate(self, request: Request) -> Client:
        client = (await self.authenticator.authenticate(request, {})).client
        check_user_management(client)
        return client

    def _make_editor(self, request: Request, client: Client) -> RegistryEditor:
        origin = {"actor": client.client_id, "client_id": client.client_id, "reason": "client"}
        origin["address"] = get_peer(request.scope)
        return RegistryEditor(self.registry, self.pending_revocations, origin, wait_seconds=LOCK_WAIT_SECONDS)


def parse_change(request: Request, body: Any, min_password_characters: int) -> UserChange:
    """Return the change of the user that the path names. Raises InvalidRequest, which tells the first mistake."""
    mistakes: Mistakes = {}
    username = request.path_params["username"]
    if "\ufffd" in username:  # the server puts it in place of what is not UTF-8, which would make two names one
        mistakes["username"] = "expected percent-encoded UTF-8 in the path"
    if isinstance(body, dict):
        known = f"unknown member; known are {', '.join(MEMBERS)}"
        mistakes |= dict.fromkeys((name for name in body if name not in MEMBERS), known)
        body = {**body, "username": username}
    change = read_user_change(body, "", mistakes, min_password_characters)
    if change is None or mistakes:
        place, mistake = next(iter(mistakes.items()))
        text = _UNDESCRIBABLE.sub("?", f"{place or 'the body'}: {mistake}")
        raise InvalidRequest("user_malformed", name=text[:MAX_DESCRIPTION_CHARACTERS])
    return change
