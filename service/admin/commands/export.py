"""The command `export`, which writes the registry as a seed file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import Output, WrongInput
from service.protocol.scope import MAIN_REALM
from service.registry.seed_file.report import join_names
from service.registry.seed_file.write import write_seed
from service.system.private_files import write_private


@command(console, "export", examples=("export", "export registry.yaml"))
@click.argument("file", type=click.Path(path_type=Path), required=False)
async def export(context: AdminContext, output: Output, file: Path | None) -> None:
    """Write realms, clients and users as a seed file, or print it.

    It has hashes in place of secrets, and no client secrets at identity providers. Only its owner can read the file.
    """
    realms, clients = await context.registry.list_realms(), await context.registry.list_clients()
    found = await context.registry.list_users()
    known = {MAIN_REALM, *realms}
    users = [user for user in found if user.realm in known]
    tree, text = write_seed(realms, clients, users)
    if file is None:
        output.show(tree, ())
        if not output.as_json:
            click.echo(text, nl=False)
    else:
        try:
            await asyncio.to_thread(write_private, file, text.encode())
        except OSError as error:
            raise WrongInput(f"{file} cannot be written: {error.strerror}") from None
        counts = {"realms": len(realms), "clients": len(clients), "users": len(users)}
        said = ", ".join(f"{count} {name}" for name, count in counts.items())
        output.done(f"Wrote {said} to {file}.", file=str(file), **counts)
    now_ms = await context.redis.read_clock_ms()
    for what, names in (
        ("client secrets at identity providers", [name for name, realm in realms.items() if realm.sealed_secret]),
        (
            "previous secrets in their overlap",
            [each.client_id for each in clients if len(each.accepted_secret_hashes(now_ms)) > 1],
        ),
        ("users of realms that do not exist", [user.username for user in found if user.realm not in known]),
    ):
        if names:
            output.note(f"Not in the file: {what} ({join_names(names)}).")
