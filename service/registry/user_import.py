"""The import of users of realm main from JSON lines: new users are added, and of known ones the named fields changed.

The file is read twice. The first pass checks each line and writes nothing. The second pass plans and writes batch by
batch, and hashes passwords. The lock of the registry is held only while a batch is planned once more and written, and
the sessions of its users are ended. So changes of the console come in between. Users whose sessions must end are
recorded before that, as pending revocations.

An import that was interrupted is repeated. A line whose fields the record has already is skipped. No seed entry is
stored as last applied, so no seed removes an imported user.

Clauses: SPEC §2.3, §3
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import msgspec

from service.observability.audit import record_event
from service.protocol.user import User, UserIdentity, UserNarrowing, find_user_narrowing
from service.redis_client.lock import RedisLock
from service.registry.editor import ChangeRefused
from service.registry.pending_revocations import PendingRevocations
from service.registry.record_changes import record_change
from service.registry.records import keep_or_hash_all
from service.registry.seed_file.apply import BATCH_PAUSE_SECONDS
from service.registry.seed_file.check import Mistakes
from service.registry.seed_file.entries import BadSeed
from service.registry.seed_file.report import MAX_REPORTED
from service.registry.user_changes import UserChange, read_user_change
from service.store.families import UserEnding
from service.store.registry import RegistryStore
from service.system.scheduling import count_usable_cores, lower_thread_priority

LINES_PER_BATCH: Final = 2_000
MAX_LINE_BYTES: Final = 65_536
MAX_SHOWN_MISTAKES: Final = 20

_read_object: Final = msgspec.json.Decoder(dict).decode


class Line(NamedTuple):
    """A line without mistakes. Lines are numbered from 1 on."""

    number: int
    identity: UserIdentity
    change: UserChange


class PlannedUser(NamedTuple):
    """A change with both records. `old` is None if the user is added."""

    line: Line
    old: User | None
    new: User

    @property
    def ending(self) -> UserNarrowing | None:
        """The reason why the user's sessions end, if they do."""
        return None if self.old is None else find_user_narrowing(self.old, self.new)


@dataclass(slots=True)
class ImportCounts:
    """The numbers of users. `sessions_ended` is the number of updated users whose sessions ended."""

    added: int = 0
    updated: int = 0
    unchanged: int = 0
    sessions_ended: int = 0


class _LineMistakes:
    """The number of all mistakes, and the first MAX_SHOWN_MISTAKES of them."""

    def __init__(self) -> None:
        self.count = 0
        self._shown: list[tuple[int, str]] = []

    def note(self, number: int, found: Mistakes) -> None:
        self.count += len(found)
        texts = [
            f"line {number}: {place}: {mistake}" if place else f"line {number}: {mistake}"
            for place, mistake in found.items()
        ]
        self._shown += [(number, text) for text in texts[: MAX_SHOWN_MISTAKES - len(self._shown)]]

    def list_texts(self) -> Iterator[str]:
        yield from (text for _, text in sorted(self._shown))
        if self.count > len(self._shown):
            yield f"and {self.count - len(self._shown)} more"


