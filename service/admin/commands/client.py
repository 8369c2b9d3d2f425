"""The commands `client list`, `show`, `create`, `update`, `rotate-secret`, `disable`, `enable` and `delete`."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping
from typing import Any, Final

import click
import msgspec

from service.admin.command import asking_command, command, console, parsed_by
from service.admin.context import AdminContext
from service.admin.options import change_record, list_option, part_options, validate_client
from service.admin.output import CommandRefused, Output, format_time, format_when
from service.config.parsers import parse_duration_or_zero_ms
from service.crypto.keyring import GENERATED_SECRET_PREFIX, hash_generated_secret
from service.protocol.client import AUTHORIZATION_CODE, GRANT_TYPES, REFRESH_TOKEN, Client, find_narrowing
from service.registry.editor import replacing
from service.registry.seed_file.entries import LIFETIMES, read_lifetime
from service.registry.warnings import list_client_warnings


@console.group("client")
def clients() -> None:
    """Manage registered applications."""


@command(clients, "list", examples=("client list", "client list --json"))
async def list_clients(context: AdminContext, output: Output) -> None:
    """List all clients."""
    rows = [_describe(client) for client in (await context.registry.clients.list_all()).values()]
    output.table(rows, ("client_id", "client_name", "secret", "disabled", "grant_types"), "No clients found.")


@command(clients, "show", examples=("client show shop",))
@click.argument("client_id", metavar="ID")
async def show_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Show all fields of a client except its hashes."""
    output.facts(_describe(await context.editor.get_client(client_id)))


_LIFETIME_TEXTS: Final = {
    "access_token_ttl": "Lifetime of an access token, such as 10m.",
    "refresh_token_ttl": "Lifetime of a refresh token, such as 30d. Each refresh restarts it.",
    "session_max_age": "Maximum age of a session since its login, such as 90d.",
    "refresh_grace": "How long a used refresh token may be retried, such as 5m or 0.",
}


def _lifetime_option(name: str, what: str) -> click.Option:
    kind = parsed_by(functools.partial(read_lifetime, name))
    return click.Option([f"--{name.replace('_', '-')}", name], type=kind, metavar="SPAN", help=what)


_FIELDS: Final = (
    click.Option(["--name", "client_name"], help="The name shown on the consent page."),
    list_option("--redirect-uri", "redirect_uris", "Redirect URI. Replaces all existing ones."),
    list_option("--grant-type", "grant_types", "Grant type. Replaces all existing ones.", GRANT_TYPES),
    click.Option(["--scope"], help='The scope that the client may request, such as "realm:main role:enduser".'),
    click.Option(["--default-scope"], help="The scope of authorization requests that contain none."),
    list_option("--cors-origin", "cors_origins", "CORS origin beyond those of the redirect URIs. Replaces all."),
    click.Option(["--public"], is_flag=True, help="Make it a public client, which has no secret."),
    click.Option(
        ["--require-pkce/--no-require-pkce"], default=None, help="Reject authorization requests without PKCE."
    ),
    click.Option(["--introspect/--no-introspect"], default=None, help="Allow introspection of access tokens."),
    click.Option(["--introspect-all"], is_flag=True, help="Allow introspection of access and refresh tokens."),
    click.Option(["--revoke-users/--no-revoke-users"], default=None, help="Allow it to log out any user."),
    click.Option(
        ["--manage-users/--no-manage-users"], default=None, help="Allow it to manage users with roles in its scope."
    ),
    *(_lifetime_option(name, what) for name, what in _LIFETIME_TEXTS.items()),
)
"""The options of `create` and `update`. One that is named like a field of the record sets that field."""

_PARTS: Final = (
    *part_options("redirect-uri", "redirect_uris"),
    *part_options("grant-type", "grant_types", GRANT_TYPES),
    *part_options("scope", "scope"),
    *part_options("cors-origin", "cors_origins"),
    *(
        click.Option([f"--no-{name.replace('_', '-')}", f"no_{name}"], is_flag=True, help="Use the setting instead.")
        for name in LIFETIMES
    ),
)


