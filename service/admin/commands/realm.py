"""The commands `realm list` and `realm show`. Realms are changed by seed files only."""

from __future__ import annotations

from typing import Any

import click
import msgspec

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import CommandRefused, Output
from service.protocol.provider import IdentityProvider
from service.protocol.scope import MAIN_REALM, REALMS


@console.group("realm")
def realms() -> None:
    """Show the loaded realms. Only a seed file changes them."""


@command(realms, "list", examples=("realm list",))
async def list_realms(context: AdminContext, output: Output) -> None:
    """List the realms: main, and those of identity providers."""
    providers = await context.registry.realms.list_all()
    rows = [_describe_main(), *(_describe(name, provider) for name, provider in providers.items())]
    output.table(rows, ("realm", "name", "issuer", "default_roles"), "")


@command(realms, "show", examples=("realm show cep",))
@click.argument("realm", metavar="NAME")
async def show_realm(context: AdminContext, output: Output, realm: str) -> None:
    """Show all fields of a realm except its secret."""
    if realm == MAIN_REALM:
        output.facts(_describe_main())
        return
    provider = await context.registry.realms.find(realm)
    if provider is None:
        raise CommandRefused(f"realm {realm} not found")
    callback = f"{context.settings.web_url}/authorization/callback"
    output.facts(_describe(realm, provider) | {"redirect_uri": callback})


def _describe_main() -> dict[str, Any]:
    return {"realm": MAIN_REALM, "name": "users and passwords of this service", "issuer": "", "default_roles": ()}


def _describe(name: str, provider: IdentityProvider) -> dict[str, Any]:
    fields = {"issuer": "", "default_roles": ()} | msgspec.structs.asdict(provider)
    del fields["sealed_secret"]
    known = {"client_secret_set": bool(provider.sealed_secret), "requestable": name in REALMS}
    return {"realm": name} | fields | known
