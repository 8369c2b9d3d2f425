"""The commands `client list`, `show`, `create`, `update`, `rotate-secret`, `disable`, `enable` and `delete`."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any, Final

import click
import msgspec

from service.admin.command import Parsed, Work, command, console
from service.admin.context import AdminContext
from service.admin.formatting import format_time
from service.admin.output import CommandRefused, Output, WrongInput
from service.admin.validation import validate_client
from service.config.parsers import parse_duration_or_zero_ms
from service.crypto.client_secrets import GENERATED_SECRET_PREFIX, hash_generated_secret
from service.protocol.client import AUTHORIZATION_CODE, GRANT_TYPES, REFRESH_TOKEN, Client, find_narrowing
from service.registry.warnings import list_client_warnings

Decorator = Callable[[Work], Work]

_SECRET_BYTES: Final = 32
_CHANGEABLE: Final = (
    *("client_name", "redirect_uris", "grant_types", "scope"),
    *("default_scope", "require_pkce", "introspect"),
)
_KEPT_WITH_SECRET: Final = ("has_short_secret", "previous_secret_hash", "previous_secret_until_ms")


@console.group("client")
def clients() -> None:
    """Manage registered applications."""


@command(clients, "list")
async def list_clients(context: AdminContext, output: Output) -> None:
    """List all clients."""
    rows = [_describe(client) for client in await context.registry.list_clients()]
    output.table(rows, ("client_id", "client_name", "secret", "disabled", "grant_types"))


@command(clients, "show")
@click.argument("client_id", metavar="ID")
async def show_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Show all fields of a client but its hashes."""
    output.facts(_describe(await _get_client(context, client_id)))


def _options(*options: Decorator) -> Decorator:
    """Return a decorator that adds these options to a command, in their order."""
    return lambda work: reduce(lambda made, option: option(made), reversed(options), work)


def _list_option(option: str, name: str, text: str = "", **settings: Any) -> Decorator:
    return click.option(option, name, multiple=True, help=f"{text} May be repeated.".strip(), **settings)


_GRANT_TYPE: Final = click.Choice(GRANT_TYPES)
_FIELDS: Final = _options(
    click.option("--name", "client_name", help="The name that the consent page shows."),
    _list_option("--redirect-uri", "redirect_uris", "All redirect URIs."),
    _list_option("--grant-type", "grant_types", "All grant types.", type=_GRANT_TYPE),
    click.option("--scope", help='The scope that the client may request, such as "realm:main role:enduser".'),
    click.option("--default-scope", help="The scope of authorization requests without one."),
    click.option("--public", is_flag=True, help="A public client has no secret."),
    click.option("--require-pkce/--no-require-pkce", default=None, help="Refuse authorization requests without PKCE."),
    click.option("--introspect/--no-introspect", default=None, help="Let the client introspect access tokens."),
    click.option("--introspect-all", is_flag=True, help="Let the client introspect access and refresh tokens."),
)


@command(clients, "create")
@click.argument("client_id", metavar="ID")
@_FIELDS
async def create_client(context: AdminContext, output: Output, client_id: str, **options: Any) -> None:
    """Register a client.

    With a redirect URI and no grant type it gets authorization_code and refresh_token. Unless it is public, a secret
    is generated, shown once, and stored only as a hash.
    """
    secret = None if options["public"] else secrets.token_urlsafe(_SECRET_BYTES)
    blank = Client(
        client_id=client_id,
        client_secret_hash=hash_generated_secret(secret) if secret else None,
        grant_types=(AUTHORIZATION_CODE, REFRESH_TOKEN) if options["redirect_uris"] else (),
    )
    client = _change(blank, options)
    await context.editor.create_client(client)
    _show_secret(output, f"The client {client_id} is registered.", client, secret)
    output.warn(list_client_warnings(client))


@command(clients, "update")
@click.argument("client_id", metavar="ID")
@_FIELDS
@_options(
    _list_option("--add-redirect-uri", "add_redirect_uris"),
    _list_option("--remove-redirect-uri", "remove_redirect_uris"),
    _list_option("--add-grant-type", "add_grant_types", type=_GRANT_TYPE),
    _list_option("--remove-grant-type", "remove_grant_types", type=_GRANT_TYPE),
    _list_option("--add-scope", "add_scope", 'Such as "role:partner".'),
    _list_option("--remove-scope", "remove_scope"),
)
async def update_client(context: AdminContext, output: Output, client_id: str, **options: Any) -> None:
    """Change what is named, and nothing else.

    Sessions that depended on a removed grant type or scope end.
    """
    old = await _get_client(context, client_id)
    new = _change(old, options)
    if new == old:
        raise CommandRefused("nothing was changed: no option names anything new (see --help)")
    if find_narrowing(old, new) is not None:
        lost = sorted({*old.grant_types, *old.scope.split()} - {*new.grant_types, *new.scope.split()})
        output.ask(f"Take {', '.join(lost)} from the client {client_id}, and end the sessions that rest on it?")
    if new.is_public and not old.is_public:
        output.ask(f"Remove the secret of {client_id}? Sessions that it began with the secret cannot be refreshed.")
    with output.progress(f"Ending the sessions that {client_id} may no longer have"):
        await context.editor.update_client(old, new)
    output.done(f"The client {client_id} is changed.", **_describe(new))
    output.warn(list_client_warnings(new))


