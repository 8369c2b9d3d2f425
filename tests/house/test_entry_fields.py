"""Each field of a client or a user in a seed file has an option of the console, a check, and a line in the manual."""

import inspect
import re
from collections.abc import Callable
from typing import Any

import click
import pytest

from service.admin.command import console
from service.registry.seed_file.check import check_client, check_user
from service.registry.seed_file.entries import LIFETIMES, ClientEntry, UserEntry
from tests.support.servers import CHECKOUT

MANUAL = (CHECKOUT / "docs" / "reference" / "seed-file.md").read_text()

WITHOUT_OPTION = {
    "client_secret": "`client create` and `client rotate-secret` generate it",
    "client_secret_hash": "of this secret",
    "disabled": "`disable` and `enable` are commands",
    "password": "it is read without echo, or from --password-file",
    "password_hash": "`user import` takes it",
}
WITHOUT_CHECK = {
    **dict.fromkeys(LIFETIMES, "their parsers check them"),
    **dict.fromkeys(("require_pkce", "disabled"), "a boolean"),
    "roles": "a Literal",
}


@pytest.mark.parametrize(
    ("group", "fields", "check"),
    [("client", ClientEntry.__struct_fields__, check_client), ("user", UserEntry.__struct_fields__, check_user)],
)
def test_every_field_has_an_option_a_check_and_a_line(
    group: str, fields: tuple[str, ...], check: Callable[..., None]
) -> None:
    commands: Any = console.get_command(click.Context(console), group)
    options = {option.name for each in commands.commands.values() for option in each.params}
    checked = {*re.findall(r'(?:entry\.|")(\w+)', inspect.getsource(check))}
    lines = MANUAL.partition(f"\n## {group}s\n")[2].partition("\n## ")[0]

    assert [field for field in fields if field not in options | WITHOUT_OPTION.keys()] == []
    assert [field for field in fields if field not in checked | WITHOUT_CHECK.keys()] == []
    assert [field for field in fields if f"`{field}`" not in lines] == []
