"""Clients made with independent libraries, behind one interface of four steps."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qs, urlsplit

from authlib.common.security import generate_token
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from authlib.oauth2.rfc6749.errors import MismatchingStateException
from authlib.oauth2.rfc8414 import AuthorizationServerMetadata, get_well_known_url

from tests.support.clients_and_users import OAuthClient
from tests.support.javascript import check_javascript
from tests.support.waiting import MAX_WAIT_SECONDS

AUTHLIB = "authlib"
JAVASCRIPT = ("oauth4webapi", "openid-client")
LIBRARIES = (AUTHLIB, *JAVASCRIPT)


class Settings(NamedTuple):
    """The configuration of a client. It reads everything else from the metadata of the issuer."""

    issuer: str
    app: OAuthClient
    method: str
    redirect_uri: str
    scope: str = "realm:main role:enduser"


class LibraryError(Exception):
    """An error of the library. `error` is the service's error code or empty; `words` are the library's own."""

    def __init__(self, error: str, description: str, words: str) -> None:
        super().__init__(error or words)
        self.error = error
        self.description = description
        self.words = words


class ForeignClient(Protocol):
    async def begin(self) -> str:
        """Return the address of the authorization request, with a new state and a new challenge."""

    async def finish(self, redirect: str) -> Mapping[str, Any]:
        """Return the token response for the address of the callback."""

    async def refresh(self, token: str) -> Mapping[str, Any]: ...

    async def revoke(self, token: str) -> None: ...


@asynccontextmanager
async def foreign_client(library: str, settings: Settings) -> AsyncIterator[ForeignClient]:
    making = _authlib_client(settings) if library == AUTHLIB else _javascript_client(library, settings)
    async with making as client:
        yield client


class _AuthlibClient:
    """Authlib leaves the check of `iss`, and of errors in a redirect, to the application."""

    def __init__(self, oauth: AsyncOAuth2Client, metadata: AuthorizationServerMetadata) -> None:
        self._oauth = oauth
        self._metadata = metadata
        self._state = self._code_verifier = ""

    async def begin(self) -> str:
        self._code_verifier = generate_token(48)
        address, self._state = self._oauth.create_authorization_url(
            self._metadata["authorization_endpoint"], code_verifier=self._code_verifier
        )
        return str(address)

    async def finish(self, redirect: str) -> Mapping[str, Any]:
        answer = {name: value for name, (value,) in parse_qs(urlsplit(redirect).query).items()}
        if answer.get("iss") != self._metadata["issuer"]:
            raise LibraryError("", "", "unexpected iss")
        if "error" in answer:
            raise LibraryError(answer["error"], answer["error_description"], "")
        try:
            token: Mapping[str, Any] = await self._oauth.fetch_token(
                self._metadata["token_endpoint"],
                authorization_response=redirect,
                state=self._state,
                code_verifier=self._code_verifier,
            )
        except MismatchingStateException as error:
            raise LibraryError("", "", str(error)) from error
        except OAuthError as error:
            raise LibraryError(error.error, error.description, str(error)) from error
        return token

    async def refresh(self, token: str) -> Mapping[str, Any]:
        try:
            answer: Mapping[str, Any] = await self._oauth.refresh_token(self._metadata["token_endpoint"], token)
        except OAuthError as error:
            raise LibraryError(error.error, error.description, str(error)) from error
        return answer

    async def revoke(self, token: str) -> None:
        answer = await self._oauth.revoke_token(self._metadata["revocation_endpoint"], token)
        answer.raise_for_status()


@asynccontextmanager
async def _authlib_client(settings: Settings) -> AsyncIterator[ForeignClient]:
    async with AsyncOAuth2Client(
        settings.app.client_id,
        settings.app.client_secret,
        token_endpoint_auth_method=settings.method,
        revocation_endpoint_auth_method=settings.method,
        redirect_uri=settings.redirect_uri,
        scope=settings.scope,
        code_challenge_method="S256",
        timeout=MAX_WAIT_SECONDS,
    ) as oauth:
        address = get_well_known_url(settings.issuer, external=True)
        answer = await oauth.request("GET", address, withhold_token=True)
        metadata = AuthorizationServerMetadata(answer.raise_for_status().json())
        assert metadata["issuer"] == settings.issuer
        yield _AuthlibClient(oauth, metadata)


class _JavaScriptClient:
    """A script in a process of its own; see conversation.mjs."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def begin(self) -> str:
        return str(await self.run_command("begin"))

    async def finish(self, redirect: str) -> Mapping[str, Any]:
        return dict(await self.run_command("finish", redirect=redirect))

    async def refresh(self, token: str) -> Mapping[str, Any]:
        return dict(await self.run_command("refresh", token=token))

    async def revoke(self, token: str) -> None:
        await self.run_command("revoke", token=token)

    async def run_command(self, command: str, **fields: object) -> Any:
        to_script, from_script = self._process.stdin, self._process.stdout
        assert to_script is not None
        assert from_script is not None
        to_script.write(json.dumps({"command": command} | fields).encode() + b"\n")
        async with asyncio.timeout(MAX_WAIT_SECONDS):
            line = await from_script.readline()
        assert line, "the script ended"
        answer = json.loads(line)
        if "refused" in answer:
            raise LibraryError(**answer["refused"])
        return answer["value"]


@asynccontextmanager
async def _javascript_client(library: str, settings: Settings) -> AsyncIterator[ForeignClient]:
    check_javascript()
    node, script = Path(sys.executable).with_name("node"), Path(__file__).with_name(f"{library}.mjs")
    process = await asyncio.create_subprocess_exec(node, script, stdin=PIPE, stdout=PIPE)
    assert process.stdin is not None
    client = _JavaScriptClient(process)
    known = {name: value for name, value in settings._asdict().items() if name != "app"}
    try:
        await client.run_command("prepare", settings=known | settings.app.credentials)
        yield client
    finally:
        process.stdin.close()
        assert await process.wait() == 0
