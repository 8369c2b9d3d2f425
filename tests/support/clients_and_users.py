"""The clients and users of tests/seed.yaml, and their requests to the service."""

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

import httpx2
import redis

from service.gateway.access_record import access_key
from service.protocol.token_form import RandomToken, parse_access_token

TOKEN = "/oauth2/v1/token"
REVOKE = "/oauth2/v1/revoke"
REVOKE_ALL = "/oauth2/v1/revokeAll"
INTROSPECT = "/oauth2/v1/introspect"
GLOBAL_REVOCATION = "/oauth2/v1/global-token-revocation"
USERS = "/oauth2/v1/users/"
VERIFY = "/oauth2/v1/verify"
USERINFO = "/oauth2/v1/userinfo"


@dataclass(frozen=True)
class UserCredentials:
    username: str
    password: str
    realm: str = "main"


ALICE = UserCredentials("alice@example.com", "correct horse battery staple")
BOB = UserCredentials("bob@example.com", "hunter2 hunter2")
METER = UserCredentials("Meter@Example.com", "a device")


@dataclass(frozen=True)
class OAuthClient:
    """An OAuth client. Without a secret it is public and only names itself."""

    client_id: str
    client_secret: str | None = None

    @property
    def credentials(self) -> dict[str, str]:
        """Return the client's authentication as form fields."""
        secret = {} if self.client_secret is None else {"client_secret": self.client_secret}
        return {"client_id": self.client_id} | secret

    @property
    def basic(self) -> dict[str, str]:
        """Return the client's authentication as a header, unencoded as `curl -u` sends it."""
        return basic(self.client_id, self.client_secret or "")

    async def log_in(
        self, http: httpx2.AsyncClient, credentials: UserCredentials, scope: str = "realm:main role:enduser"
    ) -> httpx2.Response:
        """Send the password grant."""
        return await http.post(TOKEN, data=self.credentials | login_form(credentials, scope))

    async def refresh(self, http: httpx2.AsyncClient, refresh_token: str, **extra: str) -> httpx2.Response:
        form = {"grant_type": "refresh_token", "refresh_token": refresh_token}
        return await http.post(TOKEN, data=self.credentials | form | extra)

    async def exchange(self, http: httpx2.AsyncClient, code: str, redirect_uri: str, **extra: str) -> httpx2.Response:
        form = {"grant_type": "authorization_code", "code": code, "redirect_uri": redirect_uri}
        return await http.post(TOKEN, data=self.credentials | form | extra)

    async def revoke(self, http: httpx2.AsyncClient, token: str, **extra: str) -> httpx2.Response:
        return await http.post(REVOKE, data=self.credentials | {"token": token} | extra)

    async def introspect(self, http: httpx2.AsyncClient, token: str, **extra: str) -> httpx2.Response:
        return await http.post(INTROSPECT, data=self.credentials | {"token": token} | extra)


PHONE_APP = OAuthClient("phone-app")
WEB_SHOP = OAuthClient("web-shop", "web-shop-secret")
MADE_SECRET = OAuthClient("made-secret", "m" * 43)
READER = OAuthClient("reader", "a secret: with 100% + signs")
GATEWAY = OAuthClient("gateway", "gateway-secret")
AUDITOR = OAuthClient("auditor", "auditor-secret")
BACK_OFFICE = OAuthClient("back-office", "back-office-secret")

PHONE_CALLBACK = "http://127.0.0.1:9000/callback"
SHOP_CALLBACK = "https://shop.example/callback"


def login_form(credentials: UserCredentials, scope: str = "realm:main role:enduser") -> dict[str, str]:
    """Return the form of the password grant, without the client's authentication."""
    return {
        "grant_type": "password",
        "username": credentials.username,
        "password": credentials.password,
        "scope": scope,
    }


def basic(client_id: str, client_secret: str) -> dict[str, str]:
    return {"Authorization": "Basic " + b64encode(f"{client_id}:{client_secret}".encode()).decode()}


def bearer(access_token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {access_token}"}


async def revoke_all(http: httpx2.AsyncClient, access_token: str) -> httpx2.Response:
    return await http.post(REVOKE_ALL, headers=bearer(access_token))


async def revoke_user(
    http: httpx2.AsyncClient, sub_id: Mapping[str, str], client: OAuthClient = BACK_OFFICE
) -> httpx2.Response:
    """Send a global token revocation."""
    return await http.post(GLOBAL_REVOCATION, json={"sub_id": sub_id}, headers=client.basic)


async def put_user(
    http: httpx2.AsyncClient,
    username: str,
    body: object,
    client: OAuthClient = BACK_OFFICE,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    return await http.put(USERS + quote(username, safe=""), json=body, headers=client.basic | (headers or {}))


async def delete_user(
    http: httpx2.AsyncClient,
    username: str,
    client: OAuthClient = BACK_OFFICE,
    headers: dict[str, str] | None = None,
) -> httpx2.Response:
    return await http.delete(USERS + quote(username, safe=""), headers=client.basic | (headers or {}))


def name_subject(subject: str) -> dict[str, str]:
    return {"format": "opaque", "id": subject}


async def verify(http: httpx2.AsyncClient, access_token: str, scope: str = "") -> httpx2.Response:
    params = {"scope": scope} if scope else {}
    return await http.get(VERIFY, params=params, headers=bearer(access_token))


def tokens_of(response: httpx2.Response) -> Mapping[str, str]:
    """Return the body of a token response. The status must be 200."""
    assert response.status_code == 200, response.text
    body: Mapping[str, str] = json.loads(response.content)
    return body


def access_name_of(access_token: str) -> RandomToken:
    """Return the shard and the digest by which Redis knows an access token."""
    name = parse_access_token(access_token)
    assert name is not None, access_token
    return name


def access_key_of(access_token: str) -> str:
    name = access_name_of(access_token)
    return access_key(name.shard, name.digest)


def is_live(store: redis.Redis, access_token: str) -> bool:
    """Return True if Redis has the record of the access token."""
    name = parse_access_token(access_token)
    return name is not None and store.exists(access_key(name.shard, name.digest)) == 1


def assert_error(response: httpx2.Response, status: int, error: str) -> None:
    """Assert an OAuth error with a description, which no cache may keep."""
    body = json.loads(response.content)
    assert (response.status_code, body["error"]) == (status, error), response.text
    assert body["error_description"]
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert response.headers["pragma"] == "no-cache"
