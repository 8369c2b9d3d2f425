"""The operations of the service as targets of wrk."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx2

from benchmarks.load import BROWSER_HEADERS, CONNECTIONS, LoadFailed, Target
from benchmarks.testbed import CLIENT, Testbed
from tests.support.clients_and_users import GATEWAY, INTROSPECT, REVOKE, TOKEN, VERIFY, OAuthClient, bearer
from tests.support.servers import ServiceProcess

REFRESHES_PER_SECOND = 5_000
"""The number of sessions for each second of a round. A faster service refreshes some of them more than once.

A real session is refreshed about once in the lifetime of an access token. A session that is refreshed many times within
seconds would have hundreds of live access tokens, which would distort the measurement.
"""

REVOCATIONS_PER_SECOND = 14_000
"""The number of sessions for each second of a round, more than one core can revoke.

Each revocation needs a live session. A round ends early if no session is left.
"""

CHAINS = CONNECTIONS + 1
"""The number of sessions of a chained round: one for each connection, and one for a request that is not sent.

wrk formats that request before the round, to see what it looks like.
"""

CHAIN_SECONDS = 10
"""The length of a chained round. It is fixed, because each refresh adds to the record of its session."""

ACCESS_TOKENS = 100
"""The number of tokens that `verify` and `introspect` use in turns. All are in the cache after their second use."""

BEARER = "Authorization: Bearer "

REFRESH, REFRESH_ALONE, REFRESH_LOGGED = "refresh", "refresh, one connection", "refresh, logged"
REFRESH_OF_BROWSER = "refresh, 14 headers"
VERIFY_ASKING, VERIFY_MEMORY = "verify, Redis asked", "verify, from memory"
INTROSPECT_ASKING, INTROSPECT_MEMORY = "introspect, Redis asked", "introspect, from memory"
REVOKE_SESSION = "revoke"
CHAINED_REFRESH = "chained refresh"

OIDC_PROVIDER, AUTHLIB = "oidc-provider on Node", "Authlib on Flask"
"""The peers. Their rows are named by `name_peer_row`."""

Prepare = Callable[[int], Sequence[str]]


def make_targets(
    testbed: Testbed, uncached: ServiceProcess, cached: ServiceProcess, logging: ServiceProcess
) -> list[Target]:
    """Return all targets. `cached` has TOKEN_SERVICE_VERIFY_CACHE on, and `logging` has the default LOG_LEVEL."""
    return [
        make_refresh(REFRESH, testbed, uncached),
        make_refresh(REFRESH_ALONE, testbed, uncached, connections=1),
        make_refresh(REFRESH_LOGGED, testbed, logging),
        make_refresh(REFRESH_OF_BROWSER, testbed, uncached, headers=BROWSER_HEADERS),
        make_verify(VERIFY_ASKING, testbed, uncached),
        make_verify(VERIFY_MEMORY, testbed, cached),
        _make_introspect(INTROSPECT_ASKING, testbed, uncached),
        _make_introspect(INTROSPECT_MEMORY, testbed, cached),
        _make_revoke(REVOKE_SESSION, testbed, uncached),
    ]


def make_refresh(
    name: str,
    testbed: Testbed,
    service: ServiceProcess,
    *,
    connections: int = CONNECTIONS,
    supply: Callable[[int], Sequence[str]] | None = None,
    pause_ms: int | None = None,
    round_seconds: int | None = None,
    headers: Sequence[str] = (),
) -> Target:
    """Return a target that refreshes sessions.

    `supply` gets the seconds of a round and returns its refresh tokens. Without it each round starts new sessions.
    `pause_ms` is the mean pause of a connection between two requests. `round_seconds` fixes the length of a round.
    """
    url = service.url + TOKEN
    form = _form_of(CLIENT, grant_type="refresh_token", refresh_token="")

    def supply_new(seconds: int) -> list[str]:
        return [token for _, token in testbed.start_sessions(seconds * REFRESHES_PER_SECOND)]

    def prepare(seconds: int) -> list[str]:
        file = testbed.write_lines((supply or supply_new)(seconds))
        return [file, form] + ([] if pause_ms is None else [str(pause_ms)])

    def check(_: Sequence[str]) -> None:
        ((_, first),) = testbed.start_sessions(1)
        second = _post(url, form + first)["refresh_token"]
        third = _post(url, form + second)["refresh_token"]
        if len({first, second, third}) != 3:
            raise LoadFailed("a refresh did not rotate the refresh token")

    pids = service.process.pid, testbed.redis_pid
    return Target(name, url, *pids, "refresh", prepare, check, connections, round_seconds, headers)


def make_chained_refresh(testbed: Testbed, service: ServiceProcess) -> Target:
    """Return a target with one session for each connection. A response has the token of the session's next request."""

    def supply(_: int) -> list[str]:
        return [token for _, token in testbed.start_sessions(CHAINS)]

    return make_refresh(CHAINED_REFRESH, testbed, service, supply=supply, round_seconds=CHAIN_SECONDS)


