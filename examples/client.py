"""An example client: a small web application that signs people in with the token service, and shows what it got.

./scripts/example-client runs it beside ./scripts/serve. It has all that a client with a server of its own needs: PKCE,
state, the check of `iss`, refresh and revocation. Authlib speaks OAuth; the page needs no scripts.
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

COOKIE = "example_client"
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'",
}
WORDS = {
    "access_denied": "You, or the service, did not allow it.",
    "invalid_client": "The service does not know this client, or not by this secret.",
    "invalid_grant": "What we presented is not good any more.",
    "invalid_scope": "The service does not give this client what it asked for.",
    "temporarily_unavailable": "The service is busy; try again in a moment.",
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


class Trouble(Exception):
    """The message is for the person at the browser; `error` is what the service calls it."""

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


@dataclass
class Visit:
    """What we remember of one browser, which itself holds a random cookie and nothing else."""

    csrf_token: str = field(default_factory=secrets.token_urlsafe)
    state: str = ""
    code_verifier: str = ""
    token: Mapping[str, Any] = field(default_factory=dict)
    notice: str = ""


Handler = Callable[[Request, Visit], Awaitable[Response]]


class ExampleClient:
    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.issuer: str = options.issuer.rstrip("/")
        self.home = f"http://127.0.0.1:{options.port}/"
        self.visits: dict[str, Visit] = {}

    def make_app(self) -> Starlette:
        gets = {"/": self.show, "/callback": self.come_back}
        posts = {"/sign-in": self.sign_in, "/refresh": self.refresh, "/log-out": self.log_out}
        routes = [Route(path, self.with_visit(handler)) for path, handler in gets.items()]
        routes += [Route(path, self.with_visit(handler), methods=["POST"]) for path, handler in posts.items()]
        return Starlette(routes=routes)

    def with_visit(self, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
        """Finds what we remember of this browser, and tells of trouble on the next page."""

        async def handle(request: Request) -> Response:
            name = request.cookies.get(COOKIE, "")
            if name not in self.visits:
                name = secrets.token_urlsafe()
            visit = self.visits.setdefault(name, Visit())
            try:
                if request.method == "POST":
                    await check_form(request, visit)
                response = await handler(request, visit)
            except Trouble as trouble:
                visit.notice = str(trouble)
                response = RedirectResponse("/", 303)
            response.set_cookie(COOKIE, name, httponly=True, samesite="lax")
            response.headers.update(HEADERS)
            return response

        return handle

    async def show(self, _: Request, visit: Visit) -> Response:
        notice, visit.notice = visit.notice, ""
        return HTMLResponse(PAGE.render(notice=notice, token=visit.token, csrf_token=visit.csrf_token))

    async def sign_in(self, _: Request, visit: Visit) -> Response:
        """Off to the service, with a state and a PKCE challenge that belong to this browser only."""
        state, code_verifier = secrets.token_urlsafe(), secrets.token_urlsafe(48)
        async with self.service() as (oauth, metadata):
            endpoint = metadata["authorization_endpoint"]
            address, _ = oauth.create_authorization_url(endpoint, state, code_verifier, scope=self.options.scope)
        visit.state, visit.code_verifier = state, code_verifier
        return RedirectResponse(address, 303)

    async def come_back(self, request: Request, visit: Visit) -> Response:
        """From the service: did this browser ask for it, does it come from there, and what does it say?"""
        answer = request.query_params
        if not visit.state or answer.get("state") != visit.state:
            raise Trouble(f"This browser did not ask for that answer. Start at {self.home}")
        code_verifier, visit.state, visit.code_verifier = visit.code_verifier, "", ""  # good for one answer
        if answer.get("iss") != self.issuer:
            raise Trouble(f"That answer does not come from {self.issuer}.")
        if "error" in answer:
            raise in_words(answer["error"], answer.get("error_description"))
        grant = {"grant_type": "authorization_code", "code": answer.get("code", ""), "code_verifier": code_verifier}
        async with self.service() as (oauth, metadata):
            visit.token = await oauth.fetch_token(metadata["token_endpoint"], **grant)
        visit.notice = "You are signed in."
        return RedirectResponse("/", 303)

    async def refresh(self, _: Request, visit: Visit) -> Response:
        """Where the session is over, nothing that we hold is good any more: the person may sign in again."""
        try:
            async with self.service() as (oauth, metadata):
                visit.token = await oauth.refresh_token(metadata["token_endpoint"], visit.token["refresh_token"])
        except Trouble as trouble:
            if trouble.error == "invalid_grant":
                visit.token = {}
            raise
        visit.notice = "The tokens are new."
        return RedirectResponse("/", 303)

    async def log_out(self, _: Request, visit: Visit) -> Response:
        """The refresh token takes its whole session along."""
        async with self.service() as (oauth, metadata):
            answer = await oauth.revoke_token(metadata["revocation_endpoint"], visit.token["refresh_token"])
            answer.raise_for_status()
        visit.token, visit.notice = {}, "You are logged out, and the tokens are dead."
        return RedirectResponse("/", 303)

    @asynccontextmanager
    async def service(self) -> AsyncIterator[tuple[AsyncOAuth2Client, Mapping[str, str]]]:
        """Authlib's client and the service's metadata; what goes wrong with them comes as Trouble."""
        client_id, client_secret = self.options.client_id, self.options.client_secret or None
        to_us = {"redirect_uri": f"{self.home}callback", "code_challenge_method": "S256"}
        try:
            async with AsyncOAuth2Client(client_id, client_secret, **to_us) as oauth:
                yield oauth, await self.read_metadata(oauth)
        except OAuthError as error:
            raise in_words(error.error, error.description) from error
        except (httpx2.HTTPError, ValueError) as error:
            raise Trouble(f"No answer from {self.issuer}: is ./scripts/serve running? ({error})") from error

    async def read_metadata(self, oauth: AsyncOAuth2Client) -> Mapping[str, str]:
        """By RFC 8414: before the path of the issuer, if it has one, and only good if it names that issuer."""
        issuer = urlsplit(self.issuer)
        address = issuer._replace(path=f"/.well-known/oauth-authorization-server{issuer.path}").geturl()
        response = await oauth.request("GET", address, withhold_token=True)
        metadata: Mapping[str, str] = response.raise_for_status().json()
        if metadata.get("issuer") != self.issuer:
            raise Trouble(f"The service there calls itself {metadata.get('issuer')}: start with that as --issuer.")
        return metadata


async def check_form(request: Request, visit: Visit) -> None:
    """Only a form of ours may start something, and only what its buttons still offer."""
    form = parse_qs((await request.body()).decode("latin-1"))
    if form.get("csrf_token") != [visit.csrf_token] or bool(visit.token) == (request.url.path == "/sign-in"):
        raise Trouble("That page was too old; try again.")


def in_words(error: str, description: str | None) -> Trouble:
    words = WORDS.get(error, "The service refused.")
    return Trouble(f"{words} ({error}: {description})" if description else f"{words} ({error})", error)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="example-client", description=__doc__.splitlines()[0])
    parser.add_argument("--issuer", default="http://127.0.0.1:8000", help="the service's base URL (%(default)s)")
    parser.add_argument("--client-id", default="web-shop", help="(%(default)s)")
    parser.add_argument("--client-secret", default="web-shop-secret", help="'' for a public client (%(default)s)")
    parser.add_argument("--port", type=int, default=9000, help="as registered, http://127.0.0.1:%(default)s/callback")
    parser.add_argument("--scope", default="realm:main role:enduser", help="'' for the client's default (%(default)s)")
    return parser.parse_args()


if __name__ == "__main__":
    client = ExampleClient(parse_arguments())
    # Without an access log: the address of the redirect back holds the code.
    config = uvicorn.Config(
        client.make_app(), host="127.0.0.1", port=client.options.port, access_log=False, log_level="warning"
    )
    # Where its port is taken, the first of these says so and ends; Ctrl-C is how the others end.
    with config.bind_socket() as listening, suppress(KeyboardInterrupt):
        print(f"Open {client.home} in a browser.", flush=True)  # noqa: T201
        uvicorn.Server(config).run(sockets=[listening])
