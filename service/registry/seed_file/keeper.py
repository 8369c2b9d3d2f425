"""The seed file of a worker, which is applied at startup, and again whenever Redis lacks it.

Clauses: SPEC §2.3
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field

from service.config.settings import Settings
from service.protocol.errors import ClientThrottled, OAuthError, TemporarilyUnavailable
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
    """Keeps the seed file of the settings applied. `progress` is the number of entries that are done, and of all.

    `in_force` is the mark of the store to which this worker has seen its file applied, or an empty text. It becomes one
    if the store has another mark.
    """

    _settings: Settings
    _registry: RegistryStore
    _secret_keys: SecretKeys
    _seeding: Seeding
    progress: tuple[int, int] = (0, 0)
    was_tried: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    in_force: str = field(default="", init=False)
    _trouble: str = field(default="", init=False)
    _progress_logged: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        if self._settings.seed_file is None:
            self.in_force = "no seed file"

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
        with suppress(StoreUnavailable):
            await self.look()
        return bool(self.in_force)

    @asynccontextmanager
    async def required(self) -> AsyncIterator[None]:
        """Run a block that looks up records. Its refusals are temporary unless the seed is in force throughout."""
        mark = self.in_force
        try:
            yield
        except OAuthError as refusal:
            await self.check_final(refusal, mark)
            raise

    async def check_final(self, refusal: OAuthError, mark: str) -> None:
        """Raise TemporarilyUnavailable in place of the refusal if the seed may bring what was not found.

        `mark` is what was in force before the lookup. A store that was emptied gets another mark. So a refusal is
        temporary if the store was empty or half loaded meanwhile, even if another worker has applied the seed since.
        """
        if isinstance(refusal, TemporarilyUnavailable) or (mark and isinstance(refusal, ClientThrottled)):
            return  # not final, and a flood past the limit asks Redis nothing
        if not mark or mark != await self.look():
            user = refusal.user
            raise TemporarilyUnavailable("seed_not_loaded", user=user, retry_after_seconds=1) from None

    async def look(self) -> str:
        """Look again whether the seed is in force, and return the mark. Raises StoreUnavailable.

        Under another mark a seed is in force, but another instance may have another file.
        """
        has_file = self._settings.seed_file is not None
        if has_file and self.in_force and self.in_force != await self._registry.seeds.read_mark():
            self.in_force = ""
        return self.in_force

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
            self.in_force = await self._registry.seeds.read_mark()
        except (StoreUnavailable, BadSeed) as error:
            if str(error) != self._trouble:
                log.error("the seed file could not be applied and will be tried again: %s", error)
            self._trouble = str(error)
        except Exception:
            log.exception("the seed file could not be applied and will be tried again")
        else:
            for warning in outcome.warnings:
                log.warning("the seed file %s: %s", file, warning)
            log.info("the seed file %s is loaded; entries added or updated: %d", file, outcome.changes)
            self._trouble = ""

    def _note_progress(self, done: int, of: int) -> None:
        self.progress = (done, of)
        now = time.monotonic()
        if now - self._progress_logged >= PROGRESS_SECONDS:
            self._progress_logged = now
            log.info("the seed file %s is being applied: %d of %d entries", self._settings.seed_file, done, of)