@dataclass(slots=True)
class UserImport:
    """The import of one file, which is open for reading bytes and can be read twice. Call `check` before `apply`."""

    _file: BinaryIO
    _registry: RegistryStore
    _pending_revocations: PendingRevocations
    _min_password_characters: int
    lines_per_batch: int = LINES_PER_BATCH
    batch_pause_seconds: float = BATCH_PAUSE_SECONDS

    async def check(self, on_progress: Callable[[int], object] = lambda _: None) -> int:
        """Return the number of users in the file. Raises BadSeed with the first mistakes and the number of all."""
        mistakes, first_lines, total = _LineMistakes(), dict[int, int](), 0
        for batch in self._list_batches(mistakes):
            for line in batch:
                # The hash of a subject has 64 bits, and takes a third of the memory of the subject.
                first = first_lines.setdefault(hash(line.identity.subject), line.number)
                if first != line.number:
                    mistakes.note(line.number, {"username": f"is already named in line {first}"})
            without = [line for line in batch if not line.change.names_password]
            users = await self._registry.find_users([line.identity for line in without])
            for line, user in zip(without, users, strict=True):
                if user is None:
                    mistakes.note(line.number, {"password": "is missing (or password_hash), as the user is new"})
            total += len(batch)
            on_progress(total)
        if mistakes.count:
            raise BadSeed(tuple(mistakes.list_texts()), Path(self._file.name))
        return total

    async def apply(
        self, total: int, *, actor: str, on_progress: Callable[[int, int], object] = lambda _done, _total: None
    ) -> ImportCounts:
        """Add and update the users. `total` is the result of `check`. `actor` is recorded in the security events.

        Raises ChangeRefused if the file is no longer the one that was checked. Batches before that are written.
        """
        counts = ImportCounts()
        try:
            await self._apply(total, counts, actor, on_progress)
        finally:
            if counts.added or counts.updated:
                record_event("users_imported", added=counts.added, updated=counts.updated, actor=actor)
        await self._pending_revocations.run_all()
        return counts

    async def _apply(
        self, total: int, counts: ImportCounts, actor: str, on_progress: Callable[[int, int], object]
    ) -> None:
        mistakes, done, clock = _LineMistakes(), 0, asyncio.get_running_loop().time
        next_write = clock()
        with ThreadPoolExecutor(count_usable_cores(), "import", initializer=lower_thread_priority) as threads:
            for batch in self._list_batches(mistakes):
                if mistakes.count:
                    break
                plan = partial(self._plan, threads=threads, hashes=dict[int, str]())
                planned = await plan(batch)
                if planned:
                    await asyncio.sleep(next_write - clock())
                    async with self._registry.make_lock() as lock:
                        planned = await plan([each.line for each in planned])
                        await self._write(planned, lock)
                    next_write = clock() + self.batch_pause_seconds
                _report(planned, counts, actor)
                counts.unchanged += len(batch) - len(planned)
                done += len(batch)
                on_progress(done, total)
        if done != total:
            raise ChangeRefused(f"the file changed during the import, after {done} users; repeat the import")

    def _list_batches(self, mistakes: _LineMistakes) -> Iterator[Sequence[Line]]:
        lines = self._read_lines(mistakes)
        while batch := list(itertools.islice(lines, self.lines_per_batch)):
            yield batch

    def _read_lines(self, mistakes: _LineMistakes) -> Iterator[Line]:
        """Yield each line without mistakes. Blank lines are skipped, and nothing is read after a line that is too long.

        No mistake quotes a line, which may have a password.
        """
        self._file.seek(0)
        for number, text in enumerate(iter(partial(self._file.readline, MAX_LINE_BYTES + 1), b""), 1):
            found: Mistakes = {}
            if len(text) > MAX_LINE_BYTES:
                mistakes.note(number, {"": f"expected one JSON object per line, of at most {MAX_LINE_BYTES} bytes"})
                return
            if text.isspace():
                continue
            try:
                tree = _read_object(text)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
                mistakes.note(number, {"": f"expected a JSON object in UTF-8: {error}"})
                continue
            change = read_user_change(tree, "", found, self._min_password_characters)
            if change is not None and not found:
                yield Line(number, change.identity, change)
            mistakes.note(number, found)

    async def _plan(
        self, lines: Sequence[Line], threads: ThreadPoolExecutor, hashes: dict[int, str]
    ) -> list[PlannedUser]:
        """Return the changes that the lines make now. `hashes` holds hashes that were made before, by line."""
        olds = await self._registry.find_users([line.identity for line in lines])
        plain = [(line, old) for line, old in zip(lines, olds, strict=True) if line.change.entry.password is not None]
        missing = [(line, old) for line, old in plain if line.number not in hashes]
        secrets = [(line.change.entry.password or "", old.password_hash if old else None) for line, old in missing]
        made = await keep_or_hash_all(secrets, threads)
        hashes.update(zip((line.number for line, _ in missing), made, strict=True))
        planned = []
        for line, old in zip(lines, olds, strict=True):
            if old is None and not line.change.names_password:
                raise ChangeRefused(f"line {line.number}: the user was deleted during the import; repeat the import")
            new = line.change.apply(old, hashes.get(line.number))
            if new != old:
                planned.append(PlannedUser(line, old, new))
        return planned

    async def _write(self, planned: Sequence[PlannedUser], lock: RedisLock) -> None:
        endings = [UserEnding.of(each.line.identity, each.ending) for each in planned if each.ending]
        await self._registry.add_pending_users(endings)
        await self._registry.put_users([(each.line.identity, each.new) for each in planned])
        await self._pending_revocations.run_user_revocations(lock)


def _report(planned: Sequence[PlannedUser], counts: ImportCounts, actor: str) -> None:
    """Count the changes. Events are recorded of the first MAX_REPORTED ones, and of all that ended sessions."""
    for each in planned:
        ending = each.ending
        if ending or counts.added + counts.updated < MAX_REPORTED:
            record_change(each.old, each.new, actor=actor, reason="import")
        counts.added += each.old is None
        counts.updated += each.old is not None
        counts.sessions_ended += ending is not None
