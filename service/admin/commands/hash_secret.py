"""The command `hash-secret`, whose hashes a seed file holds instead of passwords and client secrets."""

from __future__ import annotations

import click

from service.admin.command import command, console
from service.admin.input import read_secret
from service.admin.output import Output, WrongInput
from service.protocol.client import MIN_SECRET_CHARACTERS, is_short_secret
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.user import MAX_PASSWORD_CHARACTERS


@command(console, "hash-secret", needs_store=False, examples=("hash-secret", "hash-secret --file secret.txt"))
@click.option("--file", metavar="FILE", help="Read the secret from a file (- for stdin).")
async def hash_secret(output: Output, file: str | None) -> None:
    """Hash a secret for the seed file.

    Print the argon2id hash for password_hash or client_secret_hash. The secret is read from the terminal or a file.
    """
    secret = read_secret("Secret", file, twice=True)
    if not is_unicode_without_line_ends(secret) or len(secret) > MAX_PASSWORD_CHARACTERS:
        raise WrongInput(f"secret: expected one line of 1 to {MAX_PASSWORD_CHARACTERS} characters")
    if is_short_secret(secret):
        output.warn([f"shorter than {MIN_SECRET_CHARACTERS} characters, which is too short for a client secret"])
    from service.crypto.password_hashing import hash_password  # the libraries of hashes delay the list of commands

    hashed = hash_password(secret)
    output.show({"hash": hashed}, [(hashed, "")])
