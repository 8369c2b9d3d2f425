"""`seed`: a seed file, applied now."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from service.admin.commands import command, console
from service.admin.desk import Desk
from service.admin.output import Output
from service.registry.seed import load_seed


@command(console, "seed")
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--prune", is_flag=True, help="Remove what a seed once brought and this file no longer has.")
@click.option("--force", is_flag=True, help="Also over what was changed at the console.")
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
async def seed(desk: Desk, output: Output, file: Path, prune: bool, force: bool, dry_run: bool) -> None:
    """Adds and updates realms, clients and users. Running workers see it within a second."""
    parsed = await asyncio.to_thread(load_seed, file)
    if dry_run:
        return
    await desk.seeding.apply(parsed)
    output.done("done", prune=prune, force=force)