@command(
    clients,
    "create",
    params=[*_FIELDS],
    examples=(
        'client create shop --redirect-uri https://shop.example/cb \\\n      --scope "realm:main role:enduser"',
        "client create api-gateway --introspect",
        'client create sign-up --manage-users \\\n      --scope "realm:main role:enduser"',
    ),
)
@click.argument("client_id", metavar="ID")
async def create_client(context: AdminContext, output: Output, client_id: str, **options: Any) -> None:
    """Register a client.

    If you give a redirect URI but no grant type, it gets authorization_code and refresh_token. Unless it is public, a
    secret is generated, shown once and stored only as a hash.
    """
    secret = None if options["public"] else _make_secret()
    blank = Client(
        client_id=client_id,
        client_secret_hash=hash_generated_secret(secret) if secret else None,
        grant_types=(AUTHORIZATION_CODE, REFRESH_TOKEN) if options["redirect_uris"] else (),
    )
    client = _change(blank, options)

    sentence = f"Client {client_id} is registered."
    await context.editor.create_client(client, on_written=lambda: _show_secret(output, sentence, client, secret))
    output.warn(list_client_warnings(client))


@asking_command(
    clients,
    "update",
    params=[*_FIELDS, *_PARTS],
    examples=(
        "client update shop --add-redirect-uri https://shop.example/b",
        "client update shop --add-scope role:partner --name Shop",
        "client update shop --session-max-age 90d --no-refresh-grace",
    ),
)
@click.argument("client_id", metavar="ID")
async def update_client(context: AdminContext, output: Output, client_id: str, **options: Any) -> None:
    """Change the given fields of a client.

    Sessions that depend on a removed grant type or scope are revoked.
    """
    old = await context.editor.get_client(client_id)
    new = _change(old, options)
    if new == old:
        raise CommandRefused("nothing to change: give at least one option with a new value (see --help)")
    if find_narrowing(old, new) is not None:
        lost = sorted({*old.grant_types, *old.scope.split()} - {*new.grant_types, *new.scope.split()})
        output.ask(f"Remove {', '.join(lost)} from client {client_id} and revoke the sessions that depend on it?")
    if new.is_public and not old.is_public:
        output.ask(f"Remove the secret of {client_id}? Sessions started with the secret can no longer be refreshed.")
    with output.progress(f"Revoking sessions that {client_id} is no longer allowed to hold"):
        await context.editor.change_client(client_id, replacing(old, new))
    output.done(f"Client {client_id} was updated.", **_describe(new))
    output.warn(list_client_warnings(new))


@asking_command(clients, "disable", examples=("client disable shop",))
@click.argument("client_id", metavar="ID")
async def disable_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Disable a client and revoke all of its sessions.

    The client is rejected like an unknown one until `client enable`, which does not restore the sessions.
    """
    await context.editor.get_client(client_id)
    output.ask(f"Disable client {client_id} and revoke all of its sessions?")
    with output.progress(f"Revoking the sessions of {client_id} (two passes, to include requests in progress)"):
        await context.editor.change_client(client_id, lambda client: msgspec.structs.replace(client, disabled=True))
    output.done(f"Client {client_id} is disabled, and its sessions are revoked.", client_id=client_id, disabled=True)


@command(clients, "enable", examples=("client enable shop",))
@click.argument("client_id", metavar="ID")
async def enable_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Enable a disabled client."""
    await context.editor.change_client(client_id, lambda client: msgspec.structs.replace(client, disabled=False))
    output.done(f"Client {client_id} is enabled.", client_id=client_id, disabled=False)


