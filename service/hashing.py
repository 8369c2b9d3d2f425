"""Passwords and client secrets: hashed with argon2id in bounded threads, compared in constant time.

A secret that the service made is 256 random bits and needs one SHA-256; what people choose needs a slow hash.
The slow ones run in pools of threads, clients and users apart, so that neither the event loop nor the other kind
waits; a full pool refuses at once instead of queueing without end. Callers from different networks take turns in the
queue, so that no address keeps the others out.

Clauses: RFC 6749 §2.3.1, §10.1, §10.10, RFC 6819 §5.1.4.1.3, §5.1.4.2.3
"""

from __future__ import annotations

import asyncio
import ctypes
import functools
import hashlib
import hmac
import os
import re
import secrets
import time
from base64 import urlsafe_b64encode
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Final, NoReturn, TypeVar

from argon2 import Type, extract_parameters
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC
from passlib.context import CryptContext
from passlib.exc import PasswordSizeError, PasswordValueError
from passlib.hash import argon2

from service.metrics import HashingCounts
from service.protocol.errors import TemporarilyUnavailable

MAX_PASSWORD_CHARACTERS: Final = 1024
MADE_SECRET_PREFIX: Final = "sha256:"
_REMEMBERED_SECRETS: Final = 1024
_QUEUED_PER_THREAD: Final = 25

IDLE_SECONDS: Final = 5.0

_MOST_HEAPS: Final = -8
"""`M_ARENA_MAX` in malloc.h."""

_libc: Final = ctypes.CDLL(None)

Result = TypeVar("Result")

# Salt and digest are base64 without padding, whose last character has no bits to spare.
_BASE64: Final = r"(?:[A-Za-z0-9+/]{4}){2,}(?:[A-Za-z0-9+/][AQgw]|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048])?"
_PHC_FORM: Final = re.compile(rf"(\$argon2(?:id|i|d)\$v=[0-9]+\$m=[0-9]+,t=[0-9]+,p=[0-9]+)\$({_BASE64})\$({_BASE64})")

# RFC 9106 leaves the choice to the machine: about 20 ms of one core here.
MEMORY_KIB: Final = 19 * 1024
PASSES: Final = 2
MOST_MEMORY_KIB: Final = 256 * 1024
MOST_PASSES: Final = 16
MOST_LANES: Final = 16

_argon2id: Final = CryptContext(
    schemes=["argon2"],
    argon2__type="ID",
    argon2__memory_cost=MEMORY_KIB,
    argon2__time_cost=PASSES,
    argon2__parallelism=1,
)


def hash_password(password: str) -> str:
    """An argon2id hash in PHC form; about 20 ms of one core and 19 MiB."""
    password_hash: str = _argon2id.hash(password)
    return password_hash


def is_password_hash(text: str) -> bool:
    """Whole in each part: one that was cut off would otherwise be found out only at its user's login.

    And not so costly that a few logins would take all memory or time.
    """
    match = _PHC_FORM.fullmatch(text)
    return match is not None and _is_bearable(f"{match[1]}${'A' * len(match[2])}${'A' * len(match[3])}")


@lru_cache(maxsize=64)
def _is_bearable(form: str) -> bool:
    """Judges a hash by its parameters and lengths, which the hashes of a large seed file have in common."""
    try:
        argon2.from_string(form)
    except ValueError:  # no pass, no lane, a salt that is too short
        return False
    found = extract_parameters(form)
    if not 8 * found.parallelism <= found.memory_cost <= MOST_MEMORY_KIB:
        return False
    return found.time_cost <= MOST_PASSES and found.parallelism <= MOST_LANES


def verify_password(password: str, password_hash: str) -> tuple[bool, str | None]:
    """Whether it is right, and a new hash where the stored one has weaker parameters than today's.

    What is too long to be right takes as long as any wrong one, or its length would tell whether the user exists.
    """
    if len(password) > MAX_PASSWORD_CHARACTERS:
        verify_nobody()
        return False, None
    try:
        if not _is_weaker(password_hash):
            return _argon2id.verify(password, password_hash), None
        right, new_hash = _argon2id.verify_and_update(password, password_hash)
    except (PasswordSizeError, PasswordValueError, UnicodeError):
        return False, None
    return right, new_hash


def _is_weaker(password_hash: str) -> bool:
    """The library would replace any hash of other parameters than today's, stronger ones included."""
    found = extract_parameters(password_hash)
    return found.type is not Type.ID or found.memory_cost < MEMORY_KIB or found.time_cost < PASSES


def verify_nobody() -> None:
    """Takes as long as a real check, so that time does not tell whether a user exists."""
    _argon2id.dummy_verify()


def hash_made_secret(secret: str) -> str:
    """For a secret of 256 random bits: nobody guesses those, so a fast digest is enough."""
    digest = hashlib.sha256(secret.encode()).digest()
    return MADE_SECRET_PREFIX + urlsafe_b64encode(digest).decode().rstrip("=")


def is_secret_hash(text: str) -> bool:
    is_made = text.startswith(MADE_SECRET_PREFIX) and len(text) == len(MADE_SECRET_PREFIX) + 43
    return is_made or is_password_hash(text)