@command(clients, "disable")
@click.argument("client_id", metavar="ID")
async def disable_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Refuse a client like an unknown one, and end all of its sessions.

    `client enable` undoes it, but for the sessions.
    """
    old = await _get_client(context, client_id)
    output.ask(f"Disable the client {client_id}, and end all of its sessions?")
    with output.progress(f"Ending the sessions of {client_id} (twice, for requests that are under way)"):
        await context.editor.update_client(old, msgspec.structs.replace(old, disabled=True))
    sentence = f"The client {client_id} is disabled, and its sessions have ended."
    output.done(sentence, client_id=client_id, disabled=True)


@command(clients, "enable")
@click.argument("client_id", metavar="ID")
async def enable_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Accept a disabled client again."""
    old = await _get_client(context, client_id)
    await context.editor.update_client(old, msgspec.structs.replace(old, disabled=False))
    output.done(f"The client {client_id} is enabled.", client_id=client_id, disabled=False)


@command(clients, "rotate-secret")
@click.argument("client_id", metavar="ID")
@click.option(
    "--overlap",
    "overlap_ms",
    type=Parsed("span", parse_duration_or_zero_ms),
    metavar="SPAN",
    help="How long the old secret stays valid, such as 24h or 30m. Without it the old one fails at once.",
)
async def rotate_secret(context: AdminContext, output: Output, client_id: str, overlap_ms: int | None) -> None:
    """Give a client a new secret, which is shown once."""
    old = await _get_client(context, client_id)
    if old.is_public:
        raise CommandRefused(f"the client {client_id} is public: it has no secret")
    secret, now_ms = secrets.token_urlsafe(_SECRET_BYTES), await context.redis.read_clock_ms()
    if not overlap_ms:
        output.ask(f"Replace the secret of {client_id}, so that the old one fails at once? (--overlap 24h keeps it)")
    elif old.previous_secret_until_ms > now_ms:
        still = format_time(old.previous_secret_until_ms)
        output.ask(f"The secret before the last rotation of {client_id} is valid until {still}. End it now?")
    new = msgspec.structs.replace(
        old,
        client_secret_hash=hash_generated_secret(secret),
        has_short_secret=False,
        previous_secret_hash=old.client_secret_hash if overlap_ms else None,
        previous_secret_until_ms=now_ms + overlap_ms if overlap_ms else 0,
    )
    await context.editor.update_client(old, new)
    _show_secret(output, f"The client {client_id} has a new secret.", new, secret)


@command(clients, "delete")
@click.argument("client_id", metavar="ID")
async def delete_client(context: AdminContext, output: Output, client_id: str) -> None:
    """Delete a client and end all of its sessions."""
    await _get_client(context, client_id)
    output.ask(f"Delete the client {client_id}, and end all of its sessions?")
    with output.progress(f"Ending the sessions of {client_id} (twice, for requests that are under way)"):
        await context.editor.delete_client(client_id)
    output.done(f"The client {client_id} is deleted, and its sessions have ended.", client_id=client_id, deleted=True)


async def _get_client(context: AdminContext, client_id: str) -> Client:
    client = await context.registry.find_client(client_id)
    if client is None:
        raise CommandRefused(f"there is no client {client_id}")
    return client


def _change(old: Client, options: Mapping[str, Any]) -> Client:
    """Return the client with the options of `client create` or `update`. Raises WrongInput with every mistake."""
    given = {name: value for name, value in options.items() if value not in (None, ())}
    fields = {name: given.get(name, getattr(old, name)) for name in _CHANGEABLE}
    for name in ("redirect_uris", "grant_types"):
        fields[name] = _change_list(fields[name], given.get(f"add_{name}", ()), given.get(f"remove_{name}", ()))
    added, removed = (" ".join(given.get(f"{verb}_scope", ())).split() for verb in ("add", "remove"))
    fields["scope"] = " ".join(_change_list(fields["scope"].split(), added, removed))
    if options["introspect_all"]:
        fields["introspect"] = "all"
    secret_hash = None if options["public"] else old.client_secret_hash
    new = validate_client(client_id=old.client_id, client_secret_hash=secret_hash, **fields)
    kept = ("disabled", *(() if options["public"] else _KEPT_WITH_SECRET))
    return msgspec.structs.replace(new, **{name: getattr(old, name) for name in kept})


def _change_list(items: Sequence[str], added: Sequence[str], removed: Sequence[str]) -> tuple[str, ...]:
    """Return the items with additions at the end. Raises WrongInput if a removed item is not there."""
    for item in removed:
        if item not in items:
            raise WrongInput(f"{item}: cannot be removed, because the client does not have it")
    return tuple(item for item in dict.fromkeys((*items, *added)) if item not in removed)


def _show_secret(output: Output, sentence: str, client: Client, secret: str | None) -> None:
    value, lines = _describe(client), [sentence]
    if secret:
        value |= {"client_secret": secret}
        lines += [f"client_secret: {secret}", "It is shown only once. Redis keeps only its hash."]
    output.show(value, lines)


def _describe(client: Client) -> dict[str, Any]:
    """Return the fields of a client without its hashes. `secret` is the kind of secret: none, made or chosen."""
    fields = msgspec.structs.asdict(client)
    stored = fields.pop("client_secret_hash")
    until_ms = fields.pop("previous_secret_until_ms")
    del fields["previous_secret_hash"]
    kind = "none" if stored is None else "made" if stored.startswith(GENERATED_SECRET_PREFIX) else "chosen"
    return fields | {"secret": kind, "previous_secret_until": format_time(until_ms) if until_ms else None}