@asking_command(clients, "rotate-secret", examples=("client rotate-secret shop --overlap 24h",))
@click.argument("client_id", metavar="ID")
@click.option(
    "--overlap",
    "overlap_ms",
    type=parsed_by(parse_duration_or_zero_ms),
    metavar="SPAN",
    help="How long the old secret stays valid, such as 24h or 30m. By default, it stops working immediately.",
)
async def rotate_secret(context: AdminContext, output: Output, client_id: str, overlap_ms: int | None) -> None:
    """Give a client a new secret, which is shown once."""
    old = await context.editor.get_client(client_id)
    if old.is_public:
        raise CommandRefused(f"client {client_id} is a public client and has no secret")
    secret, now_ms = _make_secret(), await context.redis.read_clock_ms()
    if not overlap_ms:
        output.ask(f"Replace the secret of {client_id}? The old one stops working now (--overlap 24h keeps it).")
    elif old.previous_secret_until_ms > now_ms:
        still = format_when(old.previous_secret_until_ms, now_ms)
        output.ask(f"The secret before the last rotation of {client_id} is valid until {still}. Invalidate it now?")
    until_ms = now_ms + overlap_ms if overlap_ms else 0
    until = f"stays valid until {format_when(until_ms, now_ms)}" if until_ms else "is no longer valid"
    sentence = f"Client {client_id} has a new secret; the old one {until}."

    def rotate(client: Client) -> Client:
        return msgspec.structs.replace(
            client,
            client_secret_hash=hash_generated_secret(secret),
            has_short_secret=False,
            previous_secret_hash=client.client_secret_hash if until_ms else None,
            previous_secret_until_ms=until_ms,
        )

    await context.editor.change_client(
        client_id, rotate, on_written=lambda: _show_secret(output, sentence, rotate(old), secret)
    )


@asking_command(clients, "delete", examples=("client delete shop",))
@click.argument("client_id", metavar="ID")
async def delete_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Delete a client and revoke all of its sessions."""
    await context.editor.get_client(client_id)
    output.ask(f"Delete client {client_id} and revoke all of its sessions?")
    with output.progress(f"Revoking the sessions of {client_id} (two passes, to include requests in progress)"):
        await context.editor.delete_client(client_id)
    output.done(f"Client {client_id} is deleted, and its sessions are revoked.", client_id=client_id, deleted=True)


def _change(old: Client, options: Mapping[str, Any]) -> Client:
    """Return the client with the options of `client create` or `update`. Raises WrongInput with every mistake."""
    new = change_record(old, options)
    if options["introspect_all"]:
        new = msgspec.structs.replace(new, introspect="all")
    if options["public"]:
        new = msgspec.structs.replace(
            new, client_secret_hash=None, has_short_secret=False, previous_secret_hash=None, previous_secret_until_ms=0
        )
    new = msgspec.structs.replace(new, **{name: None for name in LIFETIMES if options.get(f"no_{name}")})
    validate_client(new)
    return new


def _make_secret() -> str:
    """Return 256 random bits as text, as `hash_generated_secret` requires."""
    return secrets.token_urlsafe(32)


def _show_secret(output: Output, sentence: str, client: Client, secret: str | None) -> None:
    value, lines = _describe(client), [(f"✓ {sentence}", "green")]
    if secret:
        value |= {"client_secret": secret}
        lines += [(f"client_secret: {secret}", ""), ("It is shown only once. Redis keeps only its hash.", "")]
    output.show(value, lines)


def _describe(client: Client) -> dict[str, Any]:
    """Return the fields of a client without its hashes. `secret` is none, generated or chosen."""
    fields = msgspec.structs.asdict(client)
    stored = fields.pop("client_secret_hash")
    until_ms = fields.pop("previous_secret_until_ms")
    del fields["previous_secret_hash"]
    fields["short_secret"] = fields.pop("has_short_secret")
    kind = "none" if stored is None else "generated" if stored.startswith(GENERATED_SECRET_PREFIX) else "chosen"
    return fields | {"secret": kind, "previous_secret_until": format_time(until_ms) if until_ms else None}
