"""A peer of the benchmark: Authlib on Flask with all its tokens in Redis.

`POST /supply?count=N` starts sessions as logins do. The response has a line of access token and refresh token for each.
"""

from __future__ import annotations

import itertools
import json
import os
import time
from dataclasses import asdict, dataclass
from secrets import compare_digest
from typing import Any

import redis
from authlib.common.security import generate_token
from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import ClientMixin, TokenMixin
from authlib.oauth2.rfc6749.grants import RefreshTokenGrant
from authlib.oauth2.rfc7009 import RevocationEndpoint
from authlib.oauth2.rfc7662 import IntrospectionEndpoint
from flask import Flask, Response, request

ACCESS_SECONDS, REFRESH_SECONDS = 600, 2_592_000

store = redis.Redis.from_url(os.environ["REDIS_URL"])
users = itertools.count()


@dataclass
class User:
    username: str


class Client(ClientMixin):
    client_id, client_secret = "shop", "shop-secret"

    def get_client_id(self) -> str:
        return self.client_id

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_client_secret(self, client_secret: str) -> bool:
        return compare_digest(self.client_secret, client_secret)

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_post"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "refresh_token"


@dataclass
class Token(TokenMixin):
    """The record of a token pair. It is stored under the access token and under the refresh token."""

    access_token: str
    refresh_token: str
    client_id: str
    username: str
    scope: str
    issued_at: int

    def check_client(self, client: Client) -> bool:
        return self.client_id == client.client_id

    def get_scope(self) -> str:
        return self.scope

    def get_expires_in(self) -> int:
        return ACCESS_SECONDS

    def is_expired(self) -> bool:
        """Return True if the access token is expired. Redis expires the record of a refresh token."""
        return self.issued_at + ACCESS_SECONDS < time.time()

    def is_revoked(self) -> bool:
        """Return False, since revocation deletes the record."""
        return False

    def save(self) -> None:
        record = json.dumps(asdict(self))
        with store.pipeline() as commands:
            commands.set(f"access:{self.access_token}", record, ex=ACCESS_SECONDS)
            commands.set(f"refresh:{self.refresh_token}", record, ex=REFRESH_SECONDS)
            commands.execute()

    def delete(self) -> None:
        store.delete(f"access:{self.access_token}", f"refresh:{self.refresh_token}")


def find_token(kind: str, text: str) -> Token | None:
    record = store.get(f"{kind}:{text}")
    return None if record is None else Token(**json.loads(record))


def query_token(text: str, hint: str | None) -> Token | None:
    kinds = ("refresh", "access") if hint == "refresh_token" else ("access", "refresh")
    return next((token for kind in kinds if (token := find_token(kind, text))), None)


class Refresh(RefreshTokenGrant):
    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_post",)
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Token | None:
        return find_token("refresh", refresh_token)

    def authenticate_user(self, refresh_token: Token) -> User:
        return User(refresh_token.username)

    def revoke_old_credential(self, refresh_token: Token) -> None:
        """Delete the old refresh token. The old access token stays valid until it expires."""
        store.delete(f"refresh:{refresh_token.refresh_token}")


class Introspection(IntrospectionEndpoint):
    CLIENT_AUTH_METHODS = ("client_secret_post",)

    def query_token(self, token_string: str, token_type_hint: str | None) -> Token | None:
        return query_token(token_string, token_type_hint)

    def check_permission(self, token: Token, client: Client, request: object) -> bool:
        return True

    def introspect_token(self, token: Token) -> dict[str, Any]:
        return {
            "active": True,
            "client_id": token.client_id,
            "token_type": "Bearer",
            "username": token.username,
            "scope": token.scope,
            "exp": token.issued_at + ACCESS_SECONDS,
            "iat": token.issued_at,
        }


class Revocation(RevocationEndpoint):
    CLIENT_AUTH_METHODS = ("client_secret_post",)

    def query_token(self, token_string: str, token_type_hint: str | None) -> Token | None:
        return query_token(token_string, token_type_hint)

    def revoke_token(self, token: Token, request: object) -> None:
        token.delete()


def save_token(token: dict[str, str], request: Any) -> None:
    make_token(request.client.client_id, request.user.username, token).save()


def make_token(client_id: str, username: str, token: dict[str, str]) -> Token:
    return Token(token["access_token"], token["refresh_token"], client_id, username, token["scope"], int(time.time()))


client = Client()
app = Flask(__name__)
app.config["OAUTH2_REFRESH_TOKEN_GENERATOR"] = True
server = AuthorizationServer(app, {client.client_id: client}.get, save_token)
server.register_grant(Refresh)
server.register_endpoint(Introspection)
server.register_endpoint(Revocation)


@app.post("/token")
def issue() -> Response:
    response: Response = server.create_token_response()
    return response


@app.post("/token/introspection")
def introspect() -> Response:
    response: Response = server.create_endpoint_response(Introspection.ENDPOINT_NAME)
    return response


@app.post("/token/revocation")
def revoke() -> Response:
    response: Response = server.create_endpoint_response(Revocation.ENDPOINT_NAME)
    return response


@app.post("/supply")
def supply() -> str:
    lines = []
    for _ in range(int(request.args["count"])):
        pair = {"access_token": generate_token(42), "refresh_token": generate_token(48), "scope": "api"}
        make_token(client.client_id, f"user{next(users)}@example.com", pair).save()
        lines.append(f"{pair['access_token']} {pair['refresh_token']}")
    return "\n".join(lines)
