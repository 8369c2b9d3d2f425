"""A router that is made at its first use, and that several users share: requests, lookups and the registry.

Redis tracks the key of a read only if CLIENT CACHING YES stands before that read (OPTIN). So scripts and other commands
can share a tracked connection, and cost the server no table entries.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from .deadline import StoreUnavailable
from .listeners import InvalidationListener, ListenersByKind
from .options import ConnectionOptions
from .router import Router


class SharedRouter:
    """The only router of a process, or one for each event loop after the other.

    The connections of an event loop that has ended ended with it. `options` count from the next first use on. Its
    `listener` is set here: a connection tracks keys if there was a listener before the first use.
    """

    def __init__(self, options: ConnectionOptions, *, on_moving_slot: Callable[[], None] = lambda: None) -> None:
        self.options = options
        self._on_moving_slot = on_moving_slot
        self._listeners = ListenersByKind()
        self._router: Router | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def listen(self, kind: str, listener: InvalidationListener) -> None:
        """Let a cache get the invalidations of one kind of key. Call this before the first use."""
        self._listeners.add(kind, listener)

    def get(self) -> Router:
        """Return the router of this event loop, and make it at the first use."""
        # `asyncio.get_running_loop` makes a system call, and this is called for every command.
        if self._router is None or self._loop is None or not self._loop.is_running():
            self._listeners.invalidate(None)
            options = self.options._replace(listener=self._listeners if self._listeners else None)
            self._router, self._loop = Router(options, on_moving_slot=self._on_moving_slot), asyncio.get_running_loop()
        return self._router

    def now_ms(self) -> int:
        """Return Redis time in ms since 1970. Raises StoreUnavailable before the first answer of Redis."""
        if self._router is None:
            raise StoreUnavailable("Redis has not been asked yet")
        return self._router.now_ms()

    async def close(self) -> None:
        """Close the connections. A later use would open new ones."""
        router, self._router = self._router, None
        if router is not None and self._loop is asyncio.get_running_loop():
            await router.close()
