"""An identity provider in the event loop of the test, which is correct unless the test changes it.

It is an OpenID Provider with one user and one client. The user counts as logged in there and is asked nothing. The
client is the service.
"""

import asyncio
import base64
import functools
import hashlib
import hmac
import json
import re
import secrets
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import parse_qsl, quote_plus, urlencode, urlsplit

from joserfc.jwk import Key, KeyParameters, RSAKey
from joserfc.jws import JWSRegistry

from tests.support.servers import free_port
from tests.support.waiting import until

CLIENT_ID: Final = "token-service"
CLIENT_SECRET: Final = "secret at the organisation"
USERNAME: Final = "zoe"
PASSWORD: Final = "a password elsewhere"
CLAIMS: Final[Mapping[str, object]] = {
    "sub": "248289761001",
    "name": "Zoë Example",
    "email": "zoe@org.example",
    "email_verified": True,
}
KEY_NAMES: Final = [("a key", "another key"), ("a key", "a key"), (None, None), ("a key", None), (None, "a key")]
"""The `kid` of an old and of a new key of one provider."""

LIFETIME_SECONDS: Final = 600
LOGOUT_EVENT: Final = "http://schemas.openid.net/event/backchannel-logout"

OPENID_METADATA: Final = "/.well-known/openid-configuration"
OAUTH_METADATA: Final = "/.well-known/oauth-authorization-server"
AUTHORIZE: Final = "/authorize"
TOKEN: Final = "/token"
USERINFO: Final = "/userinfo"
INTROSPECT: Final = "/introspect"
KEYS: Final = "/keys"

_FORM: Final = "application/x-www-form-urlencoded"

Changes: TypeAlias = dict[str, object]


class ReceivedRequest(NamedTuple):
    """A request to the provider.

    Names of headers are in small letters. `form` is empty if the body is no form.
    """

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    form: Mapping[str, str]


