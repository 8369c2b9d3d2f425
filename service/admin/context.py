"""What the commands work with, on the store of the environment's settings."""

from __future__ import annotations

import logging
import os
import pwd
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

import click

from service.admin.output import Refused, WrongInput
from service.config.reading import BadSettings
from service.config.settings import Settings, load_settings
from service.config.wiring import find_durability, find_store, make_lifetimes
from service.crypto.keyring import Keyring
from service.observability.audit import Event, Fields, record_event, start_trail
from service.observability.audit_stream import EventTrail
from service.protocol.scope import MAIN_REALM
from service.protocol.user import UserIdentity, identify_user, normalize_username
from service.redis_client.deadline import StoreUnavailable
from service.registry.editor import AmendmentRefused, Amendments
from service.registry.pending_revocations import Consequences
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.schema import BadSeed
from service.store.access_tokens import AccessTokens
from service.store.client import StoreClient
from service.store.events import EventStream
from service.store.families import Families
from service.store.registry import RegistryStore
from service.store.reports.session_scan import Sweeps
from service.store.reports.token_inspection import TokenInspection
from service.store.revocations import Revocations

log = logging.getLogger("service.admin")


class Desk:
    """Close what you open. Only tests move its clock."""

    def __init__(self, settings: Settings, clock_offset_ms: Callable[[], int] = lambda: 0) -> None:
        self.settings = settings
        self.connection = StoreClient(
            find_store(settings), durability=find_durability(settings), clock_offset_ms=clock_offset_ms
        )
        self.keyring = Keyring(settings.secret_keys)
        self.registry = RegistryStore(self.connection)
        self.access_tokens = AccessTokens(self.connection)
        lifetimes = make_lifetimes(settings)
        self.families = Families(self.connection, lifetimes)
        self.inspection = TokenInspection(self.connection, lifetimes)
        self.revocations = Revocations(self.connection)
        self.events = EventStream(self.connection)
        self.actor = find_actor()
        self._trail = EventTrail(self.events.append)
        self.sweeps = Sweeps(self.connection, self.families)
        consequences = Consequences(self.registry, self.revocations, self.sweeps)
        self.amendments = Amendments(self.registry, consequences, self.actor, on_wait=tell_waiting)
        self.seeding = Seeding(self.registry, self.keyring, consequences, hashing_threads=os.cpu_count() or 1)

    def open(self) -> None:
        """In the task that uses it."""
        start_trail(self._trail)
        self._trail.start()

    async def check_realm(self, realm: str) -> None:
        if realm != MAIN_REALM and await self.registry.find_realm(realm) is None:
            raise Refused(f"there is no realm {realm}")

    async def identify_user(self, realm: str, username: str) -> UserIdentity:
        """Return whom a typed name means, by the rule of the realm."""
        organisation = None if realm == MAIN_REALM else await self.registry.find_realm(realm)
        name = normalize_username(username, organisation.username_claim) if organisation else username
        return identify_user(realm, name)

    def record(self, event: Event, **fields: Unpack[Fields]) -> None:
        """A security event, of an act at this console."""
        fields["actor"] = self.actor
        record_event(event, **fields)

    async def close(self) -> None:
        """What was done is done, even where the events of it cannot be written down; the log then says so."""
        await self._trail.close()
        await self.connection.close()


def open_desk() -> Desk:
    """Raises BadSettings, or Refused where no store can be there."""
    settings = load_settings(os.environ)
    store = find_store(settings)
    if not settings.secret_keys or (store.path is not None and not Path(store.path).exists()):
        raise Refused(
            f"no store runs at {store.path or settings.data_dir}: start ./scripts/serve first, or set REDIS_URL"
        )
    return Desk(settings)


def tell_waiting() -> None:
    click.echo("waiting for a seed, or another change, to be finished …", err=True)


def find_actor() -> str:
    """Who sits at the console, as the system knows them, and not as their environment says."""
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:  # a user id without a name
        return f"user id {os.getuid()}"


@contextmanager
def explaining() -> Iterator[None]:
    """Turns what can go wrong below into a sentence and an exit status."""
    try:
        yield
    except BadSettings as refusal:
        raise WrongInput("\n".join(refusal.mistakes)) from None
    except BadSeed as refusal:
        raise WrongInput("\n".join((f"mistakes in {refusal.file}:", *refusal.mistakes))) from None
    except AmendmentRefused as refusal:
        raise Refused(str(refusal)) from None
    except StoreUnavailable as outage:
        raise Refused(f"the store does not answer or cannot serve: {outage}") from None
    except UnicodeEncodeError:
        raise WrongInput("expected arguments in UTF-8") from None
    except (click.ClickException, click.Abort, BrokenPipeError):  # click ends quietly where nobody reads on
        raise
    except Exception as error:
        log.debug("unforeseen", exc_info=True)
        raise Refused(f"unforeseen ({type(error).__name__}): {error}; LOG_LEVEL=debug tells more") from None
