"""The components of one worker and its background loops."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from math import nan

from service.components import Components
from service.config.settings import Settings
from service.crypto.hashing_pool import HashingPool, keep_heap_trimmed
from service.crypto.password_hashing import verify_dummy_password
from service.gateway.lookup import BearerLookup
from service.observability import metrics
from service.observability.audit import use_audit_stream
from service.realms.external import ExternalRealms
from service.realms.login import Logins
from service.realms.main import MainRealm
from service.redis_client.deadline import StoreUnavailable
from service.registry.cache import RegistryCaches
from service.registry.password_change import PasswordChange
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.keeper import SeedKeeper
from service.store.browsers.browser_sessions import BrowserSessions
from service.store.browsers.consents import Consents
from service.store.reports.readiness import read_fullest_memory
from service.store.reports.session_count import CountingForbidden, estimate_session_count
from service.store.sessions.codes import Codes
from service.store.single_use import SingleUse
from service.system.process import LOWER_BY
from service.web.api.health import HealthEndpoint
from service.web.pages.pending_logins import PendingLogins
from service.web.request.client_authentication import ClientAuthenticator

SEED_START_SECONDS = 2.0
COUNT_SECONDS = 15.0
PENDING_REVOCATIONS_SECONDS = 15.0

log = logging.getLogger("service")


class Worker(Components):
    """The components of one worker, each given what it needs.

    `clock_offset_ms` moves the clock and is for tests only.
    """

    def __init__(self, settings: Settings, clock_offset_ms: Callable[[], int] = int) -> None:
        super().__init__(
            settings,
            clock_offset_ms,
            watch=metrics.count_redis_call,
            on_moving_slot=metrics.get_metrics().moving_slots.inc,
            on_lost=metrics.get_metrics().events_lost.inc,
        )
        self.bearer_counts = metrics.CacheCounts("bearers")
        self.bearer = BearerLookup(
            self.redis.router,
            memory=settings.verify_cache,
            observe=self.bearer_counts.count_bearer_read,
            clock_offset_ms=clock_offset_ms,
        )
        self.browser_sessions = BrowserSessions(self.redis)
        self.codes = Codes(self.redis, self.lifetimes)
        self.consents = Consents(self.redis, self.lifetimes)
        self.single_use = SingleUse(self.redis)
        self.password_change = PasswordChange(self.registry, self.pending_revocations)
        self.seeding = Seeding(self.registry, self.keyring, self.pending_revocations)
        self.seed_keeper = SeedKeeper(settings, self.registry, self.secret_keys, self.seeding)
        # The lanes of a foreign argon2 hash are up to sixteen threads. At this priority they leave most of the time to
        # other hashes, and a single one gets a quarter of it.
        self.foreign_hashes = HashingPool("foreign", 1, LOWER_BY + 5)
        self.passwords = HashingPool("password", foreign=self.foreign_hashes)
        self.secrets = HashingPool("secret", foreign=self.foreign_hashes)
        self.caches = caches = RegistryCaches(self.redis.router, clock_offset_ms)
        self.clients, self.users = caches.clients, caches.users
        self.pending_logins = PendingLogins(self.keyring, caches.now_ms)
        self.authenticator = ClientAuthenticator(
            self.clients, self.attempts, settings.client_attempts, self.secrets, caches.now_ms, self.seed_keeper
        )
        self.external_realms = ExternalRealms(caches.realms, self.users, self.keyring, self.redis.read_clock_ms)
        self.logins = Logins(
            MainRealm(self.registry, self.users, self.passwords),
            self.external_realms,
            self.attempts,
            settings,
            self.seed_keeper,
        )
        self.health = HealthEndpoint(
            self.redis, self.bearer, self.bearer_counts, self.clients, self.secret_keys, self.seed_keeper
        )

    async def keep_pending_revocations_run(self) -> None:
        """Run pending revocations every 15 s. The console runs its own; this covers a console that was killed."""
        while True:
            await asyncio.sleep(PENDING_REVOCATIONS_SECONDS)
            try:
                await self.pending_revocations.run_all()
            except StoreUnavailable as outage:
                log.debug("pending revocations were not run: %s", outage)
            except Exception:
                log.exception("pending revocations failed and will be run again")

    async def keep_sessions_counted(self) -> None:
        """Refresh the gauges of sessions and of the memory of Redis every 15 s.

        If a count fails, the gauges are cleared. An outage is not logged here, as it has its own lines in the log. If
        the Redis user lacks the permission, one warning is logged and the loop ends.
        """
        is_known = False
        while True:
            try:
                memory = await read_fullest_memory(self.redis)
                metrics.note_live(*await estimate_session_count(self.redis), *memory)
                is_known = True
            except (StoreUnavailable, CountingForbidden) as error:
                if is_known:
                    metrics.note_live(nan, nan, nan, nan)
                if isinstance(error, CountingForbidden):
                    log.warning("the Redis user may not count sessions, so session metrics are missing: %s", error)
                    return
            await asyncio.sleep(COUNT_SECONDS)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Apply the seed and keep the background loops running; close everything at the end.

        Requests are answered after SEED_START_SECONDS at the latest, even if a large seed takes longer.
        """
        use_audit_stream(self.audit_stream)
        self.audit_stream.start()
        # The first dummy check takes twice as long, so it is done before a user waits for one.
        await self.passwords.run(verify_dummy_password)
        self.keyring.is_in_use = False
        tasks = [asyncio.create_task(self.seed_keeper.keep_applied()), asyncio.create_task(keep_heap_trimmed())]
        with suppress(TimeoutError):
            await asyncio.wait_for(self.seed_keeper.was_tried.wait(), SEED_START_SECONDS)
        for work in (self.keep_pending_revocations_run, self.keep_sessions_counted, self.keep_metrics_flushed):
            tasks.append(asyncio.create_task(work()))
        try:
            yield
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await self.audit_stream.close()
            await self.close()
        finally:
            metrics.flush_counts()

    async def keep_metrics_flushed(self) -> None:
        while True:
            await asyncio.sleep(metrics.FLUSH_SECONDS)
            metrics.flush_counts()

    async def close(self) -> None:
        for pool in (self.passwords, self.secrets, self.foreign_hashes):
            pool.close()
        await self.external_realms.close()
        await self.redis.close()