def name_peer_row(peer: str, operation: str) -> str:
    return f"{peer}: {operation}"


def make_verify(name: str, testbed: Testbed, service: ServiceProcess) -> Target:
    url = service.url + VERIFY

    def check(arguments: Sequence[str]) -> None:
        response = httpx2.get(url, headers=bearer(read_first(arguments[0])))
        if (response.status_code, response.headers["x-auth-client"]) != (200, CLIENT.client_id):
            raise LoadFailed(f"verify answered {response.status_code}")

    return Target(name, url, service.process.pid, testbed.redis_pid, "cycle", _supply(testbed, BEARER), check)


def _make_introspect(name: str, testbed: Testbed, service: ServiceProcess) -> Target:
    url = service.url + INTROSPECT

    form = _form_of(GATEWAY, token="")

    def check(arguments: Sequence[str]) -> None:
        response = _post(url, form + read_first(arguments[0]))
        if (response["active"], response["client_id"]) != (True, CLIENT.client_id):
            raise LoadFailed(f"introspect answered {response}")

    return Target(name, url, service.process.pid, testbed.redis_pid, "cycle", _supply(testbed, form), check)


def _make_revoke(name: str, testbed: Testbed, service: ServiceProcess) -> Target:
    """Return a target that revokes refresh tokens, which ends whole sessions."""
    url = service.url + REVOKE
    form = _form_of(CLIENT, token="")

    def prepare(seconds: int) -> list[str]:
        sessions = testbed.start_sessions(seconds * REVOCATIONS_PER_SECOND)
        return [testbed.write_lines(token for _, token in sessions), form]

    def check(_: Sequence[str]) -> None:
        ((access_token, refresh_token),) = testbed.start_sessions(1)
        _send(url, form + refresh_token)
        if _post(service.url + INTROSPECT, _form_of(GATEWAY, token=access_token)) != {"active": False}:
            raise LoadFailed("a revocation did not end the session")

    return Target(name, url, service.process.pid, testbed.redis_pid, "post_each", prepare, check)


def _supply(testbed: Testbed, prefix: str) -> Prepare:
    """Return a `prepare` with new access tokens for each round, so that none expires during the round."""

    def prepare(_: int) -> list[str]:
        return [testbed.write_lines(token for token, _ in testbed.start_sessions(ACCESS_TOKENS)), prefix]

    return prepare


def read_first(file: str) -> str:
    return Path(file).read_text().partition("\n")[0]


def _form_of(client: OAuthClient, **fields: str) -> str:
    return urlencode(client.credentials | fields)


def _send(url: str, form: str) -> httpx2.Response:
    response = httpx2.post(url, content=form, headers={"Content-Type": "application/x-www-form-urlencoded"})
    if response.status_code != 200:
        raise LoadFailed(f"{url} answers {response.status_code}: {response.text}")
    return response


def _post(url: str, form: str) -> dict[str, Any]:
    body: dict[str, Any] = json.loads(_send(url, form).content)
    return body
