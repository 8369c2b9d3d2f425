"""The command `events`, which prints the stream of security events."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import click
import msgspec

from service.admin.command import command, console, parsed_by
from service.admin.context import AdminContext
from service.admin.input import read_since_ms
from service.admin.output import Output, format_time
from service.observability.audit import GROUPS, get_level
from service.protocol.scope import MAIN_REALM
from service.protocol.user import identify_user, normalize_username
from service.redis_client.deadline import StoreUnavailable
from service.store.events import MAX_EVENTS, EventStream, Position, StoredEvent, get_position

Event = dict[str, Any]
Wanted = Callable[[Event], bool]

FOLLOW_SECONDS: Final = 0.5
SHOWN_FIRST: Final = 20
"""The number of earlier events that `--follow` prints first, if no option selects them."""


@command(console, "events", examples=("events --since 24h", "events --user carol@example.com", "events --follow"))
@click.option("--follow", is_flag=True, help="Keep printing new events until Ctrl-C.")
@click.option("--user", "username", metavar="NAME", help="Only events about this user name or `sub`.")
@click.option("--client", "client_id", metavar="ID", help="Only events about this client.")
@click.option(
    "--since",
    type=parsed_by(read_since_ms),
    default="0",
    metavar="TIME",
    help="Only events since this time (ISO 8601), or of a duration until now, such as 90m or 24h.",
)
async def events(
    context: AdminContext,
    output: Output,
    follow: bool,
    username: str | None,
    client_id: str | None,
    since: int,
) -> None:
    """Print security events, oldest first.

    The events are reused tokens, revocations, changes by operators, throttling and failures. If one event occurs often
    in a minute for one user or client, Redis keeps the first events, the newest, and the number of the rest as
    `repeats`. It keeps about ten thousand events each of operators, programs, users and unauthenticated callers, for 30
    days. With --json, each line is one JSON value. A program that restarts with --since gets some events twice;
    `stream` and `id` identify duplicates.
    """
    stream = context.event_stream
    names = {username, normalize_username(username)} if username else set()
    with suppress(StoreUnavailable):  # an account that reads events only may read no users
        user = await context.registry.users.find(identify_user(MAIN_REALM, username)) if username else None
        names |= {user.id} if user else set()  # the user's events have it under a former name, too
    wanted = partial(_is_about, names=names, client_id=client_id or "")
    since_ms = since if since >= 0 else since + await context.redis.read_clock_ms()
    latest = await stream.read_latest(2 * MAX_EVENTS)
    found = _select([entry for entry in latest if entry.order[0] >= since_ms], wanted)
    is_cut = follow and not any((username, client_id, since))
    _print(output, found[-SHOWN_FIRST:] if is_cut else found)
    if follow:
        with suppress(asyncio.CancelledError):  # Ctrl-C ends --follow
            await _follow(stream, output, get_position(latest), wanted)
    elif not found:
        output.note("No events found.")


async def _follow(stream: EventStream, output: Output, after: Position, wanted: Wanted) -> None:
    """Print new events until cancelled. An outage is reported and waited out, as later events are wanted, too."""
    while True:
        await asyncio.sleep(FOLLOW_SECONDS)
        try:
            news = await stream.read(after=after)
        except StoreUnavailable as outage:
            output.note(f"Redis is unavailable; waiting: {outage}", "yellow")
            continue
        _print(output, _select(news, wanted))
        after = get_position(news, after)


def _select(entries: Sequence[StoredEvent], wanted: Wanted) -> list[Event]:
    """Return the fields of the events that were asked for."""
    return [event for event in map(_decode, entries) if wanted(event)]


def _decode(entry: StoredEvent) -> Event:
    event: Event = msgspec.json.decode(entry.text)
    return {"timestamp": format_time(entry.order[0]), "stream": GROUPS[entry.stream], "id": entry.id} | event


def _print(output: Output, events: Sequence[Event]) -> None:
    for event in events:
        output.show(event, [(_word(event), "yellow" if get_level(event["event"]) >= 30 else "")])


def _is_about(event: Event, *, names: Collection[str], client_id: str) -> bool:
    """Return True if the event has a wanted name. Case is ignored as in realm main; an extra event does no harm."""
    is_of_user = not names or str(event.get("username", "")).lower() in names or event.get("sub") in names
    return is_of_user and client_id.lower() in ("", str(event.get("client_id", "")).lower())


def _word(event: Event) -> str:
    said = " ".join(
        f"{name}={value}" for name, value in event.items() if name not in ("timestamp", "stream", "id", "event")
    )
    return f"{event['timestamp']}  {event['event']}  {said}"
