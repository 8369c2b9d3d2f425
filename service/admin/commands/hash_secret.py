"""The command `hash-secret`, whose hashes a seed file holds instead of passwords and client secrets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import click

from service.admin.command import command, console
from service.admin.input import name_file, read_lines, read_secret
from service.admin.output import Output, WrongInput
from service.crypto.password_hashing import hash_password
from service.protocol.client import MIN_SECRET_CHARACTERS, is_short_secret
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.user import MAX_PASSWORD_CHARACTERS
from service.system.process import count_usable_cores


@command(console, "hash-secret", needs_store=False, examples=("hash-secret", "hash-secret --file secrets.txt"))
@click.option("--file", metavar="FILE", help="Read them from a file, one per line; - is stdin.")
async def hash_secret(output: Output, file: str | None) -> None:
    """Hash secrets for the seed file.

    Print argon2id hashes for password_hash or client_secret_hash. The secret is read from the terminal. With --file
    many secrets are read, and their hashes are printed in the same order.
    """
    secrets = read_lines(file) if file is not None else [read_secret("Secret", None, twice=True)]
    for number, secret in enumerate(secrets, start=1):
        if not is_unicode_without_line_ends(secret) or len(secret) > MAX_PASSWORD_CHARACTERS:
            place = f"{name_file(file)}, line {number}: " if file else ""
            raise WrongInput(f"{place}expected 1 to {MAX_PASSWORD_CHARACTERS} characters in one line")
    if short := sum(map(is_short_secret, secrets)):
        shown = f"{short} of {len(secrets)} have fewer than {MIN_SECRET_CHARACTERS} characters"
        output.warn([f"{shown}, too few for the secret of a client"])
    with ThreadPoolExecutor(count_usable_cores()) as threads:
        for hashed in threads.map(hash_password, secrets):
            output.show({"hash": hashed}, [(hashed, "")])
