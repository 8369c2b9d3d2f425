"""The command `hash-secret`, whose hashes a seed file holds instead of passwords and client secrets."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import click

from service.admin.command import COMMON_OPTIONS, console
from service.admin.context import explaining
from service.admin.input import name_file, read_lines, read_secret
from service.admin.output import Output, WrongInput
from service.crypto.password_hashing import hash_password
from service.protocol.client import MIN_SECRET_CHARACTERS, is_short_secret
from service.protocol.grammar import is_unicode_without_line_ends
from service.protocol.user import MAX_PASSWORD_CHARACTERS
from service.system.scheduling import count_usable_cores


@console.command("hash-secret")
@click.option("--file", metavar="FILE", help="Read them from a file, one a line; - is stdin.")
def hash_secret(file: str | None, as_json: bool, yes: bool) -> None:
    """Hash secrets for the seed file.

    Print argon2id hashes for password_hash or client_secret_hash. The secret is read from the terminal. With --file
    many secrets are read, and their hashes are printed in the same order.
    """
    with explaining():
        secrets = read_lines(file) if file is not None else [read_secret("Secret", None, twice=True)]
        _check(secrets, file)
        output = Output(as_json=as_json, always_yes=yes)
        hashes: list[str] = []
        with output.progress("Hashing") as advance, ThreadPoolExecutor(count_usable_cores()) as threads:
            for hashed in threads.map(hash_password, secrets):
                hashes.append(hashed)
                advance(len(hashes), len(secrets))
        if short := sum(map(is_short_secret, secrets)):  # it is unknown here if they are for clients
            few = f"fewer than {MIN_SECRET_CHARACTERS} characters, too few for the secret of a client"
            output.warn([f"{short} of {len(secrets)} have {few}"])
        for hashed in hashes:  # after the progress bar has ended, which would share a line with a hash
            output.show({"hash": hashed}, [hashed])


hash_secret.params += COMMON_OPTIONS


def _check(secrets: list[str], file: str | None) -> None:
    for number, secret in enumerate(secrets, start=1):
        if not is_unicode_without_line_ends(secret) or len(secret) > MAX_PASSWORD_CHARACTERS:
            place = f"{name_file(file)}, line {number}: " if file else ""
            raise WrongInput(f"{place}expected 1 to {MAX_PASSWORD_CHARACTERS} characters in one line")