@dataclass(frozen=True)
class Reply:
    """A response. A body that is no bytes is sent as JSON."""

    status: int = 200
    body: bytes | Mapping[str, object] = b""
    headers: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        is_json = not isinstance(self.body, bytes)
        body = self.body if isinstance(self.body, bytes) else json.dumps(self.body, ensure_ascii=False).encode()
        headers = {"content-type": "application/json"} if is_json else {}
        headers |= {"content-length": str(len(body)), "connection": "close"}
        headers |= {name.lower(): value for name, value in self.headers.items()}
        lines = [f"HTTP/1.1 {self.status} Whatever"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + body


@dataclass(frozen=True)
class Hang:
    """No response, and a connection that stays open until the caller closes it."""


@dataclass(frozen=True)
class Drop:
    """No response: the connection ends."""


@dataclass(frozen=True)
class Raw:
    """Exactly these bytes, and then the end of the connection."""

    data: bytes


@dataclass(frozen=True)
class Held:
    """The reply, once the event is set."""

    reply: Reply
    event: asyncio.Event


Answer: TypeAlias = Reply | Hang | Drop | Raw | Held


class _Grant(NamedTuple):
    """The authorization request that a code belongs to."""

    redirect_uri: str
    code_challenge: str
    nonce: str | None
    scope: str


class _Refusal(Exception):
    def __init__(self, error: str, status: int = 400, **headers: str) -> None:
        super().__init__(error)
        self.reply = Reply(status, {"error": error, "error_description": "Said by the organisation."}, headers)


class FakeProvider:
    """An identity provider that keeps every request in `requests`. A test may change at any time:

    `claims`: the claims of the user in ID tokens, userinfo and introspection.
    `id_token_claims`, `id_token_header`, `userinfo`, `introspection`, `token_response`, `metadata`, `redirect`: changes
    of these alone. None leaves out a member. `redirect` is the query of the redirect to the service.
    `keys`: the published keys. See also `sign_with`, `replace_key` and `answer`.
    """

    def __init__(self, host: str = "127.0.0.1") -> None:
        self.port = free_port()
        self.url = f"http://{host}:{self.port}"
        self.requests: list[ReceivedRequest] = []
        self.claims: dict[str, Any] = dict(CLAIMS)
        self.id_token_claims: Changes = {}
        self.id_token_header: Changes = {}
        self.userinfo: Changes = {}
        self.introspection: Changes = {}
        self.token_response: Changes = {}
        self.metadata: Changes = {}
        self.redirect: Changes = {}
        self.keys: list[Key] = [published_key()]
        self.issued: list[str] = []
        """Every code and token of a correct response."""
        self.waiting = 0
        """The number of requests that hang now."""
        self._signing_key: Key | bytes | None = published_key()
        self._algorithm = "RS256"
        self._answers: dict[str, Answer] = {}
        self._correct_answers: Mapping[tuple[str, str], Callable[[ReceivedRequest], Reply]] = {
            ("GET", OPENID_METADATA): lambda _: Reply(200, self.describe()),
            ("GET", AUTHORIZE): self._authorize,
            ("POST", TOKEN): self._issue,
            ("GET", USERINFO): self._answer_userinfo,
            ("POST", INTROSPECT): self._introspect,
            ("GET", KEYS): lambda _: Reply(200, {"keys": [key.as_dict(private=False) for key in self.keys]}),
        }
        self._grants: dict[str, _Grant] = {}
        self._scopes: dict[str, str] = {}
        self._connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def calls(self, path: str) -> list[ReceivedRequest]:
        return [request for request in self.requests if request.path == path]

    def answer(self, path: str, answer: Answer | None) -> None:
        """Answer every further request for the path with this. None restores the correct responses."""
        if answer is None:
            self._answers.pop(path, None)
        else:
            self._answers[path] = answer

    def sign_with(self, key: Key | bytes | None, algorithm: str = "RS256") -> None:
        """Sign ID tokens with this key, published or not. Bytes are a secret for HS256; None leaves them unsigned.

        The header names the first published key, unless the key has a `kid` or `id_token_header` says otherwise.
        """
        self._signing_key = key
        self._algorithm = {bytes: "HS256", type(None): "none"}.get(type(key), algorithm)

    def replace_key(self, kid: str | None) -> None:
        """Publish a new key alone, and sign with it. Without a `kid`, neither the key nor a token names one."""
        parameters: KeyParameters = {"use": "sig", "alg": "RS256"}
        self.keys = [RSAKey.generate_key(2048, parameters if kid is None else {**parameters, "kid": kid})]
        self.sign_with(self.keys[0])

    async def await_requests(self, path: str, count: int = 1) -> None:
        """Wait until so many requests for the path have come."""
        await until(lambda: len(self.calls(path)) >= count, f"{count} requests for {path}")

    async def await_idle(self) -> None:
        """Wait until no request waits for a response, because the callers have closed their connections."""
        await until(lambda: self.waiting == 0, "the end of all waiting")

    @asynccontextmanager
    async def stopped(self) -> AsyncIterator[None]:
        """Stop the provider in the block: it has no listening socket and no connection."""
        await self.stop()
        try:
            yield
        finally:
            await self.start()

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def stop(self) -> None:
        self._server.close()
        ending = list(self._connections)
        for task, writer in self._connections.items():
            writer.transport.abort()
            task.cancel()
        await asyncio.gather(*ending, return_exceptions=True)
        await self._server.wait_closed()

    def describe(self) -> Mapping[str, object]:
        """Return the metadata that the provider publishes."""
        usual = {
            "issuer": self.url,
            "authorization_endpoint": self.url + AUTHORIZE,
            "token_endpoint": self.url + TOKEN,
            "userinfo_endpoint": self.url + USERINFO,
            "introspection_endpoint": self.url + INTROSPECT,
            "jwks_uri": self.url + KEYS,
            "response_types_supported": ["code"],
            "token_endpoint_auth_methods_supported": ["client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
        }
        return _changed(usual, self.metadata)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve_connection(reader, writer))
        self._connections[task] = writer
        task.add_done_callback(self._connections.pop)

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Read one request and answer it."""
        try:
            answer = await self._receive(reader)
            await self._send(answer, reader, writer)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            pass  # the caller has hung up
        finally:
            writer.transport.abort()

    async def _receive(self, reader: asyncio.StreamReader) -> Answer:
        try:
            request = await _read_request(reader)
        except (ValueError, KeyError, asyncio.LimitOverrunError) as error:
            return Reply(400, f"no request that an organisation would take: {error!r}".encode())
        self.requests.append(request)
        return self._answers.get(request.path) or self._answer_correctly(request)

    async def _send(self, answer: Answer, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        match answer:
            case Reply():
                writer.write(answer.encode())
            case Raw(data):
                writer.write(data)
            case Hang():
                with self._counting_as_waiting():
                    await reader.read()
            case Held(reply, event):
                with self._counting_as_waiting():
                    await event.wait()
                writer.write(reply.encode())

    @contextmanager
    def _counting_as_waiting(self) -> Iterator[None]:
        self.waiting += 1
        try:
            yield
        finally:
            self.waiting -= 1

    def _answer_correctly(self, request: ReceivedRequest) -> Reply:
        try:
            answer = self._correct_answers.get((request.method, request.path))
            return Reply(404, {"error": "not_found"}) if answer is None else answer(request)
        except _Refusal as refusal:
            return refusal.reply

    def _authorize(self, request: ReceivedRequest) -> Reply:
        """Answer an authorization request for the logged-in user. A wrong request is refused without a redirect."""
        query = request.query
        wanted = {"client_id": CLIENT_ID, "response_type": "code", "code_challenge_method": "S256"}
        is_whole = "redirect_uri" in query and re.fullmatch(r"[\w-]{43}", query.get("code_challenge", ""), re.ASCII)
        if not is_whole or not wanted.items() <= query.items():
            raise _Refusal("invalid_request")
        code = secrets.token_urlsafe()
        self.issued.append(code)
        redirect_uri = query["redirect_uri"]
        self._grants[code] = _Grant(redirect_uri, query["code_challenge"], query.get("nonce"), query.get("scope", ""))
        state = {"state": query["state"]} if "state" in query else {}
        answer = _changed({"code": code, "iss": self.url} | state, self.redirect)
        separator = "&" if urlsplit(redirect_uri).query else "?"
        return Reply(302, headers={"location": redirect_uri + separator + urlencode(answer)})

    def _issue(self, request: ReceivedRequest) -> Reply:
        _check_client(request)
        match request.form.get("grant_type"):
            case "authorization_code":
                grant = self._spend_code(request.form)
                return self._issue_tokens(grant.scope, grant.nonce)
            case "password":
                pair = request.form.get("username"), request.form.get("password")
                if pair != (USERNAME, PASSWORD):
                    raise _Refusal("invalid_grant")
                return self._issue_tokens(request.form.get("scope", ""), None)
        raise _Refusal("unsupported_grant_type")

    def _spend_code(self, form: Mapping[str, str]) -> _Grant:
        """Remove the code and return its grant. A wrong use of a code removes it, too."""
        grant = self._grants.pop(form.get("code", ""), None)
        challenge = _encode(hashlib.sha256(form.get("code_verifier", "").encode()).digest())
        given = form.get("redirect_uri"), challenge
        if grant is None or given != (grant.redirect_uri, grant.code_challenge):
            raise _Refusal("invalid_grant")
        return grant

    def _issue_tokens(self, scope: str, nonce: str | None) -> Reply:
        access_token = secrets.token_urlsafe()
        self._scopes[access_token] = scope
        tokens: Changes = {"access_token": access_token, "token_type": "Bearer", "expires_in": LIFETIME_SECONDS}
        if scope:
            tokens["scope"] = scope
        if "openid" in scope.split():
            tokens["id_token"] = self._make_id_token(nonce)
        self.issued += [str(tokens[name]) for name in ("access_token", "id_token") if name in tokens]
        return Reply(200, _changed(tokens, self.token_response), {"cache-control": "no-store"})

    def _make_id_token(self, nonce: str | None) -> str:
        now = read_wall_clock()
        usual = {"iss": self.url, "aud": CLIENT_ID, "exp": now + LIFETIME_SECONDS, "iat": now} | self.claims
        if nonce is not None:
            usual["nonce"] = nonce
        return self._sign(_changed(usual, self.id_token_claims), self.id_token_header)

    def make_logout_token(self, *, header: Changes | None = None, **changes: object) -> str:
        """Return a logout token of the user. A changed claim or header parameter that is None is left out."""
        now = read_wall_clock()
        usual = {"iss": self.url, "aud": CLIENT_ID, "exp": now + 120, "iat": now, "sub": self.claims["sub"]}
        usual |= {"jti": secrets.token_urlsafe(), "events": {LOGOUT_EVENT: {}}}
        return self._sign(_changed(usual, changes), {"typ": "logout+jwt"} | (header or {}))

    def _sign(self, claims: Changes, header_changes: Changes) -> str:
        """Sign without a library, because a library would refuse to write invalid tokens."""
        key = self._signing_key
        kid = None if key is None or isinstance(key, bytes) else key.kid
        usual = {"alg": self._algorithm, "typ": "JWT", "kid": kid or self.keys[0].kid}
        header = _changed(usual, header_changes)
        signed = ".".join(_encode(json.dumps(part).encode()) for part in (header, claims))
        if key is None:
            signature = b""
        elif isinstance(key, bytes):
            signature = hmac.digest(key, signed.encode(), "sha256")
        else:
            signature = JWSRegistry.algorithms[self._algorithm].sign(signed.encode(), key)
        return f"{signed}.{_encode(signature)}"

    def _answer_userinfo(self, request: ReceivedRequest) -> Reply:
        scheme, _, access_token = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or access_token not in self._scopes:
            raise _Refusal("invalid_token", 401, **{"www-authenticate": 'Bearer error="invalid_token"'})
        return Reply(200, _changed(self.claims, self.userinfo))

    def _introspect(self, request: ReceivedRequest) -> Reply:
        _check_client(request)
        scope = self._scopes.get(request.form.get("token", ""))
        if scope is None:
            return Reply(200, {"active": False})
        now = read_wall_clock()
        usual = {
            "active": True,
            "iss": self.url,
            "client_id": CLIENT_ID,
            "username": USERNAME,
            "token_type": "Bearer",
            "scope": scope,
            "iat": now,
            "exp": now + LIFETIME_SECONDS,
        }
        return Reply(200, _changed(usual | self.claims, self.introspection))


@asynccontextmanager
async def running_provider(*, host: str = "127.0.0.1") -> AsyncIterator[FakeProvider]:
    """Run a provider at 127.0.0.1. With the host `localhost` browsers take it for another site."""
    provider = FakeProvider(host)
    await provider.start()
    try:
        yield provider
    finally:
        await provider.stop()


def read_wall_clock() -> int:
    """Return the seconds since 1970, as a provider writes them into its tokens."""
    return int(time.time())


def realm_of(provider: FakeProvider, **changes: object) -> dict[str, object]:
    """Return the realm's entry in a seed file. A key that is None is left out."""
    usual = {
        "name": "Example Energy Cooperative",
        "issuer": provider.url,
        "client_id": CLIENT_ID,
        "client_secret": CLIENT_SECRET,
        "scope": "openid email",
        "username_claim": "sub",
        "default_roles": ["enduser"],
    }
    return _changed(usual, changes)


@functools.cache
def published_key() -> RSAKey:
    """Return the key of all providers of this run. It is made once, because that takes time."""
    return RSAKey.generate_key(2048, {"use": "sig", "alg": "RS256"}, auto_kid=True)


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest:
    """Read a request. Raises ValueError or KeyError if it is malformed or repeats a parameter."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    request_line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    method, target, _ = request_line.split(" ")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if "transfer-encoding" in headers:
        raise ValueError("a body in chunks")
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    is_form = headers.get("content-type", "").partition(";")[0].strip().lower() == _FORM
    address = urlsplit(target)
    form = _parse_parameters(body.decode()) if is_form else {}
    return ReceivedRequest(method, address.path, _parse_parameters(address.query), headers, form)


def _parse_parameters(text: str) -> Mapping[str, str]:
    pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True, errors="strict") if text else []
    parameters = dict(pairs)
    if len(parameters) != len(pairs):
        raise ValueError("a parameter twice")
    return parameters


def _check_client(request: ReceivedRequest) -> None:
    """Raise unless the client authenticates by Basic alone, each half encoded as in a form."""
    halves = ":".join(map(quote_plus, (CLIENT_ID, CLIENT_SECRET)))
    expected = f"Basic {base64.b64encode(halves.encode()).decode()}"
    if request.headers.get("authorization") != expected or "client_secret" in request.form:
        raise _Refusal("invalid_client", 401, **{"www-authenticate": 'Basic realm="organisation"'})


def _changed(usual: Mapping[str, object], changes: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in {**usual, **changes}.items() if value is not None}


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
