"""The circuit breaker for an identity provider.

It limits the number of concurrent calls and the time of each, and refuses calls after repeated failures.

Each worker has a circuit breaker for each realm. An identity provider that hangs therefore occupies little of a worker,
and one that is down gets one call a second from each worker.

Clauses: SPEC §2.2
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from service.protocol import provider_responses
from service.protocol.errors import OAuthError, TemporarilyUnavailable
from service.protocol.provider_responses import InvalidLoginResponse, InvalidProviderResponse, ProviderError

CALLS: Final = 20
CALL_SECONDS: Final = 5.0
ROOM_TIMEOUT_SECONDS: Final = 1.0
FAILURES: Final = 20
FAILURES_WITHIN_SECONDS: Final = 30.0
OPEN_SECONDS: Final = 1.0


class CircuitBreaker:
    """A circuit breaker that refuses calls after FAILURES failures in a row within FAILURES_WITHIN_SECONDS.

    Calls are refused while `_open_until` is set, but one call is tried after each pause of OPEN_SECONDS.
    The first success or refusal lets all calls pass again.

    Only `InvalidProviderResponse` and a timeout are failures. A refusal shows that the identity provider works. An
    `InvalidLoginResponse` counts as neither; otherwise one person could block the identity provider for all users.
    """

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(CALLS)
        self._failed_at: deque[float] = deque(maxlen=FAILURES)
        self._open_until: float | None = None

    def check(self) -> None:
        """Raise TemporarilyUnavailable if a call would be refused at once."""
        if self._open_until is not None and time.monotonic() < self._open_until:
            raise provider_responses.make_unavailable()

    @asynccontextmanager
    async def guard(self) -> AsyncIterator[None]:
        """Run the body as one call, which may send several requests, and count whether it failed.

        CALL_SECONDS limits the call, including its wait for a free place. Raises InvalidProviderResponse after this
        time, or TemporarilyUnavailable if the call is refused.
        """
        self.check()
        deadline = asyncio.get_running_loop().time() + CALL_SECONDS
        try:
            async with asyncio.timeout(ROOM_TIMEOUT_SECONDS):
                await self._room.acquire()
        except TimeoutError:
            retry_seconds = provider_responses.RETRY_SECONDS
            raise TemporarilyUnavailable("provider_busy", retry_after_seconds=retry_seconds) from None
        try:
            # Checked again: during the wait the circuit breaker may have begun to refuse calls.
            self.check()
            async with self._trying():
                try:
                    async with asyncio.timeout_at(deadline):
                        yield
                except TimeoutError:
                    raise InvalidProviderResponse(f"no response within {CALL_SECONDS:g} s") from None
        finally:
            self._room.release()

    @asynccontextmanager
    async def _trying(self) -> AsyncIterator[None]:
        """Count the outcome of a call. During a trial, all other calls are refused.

        If a trial shows nothing about the identity provider, the next call is the trial.
        """
        is_trial = self._open_until is not None
        if is_trial:
            self._open_until = time.monotonic() + CALL_SECONDS
        pause_seconds = 0.0
        try:
            yield
            self._note_answer()
        except InvalidLoginResponse:
            raise
        except InvalidProviderResponse:
            pause_seconds = OPEN_SECONDS
            self._note_failure()
            raise
        except (ProviderError, OAuthError):
            self._note_answer()
            raise
        finally:
            if is_trial and self._open_until is not None:
                self._open_until = time.monotonic() + pause_seconds

    def _note_answer(self) -> None:
        self._failed_at.clear()
        self._open_until = None

    def _note_failure(self) -> None:
        now = time.monotonic()
        self._failed_at.append(now)
        is_row = len(self._failed_at) == FAILURES and now - self._failed_at[0] <= FAILURES_WITHIN_SECONDS
        if is_row or self._open_until is not None:
            self._open_until = max(self._open_until or 0.0, now + OPEN_SECONDS)
