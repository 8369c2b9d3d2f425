"""The commands `key list` and `key adopt`, for the ids of the secret keys in use."""

from __future__ import annotations

import click

from service.admin.command import asking_command, command, console
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
        {"key": key_id, "in_use": key_id in in_use, "configured": key_id in ours}
        for key_id in dict.fromkeys([*ours, *in_use])
    ]
    output.table(rows, ("key", "in_use", "configured"), "")


@asking_command(keys, "adopt", examples=("key adopt", "key adopt --only"))
@click.option("--only", is_flag=True, help="Remove all other keys, such as a stolen one.")
async def adopt(context: AdminContext, output: Output, only: bool) -> None:
    """Put the keys of TOKEN_SERVICE_SECRET_KEY into use. Instances with one of them become ready.

    With --only, all other keys are removed, so instances that have only those are no longer ready. First remove a
    stolen key from the settings of every instance, because an instance that has it and a key in use adds it at startup.
    """
    ours, in_use = context.keyring.key_ids, await context.secret_keys.list_ids()
    removed = [key_id for key_id in in_use if key_id not in ours] if only else []
    if removed:
        output.ask(f"Remove the keys {', '.join(removed)}? Instances that have no other key stop issuing tokens.")
    await context.secret_keys.adopt(removed)
    context.record("secret_keys_adopted", count=len(ours))
    output.done(f"In use: {', '.join(ours)}. Removed: {len(removed)}.", keys=ours, removed=removed)
