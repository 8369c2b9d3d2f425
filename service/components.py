"""The components that a worker and the console have in common: all that work on one store."""

from __future__ import annotations

from collections.abc import Callable

from service.config.settings import Settings, choose_durability, make_lifetimes, make_redis_url
from service.crypto.keyring import Keyring
from service.observability.audit_stream import AuditStream
from service.redis_client.deadline import CallObserver
from service.registry.pending_revocations import PendingRevocations
from service.store.attempts import Attempts
from service.store.client import StoreClient
from service.store.events import EventStream
from service.store.registry.store import RegistryStore
from service.store.reports.session_scan import SessionScan
from service.store.secret_keys import SecretKeys
from service.store.sessions.access_tokens import AccessTokens
from service.store.sessions.families import Families
from service.store.sessions.revocations import Revocations


class Components:
    """The components, each given what it needs. `clock_offset_ms` moves the clock and is for tests only.

    `watch`, `on_moving_slot` and `on_lost` are those of the store's client and of the stream of security events.
    """

    def __init__(
        self,
        settings: Settings,
        clock_offset_ms: Callable[[], int] = int,
        *,
        watch: CallObserver = lambda *_: None,
        on_moving_slot: Callable[[], None] = lambda: None,
        on_lost: Callable[[int], object] = lambda _: None,
    ) -> None:
        self.settings = settings
        self.redis = StoreClient(
            make_redis_url(settings),
            durability=choose_durability(settings),
            clock_offset_ms=clock_offset_ms,
            watch=watch,
            on_moving_slot=on_moving_slot,
        )
        self.lifetimes = make_lifetimes(settings)
        self.keyring = Keyring(settings.secret_keys)
        self.secret_keys = SecretKeys(self.redis, self.keyring)
        self.access_tokens = AccessTokens(self.redis)
        self.attempts = Attempts(self.redis, self.keyring.digest_origin)
        self.families = Families(self.redis, self.lifetimes)
        self.revocations = Revocations(self.redis)
        self.registry = RegistryStore(self.redis)
        self.event_stream = EventStream(self.redis)
        self.audit_stream = AuditStream(self.event_stream.append, on_lost=on_lost)
        self.session_scan = SessionScan(self.redis, self.families)
        self.pending_revocations = PendingRevocations(self.registry, self.revocations, self.session_scan)
