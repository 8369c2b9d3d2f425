"""The seed file of a worker, which is applied at startup, and again whenever Redis lacks it.

Clauses: SPEC §2.3
"""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import dataclass, field

from service.config.settings import Settings
from service.redis_client.deadline import StoreUnavailable
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.entries import BadSeed
from service.store.registry.store import RegistryStore
from service.store.secret_keys import SecretKeys

RETRY_SECONDS = 1.0
PROGRESS_SECONDS = 10.0

log = logging.getLogger("service.registry")


@dataclass(slots=True)
class SeedKeeper:
    """Keeps the seed file of the settings applied. `progress` is the number of entries that are done, and of all."""

    _settings: Settings
    _registry: RegistryStore
    _secret_keys: SecretKeys
    _seeding: Seeding
    progress: tuple[int, int] = (0, 0)
    was_tried: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _is_applied: bool = field(default=False, init=False)
    _trouble: str = field(default="", init=False)
    _progress_logged: float = field(default=0.0, init=False)

    async def keep_applied(self) -> None:
        """Apply the seed file again while it is not in force.

        So a service that starts before its Redis becomes ready without a restart, and so does one whose Redis was
        emptied.
        """
        while True:
            await self._secret_keys.are_in_use()
            if not await self.is_in_force():
                await self.apply()
            self.was_tried.set()
            await asyncio.sleep(RETRY_SECONDS)

    async def is_in_force(self) -> bool:
        """Return True if this worker has seen its seed applied and the store has not been emptied since.

        During an outage the last result is returned.
        """
        if self._settings.seed_file is None:
            return True
        if self._is_applied:
            with suppress(StoreUnavailable):
                self._is_applied = await self._registry.seeds.find("file") is not None
        return self._is_applied

    async def apply(self) -> None:
        """Try once to apply the seed file. If that fails the worker is not ready, and `keep_applied` tries again.

        A mistake in the file is logged. At the start of the service the supervisor has found it before. So an edit of
        the file while the service runs cannot bring the service down.
        """
        file, least = self._settings.seed_file, self._settings.min_password_characters
        self.progress = (0, 0)
        try:
            if file is None or not await self._secret_keys.register():
                return
            outcome = await self._seeding.apply_file(file, least, self._note_progress)
        except (StoreUnavailable, BadSeed) as error:
            if str(error) != self._trouble:
                log.error("the seed file could not be applied and will be tried again: %s", error)
            self._trouble = str(error)
        except Exception:
            log.exception("the seed file could not be applied and will be tried again")
        else:
            for warning in outcome.warnings:
                log.warning("the seed file %s: %s", file, warning)
            log.info("the seed file %s is in force; entries added or updated: %d", file, outcome.changes)
            self._is_applied, self._trouble = True, ""

    def _note_progress(self, done: int, of: int) -> None:
        self.progress = (done, of)
        now = time.monotonic()
        if now - self._progress_logged >= PROGRESS_SECONDS:
            self._progress_logged = now
            log.info("the seed file %s is being applied: %d of %d entries", self._settings.seed_file, done, of)
