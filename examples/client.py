"""An example client: a small web application that signs people in with the token service and shows their tokens.

./scripts/example-client starts it; ./scripts/serve must be running. It implements what a client with a server of its
own needs: PKCE, `state`, the check of `iss`, refresh and revocation. Authlib sends the OAuth requests. The page works
without JavaScript.
"""

from __future__ import annotations

import argparse
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import jinja2
import uvicorn
from authlib.integrations.base_client import OAuthError
from authlib.integrations.httpx_client import AsyncOAuth2Client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from examples.client_arguments import parse_arguments

COOKIE = "example_client"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
}
MESSAGES = {
    "access_denied": "You or the service denied the request.",
    "invalid_client": "The service does not know this client, or the client secret is wrong.",
    "invalid_grant": "The code or the refresh token is no longer valid.",
    "invalid_scope": "This client may not request this scope.",
    "temporarily_unavailable": "The service is busy. Try again in a moment.",
}
PAGE = jinja2.Environment(autoescape=True).from_string("""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>Example client</title>
<style>body { font: 1.1rem/1.6 sans-serif; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }
button { font: inherit; padding: .4rem 1rem } dt { font-weight: bold }</style>
<main><h1>Example client</h1>{% if notice %}<p role="status"><strong>{{ notice }}</strong></p>{% endif %}
{% if token %}<dl>
<dt>scope<dd>{{ token.scope }}<dt>expires_in<dd>{{ token.expires_in }} seconds
<dt>access_token<dd><code>{{ token.access_token[:12] }}…{{ token.access_token[-6:] }}</code>
<dt>refresh_token<dd><code>{{ token.refresh_token[:12] }}…{{ token.refresh_token[-6:] }}</code>
</dl>{% else %}<p>You are not signed in.</p>{% endif %}
<form method="post"><input type="hidden" name="csrf_token" value="{{ csrf_token }}">
{% if token %}<button formaction="/refresh">Refresh</button> <button formaction="/log-out">Log out</button>
{% else %}<button formaction="/sign-in">Sign in with Token Service</button>{% endif %}</form></main></html>""")


class RequestFailed(Exception):
    """A request that failed. The message is shown to the user; `error` is the OAuth error code, or empty."""

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


@dataclass
class AppSession:
    """The data that the client keeps for one browser. The browser has a cookie with a random key and nothing else."""

    csrf_token: str = field(default_factory=secrets.token_urlsafe)
    state: str = ""
    code_verifier: str = ""
    token: Mapping[str, Any] = field(default_factory=dict)
    notice: str = ""


Handler = Callable[[Request, AppSession], Awaitable[Response]]


