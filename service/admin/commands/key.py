"""The commands `key list` and `key adopt`, for the ids of the secret keys in use."""

from __future__ import annotations

import click

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import Output


@console.group("key")
def keys() -> None:
    """Show and change which secret keys are in use."""


@command(keys, "list", examples=("key list",))
async def list_keys(context: AdminContext, output: Output) -> None:
    """List the ids of the secret keys in use and configured here.

    An instance is ready if one of its keys is in use. An id does not reveal its key.
    """
    ours, in_use = context.keyring.key_ids, await context.secret_keys.list_ids()
    rows = [
        {"key": key_id, "in_use": key_id in in_use, "configured_here": key_id in ours}
        for key_id in dict.fromkeys([*ours, *in_use])
    ]
    output.table(rows, ("key", "in_use", "configured_here"), "")


@command(keys, "adopt", examples=("key adopt", "key adopt --only"))
@click.option("--only", is_flag=True, help="Also remove all other keys, for example a stolen one.")
async def adopt(context: AdminContext, output: Output, only: bool) -> None:
    """Put the secret keys of TOKEN_SERVICE_SECRET_KEY into use. Instances with one of them become ready.

    With --only all other keys are removed. Instances with none of the keys left are then not ready. First take a stolen
    key out of the settings of every instance: one that still has it beside a key in use brings it back at its start.
    """
    ours, in_use = context.keyring.key_ids, await context.secret_keys.list_ids()
    removed = [key_id for key_id in in_use if key_id not in ours] if only else []
    if removed:
        output.ask(f"Remove the keys {', '.join(removed)}? Instances with no other key refuse to issue tokens.")
    await context.secret_keys.adopt(removed)
    context.record("secret_keys_adopted", count=len(ours))
    output.done(f"In use: {', '.join(ours)}. Removed: {len(removed)}.", keys=ours, removed=removed)
