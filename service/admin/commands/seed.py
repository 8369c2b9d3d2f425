"""The command `seed`, which applies a seed file, or compares it with the records in the store."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from service.admin.command import asking_command, console
from service.admin.context import AdminContext
from service.admin.output import CommandRefused, Line, Output
from service.registry.warnings import FOREIGN_KEY

if TYPE_CHECKING:
    from service.registry.seed_file.plan import Act
    from service.registry.seed_file.report import Outcome

_MARKS: Final[dict[Act, tuple[str, str]]] = {
    "add": ("+", "green"),
    "update": ("~", "yellow"),
    "remove": ("-", "red"),
}


@asking_command(console, "seed", examples=("seed registry.yaml --dry-run", "seed registry.yaml --prune"))
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--prune", is_flag=True, help="Remove entries that an earlier seed created and this file lacks.")
@click.option("--force", is_flag=True, help="Also overwrite changes made with this CLI or over HTTP.")
@click.option("--dry-run", is_flag=True, help="Show what would change without changing anything.")
async def seed(context: AdminContext, output: Output, file: Path, prune: bool, force: bool, dry_run: bool) -> None:
    """Add and update realms, clients and users. Running workers see the changes within a second.

    Only fields that were edited in the file are changed. Other fields keep their changes by the CLI.
    """
    from service.registry.seed_file.apply import Seeding  # the libraries of hashes and YAML delay the list of commands
    from service.registry.seed_file.read import load_seed

    parsed = await asyncio.to_thread(load_seed, file, context.settings.min_password_characters)
    seeding = Seeding(context.registry, context.keyring, context.pending_revocations)
    if await context.secret_keys.are_foreign():
        raise CommandRefused(f"TOKEN_SERVICE_SECRET_KEY: {FOREIGN_KEY}")
    if dry_run or prune or force or sys.stdin.isatty():
        with output.progress("Comparing the file with the records"):
            difference = await seeding.compare(parsed, prune=prune, force=force)
        if dry_run:
            output.show(_counts(difference) | {"changes": difference.details}, _list_lines(difference))
            output.warn(() if output.as_json else difference.warnings)
            return
        _ask(output, difference, force)
    with output.progress(f"Applying {file.name}") as advance:
        outcome = await seeding.apply(
            parsed, prune=prune, force=force, on_progress=advance, on_wait=context.on_wait, actor=context.actor
        )
    output.warn(outcome.warnings)
    output.done(_sum_up(outcome), **_counts(outcome))


def _ask(output: Output, difference: Outcome, force: bool) -> None:
    """Ask before entries are removed, or changes of the console are undone. A terminal is asked if sessions end."""
    removed = difference.totals["removed"]
    written = difference.changes - removed
    if removed:
        output.ask(f"Remove {removed} entries that are no longer in the file and revoke their sessions?")
    if force and written:
        output.ask(f"Overwrite {written} records with the file, discarding changes made with the CLI or over HTTP?")
    if difference.ending and not (removed or force):
        output.ask_at_terminal(f"Apply the file? {difference.ending} entries lose their sessions (see --dry-run).")


def _list_lines(difference: Outcome) -> Iterator[Line]:
    for change in difference.details:
        mark, colour = _MARKS[change.action]
        realm = f" of realm {change.realm}" if change.realm else ""
        ends = "  (revokes sessions)" if change.ends_sessions else ""
        yield f"{mark} {change.kind} {change.name}{realm}{ends}", colour
        for field in change.fields:
            yield f"    {field}", colour
    yield f"✓ Dry run: {_sum_up(difference)}", "green"


def _sum_up(outcome: Outcome) -> str:
    sentences = []
    for kind, counts in outcome.counts.items():
        if counts.total() > counts["unchanged"]:
            numbers = ", ".join(f"{number} {done}" for done, number in counts.items() if number)
            sentences.append(f"{kind.capitalize()}: {numbers}.")
    return " ".join(sentences) or "No changes."


def _counts(outcome: Outcome) -> dict[str, object]:
    """Return the counts of an outcome for the JSON output."""
    return {"changed": bool(outcome.changes), **outcome.counts, "warnings": outcome.warnings}