class ExampleClient:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.issuer: str = options.issuer.rstrip("/")
        self.home_url = f"http://127.0.0.1:{options.port}/"
        self.sessions: dict[str, AppSession] = {}

    def make_app(self) -> Starlette:
        gets = {"/": self.show_page, "/callback": self.handle_callback}
        posts = {"/sign-in": self.sign_in, "/refresh": self.refresh, "/log-out": self.log_out}
        routes = [Route(path, self.with_session(handler)) for path, handler in gets.items()]
        routes += [Route(path, self.with_session(handler), methods=["POST"]) for path, handler in posts.items()]
        return Starlette(routes=routes)

    def with_session(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Return an endpoint that calls the handler with the session of the browser that sent the request.

        The endpoint checks the form of each POST. If the request fails, it redirects to the page with the message.
        """

        async def handle(request: Request) -> Response:
            name = request.cookies.get(COOKIE, "")
            if name not in self.sessions:
                name = secrets.token_urlsafe()
            session = self.sessions.setdefault(name, AppSession())
            try:
                if request.method == "POST":
                    await check_form(request, session)
                response = await handler(request, session)
            except RequestFailed as failure:
                session.notice = str(failure)
                response = RedirectResponse("/", 303)
            response.set_cookie(COOKIE, name, httponly=True, samesite="lax")
            response.headers.update(HEADERS)
            return response

        return handle

    async def show_page(self, _: Request, session: AppSession) -> Response:
        notice, session.notice = session.notice, ""
        return HTMLResponse(PAGE.render(notice=notice, token=session.token, csrf_token=session.csrf_token))

    async def sign_in(self, _: Request, session: AppSession) -> Response:
        """Redirect to the authorization endpoint, with a new state and a new PKCE challenge for this browser."""
        state, code_verifier = secrets.token_urlsafe(), secrets.token_urlsafe(48)
        async with self.open_oauth_client() as (oauth, metadata):
            endpoint = metadata["authorization_endpoint"]
            address, _ = oauth.create_authorization_url(endpoint, state, code_verifier, scope=self.options.scope)
        session.state, session.code_verifier = state, code_verifier
        return RedirectResponse(address, 303)

    async def handle_callback(self, request: Request, session: AppSession) -> Response:
        """Check the authorization response and exchange its code for tokens.

        `state` proves that this browser started the sign-in. `iss` proves that the response is from the service.

        Clauses: RFC 6749 §4.1.2, RFC 9207 §2.4
        """
        parameters = request.query_params
        if not session.state or parameters.get("state") != session.state:
            raise RequestFailed(f"This browser did not start that sign-in. Start at {self.home_url}")
        code_verifier, session.state, session.code_verifier = session.code_verifier, "", ""  # valid for one response
        if parameters.get("iss") != self.issuer:
            raise RequestFailed(f"That response does not come from {self.issuer}.")
        if "error" in parameters:
            raise make_oauth_failure(parameters["error"], parameters.get("error_description"))
        grant = {"grant_type": "authorization_code", "code": parameters.get("code", ""), "code_verifier": code_verifier}
        async with self.open_oauth_client() as (oauth, metadata):
            session.token = await oauth.fetch_token(metadata["token_endpoint"], **grant)
        session.notice = "You are signed in."
        return RedirectResponse("/", 303)

    async def refresh(self, _: Request, session: AppSession) -> Response:
        """Replace the tokens by new ones. If the service refuses the refresh token, the user has to sign in again."""
        try:
            async with self.open_oauth_client() as (oauth, metadata):
                await self.send_refresh(oauth, metadata["token_endpoint"], session)
        except RequestFailed as failure:
            if failure.error == "invalid_grant":
                session.token = {}
            raise
        session.notice = "The tokens were refreshed."
        return RedirectResponse("/", 303)

    async def send_refresh(self, oauth: AsyncOAuth2Client, endpoint: str, session: AppSession) -> None:
        """Replace the tokens. If the response is lost, the request is repeated at once.

        The service may have used the refresh token up, and accepts it again for five minutes only.
        """
        refresh_token = session.token["refresh_token"]
        try:
            session.token = await oauth.refresh_token(endpoint, refresh_token)
        except httpx2.TransportError:
            session.token = await oauth.refresh_token(endpoint, refresh_token)

    async def log_out(self, _: Request, session: AppSession) -> Response:
        """Revoke the refresh token, which ends the session at the service and revokes its access tokens."""
        async with self.open_oauth_client() as (oauth, metadata):
            response = await oauth.revoke_token(metadata["revocation_endpoint"], session.token["refresh_token"])
            response.raise_for_status()
        session.token, session.notice = {}, "You are logged out. The tokens are revoked."
        return RedirectResponse("/", 303)

    @asynccontextmanager
    async def open_oauth_client(self) -> AsyncIterator[tuple[AsyncOAuth2Client, Mapping[str, str]]]:
        """Yield Authlib's client and the service's metadata. Their errors are raised as RequestFailed."""
        client_id, client_secret = self.options.client_id, self.options.client_secret or None
        oauth_options = {"redirect_uri": f"{self.home_url}callback", "code_challenge_method": "S256"}
        try:
            async with AsyncOAuth2Client(client_id, client_secret, **oauth_options) as oauth:
                yield oauth, await self.read_metadata(oauth)
        except OAuthError as error:
            raise make_oauth_failure(error.error, error.description) from error
        except (httpx2.HTTPError, ValueError) as error:
            raise RequestFailed(f"No response from {self.issuer}. Is ./scripts/serve running? ({error})") from error

    async def read_metadata(self, oauth: AsyncOAuth2Client) -> Mapping[str, str]:
        """Read the service's metadata. Raises RequestFailed if the metadata names another issuer.

        The well-known path is inserted before the path of the issuer.

        Clauses: RFC 8414 §3.1, §3.3
        """
        issuer = urlsplit(self.issuer)
        address = issuer._replace(path=f"/.well-known/oauth-authorization-server{issuer.path}").geturl()
        response = await oauth.request("GET", address, withhold_token=True)
        metadata: Mapping[str, str] = response.raise_for_status().json()
        if metadata.get("issuer") != self.issuer:
            raise RequestFailed(
                f"The issuer of that service is {metadata.get('issuer')}. Start the client with this --issuer."
            )
        return metadata


async def check_form(request: Request, session: AppSession) -> None:
    """Raise RequestFailed unless the form has the session's CSRF token and its button is still on the page."""
    form = parse_qs((await request.body()).decode("latin-1"))
    if form.get("csrf_token") != [session.csrf_token] or bool(session.token) == (request.url.path == "/sign-in"):
        raise RequestFailed("That page was out of date. Try again.")


def make_oauth_failure(error: str, description: str | None) -> RequestFailed:
    """Return the exception for an OAuth error, with a message for the user."""
    message = MESSAGES.get(error, "The service refused the request.")
    return RequestFailed(f"{message} ({error}: {description})" if description else f"{message} ({error})", error)


if __name__ == "__main__":
    client = ExampleClient(parse_arguments())
    # There is no access log, since the URL of the callback contains the authorization code.
    config = uvicorn.Config(
        client.make_app(), host="127.0.0.1", port=client.options.port, access_log=False, log_level="warning"
    )
    # If the port is in use, bind_socket logs that and ends the process. Ctrl-C ends the server without a traceback.
    with config.bind_socket() as listening, suppress(KeyboardInterrupt):
        print(f"Open {client.home_url} in a browser.", flush=True)  # noqa: T201
        uvicorn.Server(config).run(sockets=[listening])
