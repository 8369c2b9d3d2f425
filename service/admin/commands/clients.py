"""The commands `client list`, `show`, `create`, `rotate-secret` and `delete`."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import click
import msgspec
from click.shell_completion import CompletionItem

from service.admin.command import Parsed, Work, command, console
from service.admin.context import AdminContext, explaining, open_context
from service.admin.formatting import format_time, format_when
from service.admin.output import CommandRefused, Output
from service.admin.validation import validate_client
from service.config.parsers import parse_duration_or_zero_ms
from service.crypto.password_hashing import GENERATED_SECRET_PREFIX, hash_generated_secret
from service.protocol.client import AUTHORIZATION_CODE, GRANT_TYPES, REFRESH_TOKEN, Client
from service.protocol.grammar import make_printable


@console.group("client")
def clients() -> None:
    """Manage registered applications."""


def _client_id() -> Callable[[Work], Work]:
    return click.argument("client_id", metavar="ID", shell_complete=_complete)


def _complete(context: click.Context, parameter: click.Parameter, beginning: str) -> list[CompletionItem]:
    """Return the clients whose ids begin like this. Errors are not shown, since the user is still typing."""
    with suppress(click.ClickException), explaining():
        return asyncio.run(_list_completions(beginning))
    return []


async def _list_completions(beginning: str) -> list[CompletionItem]:
    context = open_context()
    try:
        clients = await context.registry.list_clients()
    finally:
        await context.close()
    return [
        CompletionItem(client.client_id, help=make_printable(client.client_name))
        for client in clients
        if client.client_id.startswith(beginning)
    ]


@command(clients, "list")
async def list_clients(context: AdminContext, output: Output) -> None:
    """List all clients."""
    rows = [_describe(client) for client in await context.registry.list_clients()]
    columns = {
        "client_id": "CLIENT ID",
        "client_name": "NAME",
        "secret": "SECRET",
        "grant_types": "GRANTS",
        "scope": "SCOPE",
    }
    output.table(rows, columns, "There are no clients.")


@command(clients, "show")
@_client_id()
async def show_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Show all fields of a client but its hashes."""
    client = await context.registry.find_client(client_id)
    if client is None:
        raise CommandRefused(f"there is no client {client_id}")
    output.facts(_describe(client))


@command(clients, "create")
@click.argument("client_id", metavar="ID")
@click.option("--name", default="", help="The name that the consent page shows.")
@click.option("--redirect-uri", "redirect_uris", multiple=True, help="A redirect URI of the client. May be repeated.")
@click.option(
    "--grant-type",
    "grant_types",
    multiple=True,
    type=click.Choice(GRANT_TYPES),
    help="May be repeated. Default: with a redirect URI authorization_code and refresh_token, else none.",
)
@click.option("--scope", default="", help='The scope that the client may request, such as "realm:main role:enduser".')
@click.option("--default-scope", default="", help="The scope of authorization requests without one.")
@click.option("--public", is_flag=True, help="Register a public client, which has no secret.")
@click.option("--require-pkce", is_flag=True, help="Refuse authorization requests without PKCE.")
@click.option("--introspect", is_flag=True, help="Let the client introspect access tokens.")
@click.option("--introspect-all", is_flag=True, help="Let the client introspect access and refresh tokens.")
async def create_client(
    context: AdminContext,
    output: Output,
    client_id: str,
    redirect_uris: Sequence[str],
    grant_types: Sequence[str],
    public: bool,
    introspect: bool,
    introspect_all: bool,
    name: str,
    **others: Any,
) -> None:
    """Register a client.

    Unless it is public, a secret is generated, shown once, and stored only as a hash.
    """
    secret = None if public else _make_secret()
    client = validate_client(
        client_id=client_id,
        client_secret_hash=hash_generated_secret(secret) if secret else None,
        client_name=name,
        redirect_uris=redirect_uris,
        grant_types=grant_types or ((AUTHORIZATION_CODE, REFRESH_TOKEN) if redirect_uris else ()),
        introspect="all" if introspect_all else introspect,
        **others,
    )
    await context.editor.create_client(client)
    _show_secret(output, f"The client {client_id} is registered.", client, secret)


@command(clients, "rotate-secret")
@_client_id()
@click.option(
    "--overlap",
    "overlap_ms",
    type=Parsed("span", parse_duration_or_zero_ms),
    default="0",
    metavar="SPAN",
    help="How long the old secret stays valid, such as 24h or 30m. [default: 0]",
)
async def rotate_secret(context: AdminContext, output: Output, client_id: str, overlap_ms: int) -> None:
    """Give a client a new secret, which is shown once."""
    secret, now_ms = _make_secret(), await context.redis.read_clock_ms()
    until_ms = now_ms + overlap_ms if overlap_ms else 0
    await context.editor.rotate_secret(client_id, hash_generated_secret(secret), until_ms)
    client = await context.registry.find_client(client_id)
    until = f"stays valid until {format_when(until_ms, now_ms)}" if until_ms else "is not valid any more"
    _show_secret(output, f"The client {client_id} has a new secret; the old one {until}.", client, secret)


@command(clients, "delete")
@_client_id()
async def delete_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Delete a client and end all of its sessions."""
    if await context.registry.find_client(client_id) is not None:
        output.ask(f"Delete the client {client_id}, and end all of its sessions?")
    with output.progress(f"Ending the sessions of {client_id}"):
        await context.editor.delete_client(client_id)
    output.done(f"The client {client_id} is deleted, and its sessions have ended.", client_id=client_id, deleted=True)


def _make_secret() -> str:
    """Return 256 random bits as text, as `hash_generated_secret` requires."""
    return secrets.token_urlsafe(32)


def _show_secret(output: Output, sentence: str, client: Client | None, secret: str | None) -> None:
    shown = {"client_secret": secret} if secret else {}
    output.done(sentence, **(_describe(client) if client else {}), **shown)
    if secret and not output.as_json:
        output.line({}, f"client_secret: {secret}")
        output.note("The secret is shown only once. Redis keeps only its hash.")


def _describe(client: Client) -> dict[str, Any]:
    """Return the fields of a client without its hashes. `secret` is the kind of secret: none, made or chosen."""
    fields = msgspec.structs.asdict(client)
    stored = fields.pop("client_secret_hash")
    until_ms = fields.pop("previous_secret_until_ms")
    del fields["previous_secret_hash"]
    kind = "none" if stored is None else "made" if stored.startswith(GENERATED_SECRET_PREFIX) else "chosen"
    return fields | {"secret": kind, "previous_secret_until": format_time(until_ms) if until_ms else None}
