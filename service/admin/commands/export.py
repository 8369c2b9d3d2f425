"""The command `export`, which writes the registry as a seed file."""

from __future__ import annotations

from pathlib import Path

import click

from service.admin.command import command, console
from service.admin.context import AdminContext
from service.admin.output import Output, WrongInput, to_json
from service.protocol.scope import MAIN_REALM
from service.system.private_files import write_private


@command(console, "export", examples=("export", "export registry.yaml"))
@click.argument("file", type=click.Path(path_type=Path), required=False)
async def export(context: AdminContext, output: Output, file: Path | None) -> None:
    """Write realms, clients and users as a seed file, or print it.

    It contains hashes instead of secrets, but no client secrets at identity providers. Only its owner can read it.
    """
    from service.registry.seed_file.write import make_sections, write_seed  # PyYAML delays the list of commands

    realms, clients = await context.registry.realms.list_all(), await context.registry.clients.list_all()
    sections = make_sections(realms, list(clients.values()), await context.registry.users.list_of(MAIN_REALM, *realms))
    if file is None:
        click.echo(f"{to_json(sections)}\n" if output.as_json else write_seed(sections), nl=False)
        return
    try:
        write_private(file, write_seed(sections).encode())
    except OSError as error:
        raise WrongInput(f"{file} cannot be written: {error.strerror}") from None
    output.done(f"The registry was written to {file}.", file=str(file))
