"""Logins with a password at the identity provider."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import redis
from joserfc import jwt

from tests.realms.login_steps import CEP_SCOPE, SUB, log_in_with_password
from tests.support.clients_and_users import ALICE, assert_error
from tests.support.fake_provider import CLIENT_ID, PASSWORD, USERNAME, FakeProvider, published_key

WRONG_ALICE = replace(ALICE, password="wrong")


async def log_in(http: httpx2.AsyncClient, scope: str = CEP_SCOPE) -> httpx2.Response:
    """Log in with the right user name and password."""
    return await log_in_with_password(http, USERNAME, PASSWORD, scope=scope)


async def guess(http: httpx2.AsyncClient, username: str = USERNAME, scope: str = CEP_SCOPE) -> httpx2.Response:
    return await log_in_with_password(http, username, "wrong", scope=scope)


def assert_provider_unavailable(response: httpx2.Response) -> None:
    """Check for the JSON response of an outage, with the time of a retry."""
    assert_error(response, 503, "temporarily_unavailable")
    assert response.headers["content-type"] == "application/json"
    assert response.headers["retry-after"] == "1"


def count_sessions(store: redis.Redis) -> int:
    return sum(1 for kind in ("family", "access") for _ in store.scan_iter(f"{kind}:*"))


def sign(provider: FakeProvider, **changes: object) -> str:
    """Return an ID token like the provider's, whose content the test knows."""
    claims = {"iss": provider.url, "aud": CLIENT_ID, "sub": SUB, "iat": 0, "exp": 4_000_000_000} | changes
    return jwt.encode({"alg": "RS256", "kid": published_key().kid}, claims, published_key())
