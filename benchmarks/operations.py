"""The service's operations under load, each with what it is held against."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2

from benchmarks.arena import CLIENT, Arena
from benchmarks.load import CONNECTIONS, LoadFailed, Target
from tests.support.clients_and_users import GATEWAY, INTROSPECT, REVOKE, TOKEN, VERIFY, OAuthClient, bearer
from tests.support.servers import ServiceProcess

REFRESHES_PER_SECOND = 5_000
"""So many sessions are there for each second of a round; a faster service refreshes them more than once.

In life a session is refreshed once in an access token's life. Over and over within seconds it would carry a hundred
live access tokens and all times of its grace along.
"""

REVOCATIONS_PER_SECOND = 14_000
"""More than one core does: each revocation needs a session that is there. A round ends where there are no more."""

ACCESS_TOKENS = 100
"""So many are asked for in turns; each has been met twice, and is remembered, before a round has really begun."""

BEARER = "Authorization: Bearer "

REFRESH, REFRESH_ALONE, REFRESH_LOGGED = "refresh", "refresh, one connection", "refresh, logged"
VERIFY_ASKING, VERIFY_MEMORY = "verify, Redis asked", "verify, from memory"
INTROSPECT_ASKING, INTROSPECT_MEMORY = "introspect, Redis asked", "introspect, from memory"
REVOKE_SESSION = "revoke"


Prepare = Callable[[int], Sequence[str]]


def make_targets(
    arena: Arena, asking: ServiceProcess, remembering: ServiceProcess, logging: ServiceProcess
) -> list[Target]:
    """`remembering` is the service with TOKEN_SERVICE_VERIFY_CACHE; `logging` has LOG_LEVEL at its default."""
    return [
        make_refresh(REFRESH, arena, asking),
        make_refresh(REFRESH_ALONE, arena, asking, connections=1),
        make_refresh(REFRESH_LOGGED, arena, logging),
        make_verify(VERIFY_ASKING, arena, asking),
        make_verify(VERIFY_MEMORY, arena, remembering),
        _make_introspect(INTROSPECT_ASKING, arena, asking),
        _make_introspect(INTROSPECT_MEMORY, arena, remembering),
        _make_revoke(REVOKE_SESSION, arena, asking),
    ]


def make_refresh(
    name: str,
    arena: Arena,
    service: ServiceProcess,
    *,
    connections: int = CONNECTIONS,
    supply: Callable[[int], Sequence[str]] | None = None,
    pause_ms: int | None = None,
) -> Target:
    """`supply` gives the refresh tokens of a round of so many seconds; without it they are of new sessions.

    `pause_ms` is how long each connection pauses between two requests, in the mean.
    """
    url = service.url + TOKEN
    form = _form_of(CLIENT, grant_type="refresh_token", refresh_token="")

    def supply_new(seconds: int) -> list[str]:
        return [token for _, token in arena.start_sessions(seconds * REFRESHES_PER_SECOND)]

    def prepare(seconds: int) -> list[str]:
        file = arena.write_lines((supply or supply_new)(seconds))
        return [file, form] + ([] if pause_ms is None else [str(pause_ms)])

    def check(_: Sequence[str]) -> None:
        ((_, first),) = arena.start_sessions(1)
        second = _post(url, form + first)["refresh_token"]
        third = _post(url, form + second)["refresh_token"]
        if len({first, second, third}) != 3:
            raise LoadFailed("a refresh does not rotate")

    return Target(name, url, service.process.pid, arena.redis_pid, "rotate", prepare, check, connections)


def make_verify(name: str, arena: Arena, service: ServiceProcess) -> Target:
    url = service.url + VERIFY

    def check(arguments: Sequence[str]) -> None:
        answer = httpx2.get(url, headers=bearer(read_first(arguments[0])))
        if (answer.status_code, answer.headers["x-auth-client"]) != (200, CLIENT.client_id):
            raise LoadFailed(f"not verified: {answer.status_code}")

    return Target(name, url, service.process.pid, arena.redis_pid, "ask", _supply(arena, BEARER), check)


def _make_introspect(name: str, arena: Arena, service: ServiceProcess) -> Target:
    url = service.url + INTROSPECT

    form = _form_of(GATEWAY, token="")

    def check(arguments: Sequence[str]) -> None:
        answer = _post(url, form + read_first(arguments[0]))
        if (answer["active"], answer["client_id"]) != (True, CLIENT.client_id):
            raise LoadFailed(f"not introspected: {answer}")

    return Target(name, url, service.process.pid, arena.redis_pid, "ask", _supply(arena, form), check)


def _make_revoke(name: str, arena: Arena, service: ServiceProcess) -> Target:
    """Of whole sessions, by their refresh tokens."""
    url = service.url + REVOKE
    form = _form_of(CLIENT, token="")

    def prepare(seconds: int) -> list[str]:
        sessions = arena.start_sessions(seconds * REVOCATIONS_PER_SECOND)
        return [arena.write_lines(token for _, token in sessions), form]

    def check(_: Sequence[str]) -> None:
        ((access_token, refresh_token),) = arena.start_sessions(1)
        _send(url, form + refresh_token)
        if _post(service.url + INTROSPECT, _form_of(GATEWAY, token=access_token)) != {"active": False}:
            raise LoadFailed("a revocation does not end the session")

    return Target(name, url, service.process.pid, arena.redis_pid, "spend", prepare, check)


def _supply(arena: Arena, what_goes_before: str) -> Prepare:
    """New access tokens for each round, that none expires before its end."""

    def prepare(_: int) -> list[str]:
        return [arena.write_lines(token for token, _ in arena.start_sessions(ACCESS_TOKENS)), what_goes_before]

    return prepare


def read_first(file: str) -> str:
    return Path(file).read_text().partition("\n")[0]


def _form_of(client: OAuthClient, **fields: str) -> str:
    return urlencode(client.credentials | fields)


def _send(url: str, form: str) -> httpx2.Response:
    answer = httpx2.post(url, content=form, headers={"Content-Type": "application/x-www-form-urlencoded"})
    if answer.status_code != 200:
        raise LoadFailed(f"{url} answers {answer.status_code}: {answer.text}")
    return answer


def _post(url: str, form: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(_send(url, form).content)
    return body
