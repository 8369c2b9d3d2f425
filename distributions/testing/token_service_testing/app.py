"""The application of the service, and beside its paths the commands of tests, `POST /_test/<command>`."""

import asyncio
import os
from functools import partial
from typing import Annotated, Any

import msgspec
from redis import Redis
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from service.app import build_app
from service.config.settings import load_settings
from service.embedded.data_folder import socket_path
from service.protocol.client import check_scope
from service.protocol.scope import check_user_has, parse_scope
from service.protocol.user import Login, User, identify_user
from service.registry.editor import ChangeRefused, RegistryEditor
from service.store.registry.user_ids import make_user_id
from service.web.api.token import PasswordGrant
from service.worker import Worker
from token_service_testing import scripts

Arguments = dict[str, str | bool | Annotated[float, msgspec.Meta(ge=0)]]


class Application:
    """One worker of the service. Its socket to the store has a second name, which stays during an outage."""

    def __init__(self) -> None:
        self._offset_ms = self._answers_to_lose = 0
        self._worker = worker = Worker(load_settings(os.environ), lambda: self._offset_ms)
        worker.redis.router.options = worker.redis.router.options._replace(stable_seconds=0)  # reconnects at once
        commands = ("tokens", "advance", "end", "lose", "outage", "reset")
        routes = [Route(f"/_test/{each}", partial(self._run, each), methods=["POST"]) for each in commands]
        self._service = build_app(worker, routes)
        self._socket = socket_path(worker.settings.data_dir)
        self._second_name = self._socket.with_name("tests.sock")
        self._second_name.hardlink_to(self._socket)
        self._store = Redis(unix_socket_path=str(self._second_name))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_lost = self._answers_to_lose > 0 and (scope.get("method"), scope.get("path")) == ("POST", "/oauth2/v1/token")
        self._answers_to_lose -= is_lost
        await self._service(scope, receive, (lambda _: asyncio.sleep(0)) if is_lost else send)
        if is_lost:
            send.__self__.transport.abort()  # type: ignore[attr-defined] # a method of uvicorn's cycle of a request
            await receive()  # returns when the connection is closed

    async def _run(self, name: str, request: Request) -> JSONResponse:
        try:
            answer = await getattr(self, name)(**msgspec.json.decode(await request.body() or b"{}", type=Arguments))
        except (ValueError, TypeError, AttributeError, ChangeRefused) as mistake:
            return JSONResponse({"error": "invalid_request", "error_description": f"{name}: {mistake}"}, 400)
        # In an outage the socket does not exist. The check also waits for the invalidations of what has changed.
        while self._socket.exists() and await self._worker.health.describe_obstacle():  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        return JSONResponse(answer or {})

    async def tokens(self, username: str, client_id: str, scope: str = "", realm: str = "main") -> Any:
        """Log a user in without a password. An unknown user of realm main is created with the roles of the scope."""
        worker, identity = self._worker, identify_user(realm, username)
        editor = RegistryEditor(worker.registry, worker.pending_revocations, {"actor": "tests"})
        client = await editor.get_client(client_id)
        granted = parse_scope(scope or client.default_scope)
        check_scope(client, granted)
        if realm == "main" and await worker.registry.users.find(identity) is None:
            user = User(realm=realm, username=identity.username, id=make_user_id(), roles=granted.roles)
            await editor.create_user(user)
        found = await worker.logins.find_user(realm, identity.username)
        if found is None or granted.realms != (realm,):
            raise ValueError(f"expected a user who is not disabled, and a scope with realm:{realm}, which the seed has")
        check_user_has(granted, found.roles)
        grant = PasswordGrant(worker.clients, worker.users, worker.logins, worker.families, worker.keyring)
        login, secret_used = Login(found, await worker.redis.read_clock_ms() + 1), not client.is_public
        _, response = await grant.start_session(login, client, str(granted), secret_used=secret_used)
        return msgspec.to_builtins(response)

    async def advance(self, seconds: float) -> None:
        """Move the clock of the service and of the store."""
        self._offset_ms += round(seconds * 1000)
        self._store.eval(scripts.ADVANCE, 0, round(seconds * 1000))

    async def end(self, username: str, realm: str = "main") -> None:
        """Revoke everything of a user."""
        identity = identify_user(realm, username)
        await self._worker.revocations.revoke_all(identity.shard, identity.digest)

    async def lose(self, answers: float) -> None:
        """Lose so many responses of the token endpoint after their work is done."""
        self._answers_to_lose = int(answers)

    async def outage(self, is_on: bool) -> None:
        """Begin or end an outage, in which the store closes all connections and accepts none."""
        if is_on:
            self._socket.unlink(missing_ok=True)
            while self._store.client_kill_filter(_type="normal", skipme=True):
                pass  # the queue of the socket may have had another one
        elif not self._socket.exists():
            self._socket.hardlink_to(self._second_name)

    async def reset(self) -> None:
        """Bring the service back to its state after the start."""
        self._store.eval(scripts.RESTORE, 0)
        self._offset_ms = self._answers_to_lose = 0
        await self.outage(is_on=False)