class HashingPool:
    """Threads for slow hashes with room for a short queue and no more.

    Each hash takes `MEMORY_KIB`, which is kept for the next one and goes back when none came for `IDLE_SECONDS`.
    """

    def __init__(self, name: str, threads: int | None = None) -> None:
        self._threads = threads or os.cpu_count() or 1
        _share_one_heap()
        self._giving_back: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._executor = ThreadPoolExecutor(self._threads, thread_name_prefix=name)
        self._queue = _FairQueue(running=self._threads + 1, waiting=self._threads * _QUEUED_PER_THREAD - 1)
        self._under_way = 0
        self._counts = HashingCounts(name)

    def check_room(self, network: str = "") -> None:
        """Raise TemporarilyUnavailable where a hash for this network would be refused."""
        if not self._queue.has_room(network):
            self._refuse()

    async def run(self, function: Callable[..., Result], *arguments: str, network: str = "") -> Result:
        """Return what the function returns in a thread; `network` is where the caller is.

        Raises TemporarilyUnavailable where the queue is full of callers from this network, or becomes full of others
        while this network has the most in it.
        """
        turn = self._queue.enter(network)
        if turn is None:
            self._refuse()
        self._under_way += 1
        if self._giving_back is not None:
            self._giving_back.cancel()
        self._counts.count_begun()
        loop = asyncio.get_running_loop()
        work = functools.partial(self._begin, time.perf_counter(), function, *arguments)
        try:
            if not await turn:
                self._refuse()
            return await loop.run_in_executor(self._executor, work)
        finally:
            self._queue.leave(network, turn)
            self._under_way -= 1
            self._counts.count_ended()
            if self._under_way == 0 and not self._is_closed:
                self._giving_back = loop.call_later(IDLE_SECONDS, self._executor.submit, _give_memory_back)

    def _refuse(self) -> NoReturn:
        self._counts.count_refused()
        raise TemporarilyUnavailable("hashing_queue_full", retry_after_seconds=1)

    def _begin(self, asked: float, function: Callable[..., Result], *arguments: str) -> Result:
        self._counts.note_wait_since(asked)
        return function(*arguments)

    def close(self) -> None:
        self._is_closed = True
        if self._giving_back is not None:
            self._giving_back.cancel()
        self._executor.shutdown(wait=False, cancel_futures=True)


class _FairQueue:
    """Turns for `running` hashes at a time, with room for `waiting` more, shared between networks.

    Networks take turns, and each network's callers are served in the order of arrival. Where the room is full, the
    newest caller of the network that waits with the most gives way to a newcomer whose network would wait with fewer.
    """

    def __init__(self, *, running: int, waiting: int) -> None:
        self._free = running
        self._room = waiting
        self._queues: OrderedDict[str, deque[asyncio.Future[bool]]] = OrderedDict()

    def has_room(self, network: str) -> bool:
        longest = max(map(len, self._queues.values()), default=0)
        return self._length < self._room or longest > len(self._queues.get(network, ())) + 1

    def enter(self, network: str) -> asyncio.Future[bool] | None:
        """Return a future: True at the newcomer's turn, False where it gave way. None where there is no room."""
        if not self.has_room(network):
            return None
        turn = asyncio.get_running_loop().create_future()
        if self._free:
            self._free -= 1
            turn.set_result(True)
            return turn
        if self._length >= self._room:
            longest = max(self._queues, key=lambda other: len(self._queues[other]))
            newest = self._queues[longest][-1]
            self._remove(longest, newest)
            newest.set_result(False)
        self._queues.setdefault(network, deque()).append(turn)
        return turn

    def leave(self, network: str, turn: asyncio.Future[bool]) -> None:
        """End a turn, or the waiting for one that was cancelled."""
        if turn in self._queues.get(network, ()):
            self._remove(network, turn)
        elif turn.done() and not turn.cancelled() and turn.result():
            self._free += 1
            self._give_turn()

    @property
    def _length(self) -> int:
        return sum(map(len, self._queues.values()))

    def _give_turn(self) -> None:
        while self._free and self._queues:
            network, queue = next(iter(self._queues.items()))
            turn = queue[0]
            self._remove(network, turn)
            if network in self._queues:
                self._queues.move_to_end(network)
            if not turn.done():
                self._free -= 1
                turn.set_result(True)

    def _remove(self, network: str, turn: asyncio.Future[bool]) -> None:
        self._queues[network].remove(turn)
        if not self._queues[network]:
            del self._queues[network]


def _share_one_heap() -> None:
    """Else each thread has one of its own, of which nothing ever goes back. Of glibc; others have no such function."""
    mallopt = getattr(_libc, "mallopt", None)
    if mallopt is not None:
        mallopt(_MOST_HEAPS, 1)


def _give_memory_back() -> None:
    malloc_trim = getattr(_libc, "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)


class SecretMemory:
    """Client secrets that were right, so that a busy client pays for the slow hash once per worker.

    Remembered for a stored hash is a digest of both under a key of this process: a rotated secret is forgotten.
    """

    def __init__(self) -> None:
        self._key = HMAC(secrets.token_bytes(32), SHA256())
        self._digests: OrderedDict[str, bytes] = OrderedDict()

    def remember(self, client_secret: str, stored_hash: str) -> None:
        self._digests[stored_hash] = self._digest(client_secret, stored_hash)
        self._digests.move_to_end(stored_hash)
        if len(self._digests) > _REMEMBERED_SECRETS:
            self._digests.popitem(last=False)

    def knows(self, client_secret: str, stored_hash: str) -> bool:
        remembered = self._digests.get(stored_hash, b"")
        return hmac.compare_digest(remembered, self._digest(client_secret, stored_hash))

    def _digest(self, client_secret: str, stored_hash: str) -> bytes:
        digest = self._key.copy()
        digest.update(f"{stored_hash}\n{client_secret}".encode())
        return digest.finalize()
