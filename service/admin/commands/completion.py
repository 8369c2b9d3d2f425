"""Shell completion of values in the store. Errors are not shown, since the user is still typing the command."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import click
from click.shell_completion import CompletionItem

from service.admin.context import explaining, open_context
from service.protocol.grammar import make_printable


def complete_client_ids(beginning: str) -> list[CompletionItem]:
    with suppress(click.ClickException), explaining():
        return asyncio.run(_list_client_ids(beginning))
    return []


async def _list_client_ids(beginning: str) -> list[CompletionItem]:
    context = open_context()
    try:
        clients = await context.registry.list_clients()
    finally:
        await context.close()
    return [
        CompletionItem(client.client_id, help=make_printable(client.client_name))
        for client in clients
        if client.client_id.startswith(beginning)
    ]
