"""The import of users of realm main from JSON lines: new users are added, and of known ones the named fields changed.

The file is read twice. The first pass checks each line and writes nothing. The second pass plans and writes batch by
batch, and hashes passwords. The lock of the registry is held only while a batch is planned once more and written, and
the sessions of its users are ended. So changes of the console come in between. Users whose sessions must end are
recorded before that, as pending revocations.

An import that was interrupted is repeated. A line whose fields the record has already is skipped, and a password that
a user changed here since an import of the same hash stays. No seed entry is stored as last applied, so no seed removes
an imported user.

Clauses: SPEC §2.3, §3
"""

from __future__ import annotations

import asyncio
import itertools
from codecs import BOM_UTF8
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from msgspec.structs import replace

from service.crypto.hash_kinds import digest_hash
from service.observability.audit import record_event
from service.protocol.parameters import parse_json
from service.protocol.user import MAX_NAME_CHARACTERS, User, UserIdentity, UserNarrowing, find_user_narrowing
from service.registry.editor import ChangeRefused
from service.registry.pending_revocations import PendingRevocations
from service.registry.record_changes import record_change
from service.registry.records import keep_or_hash_all
from service.registry.seed_file.apply import BATCH_PAUSE_SECONDS
from service.registry.seed_file.check import Mistakes
from service.registry.seed_file.entries import BadSeed
from service.registry.seed_file.report import MAX_REPORTED
from service.registry.user_changes import UserChange, read_user_change
from service.store.registry.store import RegistryStore
from service.store.sessions.families import UserEnding
from service.system.process import count_usable_cores, lower_thread_priority

LINES_PER_BATCH: Final = 3_000
MAX_LINE_BYTES: Final = 65_536
MAX_MISTAKES: Final = 10_000
"""The number of mistakes after which no more lines are read, because the texts of all could take all memory."""

Line = tuple[int, UserChange]
"""A line without mistakes, with its number. Lines are numbered from 1 on."""

PlannedUser = tuple[UserIdentity, User | None, User, UserNarrowing | None]
"""The user, the record until now or None if the user is added, the new record, and why the user's sessions end, if they
do."""


@dataclass(slots=True)
class UserImport:
    """The import of one file, which is open for reading bytes and can be read twice. Call `check` before `apply`.

    `total` is the number of users in the file that was checked.
    """

    _file: BinaryIO
    _registry: RegistryStore
    _pending_revocations: PendingRevocations
    _min_password_characters: int
    total: int = 0
    lines_per_batch: int = LINES_PER_BATCH
    batch_pause_seconds: float = BATCH_PAUSE_SECONDS

    async def check(self, on_progress: Callable[[int], object]) -> None:
        """Raise BadSeed with the mistakes in the file, if there are any."""
        mistakes, first_lines, first_ids = Mistakes(), dict[int, int](), dict[int, int]()
        for batch in self._list_batches(mistakes):
            for number, change in batch:
                # The hash of a digest has 64 bits, and takes a third of the memory of the digest.
                first = first_lines.setdefault(hash(change.identity.digest), number)
                if first != number:
                    mistakes[f"{_name_line(number, change.entry.username)}: username"] = (
                        f"is a duplicate of line {first}"
                    )
                if change.entry.id and (first := first_ids.setdefault(hash(change.entry.id), number)) != number:
                    mistakes[f"{_name_line(number, change.entry.username)}: id"] = f"is a duplicate of line {first}"
            await self._check_batch(batch, mistakes)
            self.total += len(batch)
            on_progress(self.total)
        if mistakes:
            texts = [f"{place}: {mistake}" for place, mistake in mistakes.items()]
            if len(texts) >= MAX_MISTAKES:
                texts.append(f"the check stopped after {MAX_MISTAKES} errors")
            raise BadSeed(tuple(texts), Path(self._file.name))

    async def _check_batch(self, batch: Sequence[Line], mistakes: Mistakes) -> None:
        """Note what new users lack, ids that other users have, and ids that would change."""
        looked_up = [(number, change) for number, change in batch if change.entry.id or not change.names_password]
        users = await self._registry.users.find_many([change.identity for _, change in looked_up])
        new = dict[str, tuple[str, UserIdentity]]()
        for (number, change), user in zip(looked_up, users, strict=True):
            place = _name_line(number, change.entry.username)
            if user is None and not change.names_password:
                mistakes[f"{place}: password"] = "password or password_hash is required for a new user"
            if change.changes_id(user):
                mistakes[f"{place}: id"] = "differs from the user's id, which cannot be changed"
            if user is None and change.entry.id:
                new[change.entry.id] = place, change.identity
        claims = [(user_id, identity) for user_id, (_, identity) in new.items()]
        for user_id, holder in (await self._registry.ids.map_taken(claims)).items():
            mistakes[f"{new[user_id][0]}: id"] = f"already belongs to user {holder}"

    async def apply(self, on_progress: Callable[[int, int], object], *, actor: str) -> dict[str, int]:
        """Add and update the users, and return their numbers by what was done.

        `actor` is recorded in the security events. Events are recorded of the first MAX_REPORTED users, of all whose
        sessions end, and of the totals. Raises ChangeRefused if the file is no longer the one that was checked.
        Batches before that are written.
        """
        counts = {"added": 0, "updated": 0, "unchanged": 0, "users_logged_out": 0}
        mistakes, done = Mistakes(), 0
        try:
            async for batch, planned in self._run(mistakes):
                for _, old, new, ending in planned:
                    if ending or counts["added"] + counts["updated"] < MAX_REPORTED:
                        record_change(old, new, actor=actor, reason="import")
                    counts["added" if old is None else "updated"] += 1
                    counts["users_logged_out"] += ending is not None
                counts["unchanged"] += len(batch) - len(planned)
                done += len(batch)
                on_progress(done, self.total)
        finally:
            if counts["added"] or counts["updated"]:
                record_event("users_imported", added=counts["added"], updated=counts["updated"], actor=actor)
        await self._pending_revocations.run_all()
        if mistakes or done != self.total:
            raise ChangeRefused(f"the file changed during the import after {done} users; run the import again")
        return counts

    async def _run(self, mistakes: Mistakes) -> AsyncIterator[tuple[Sequence[Line], Sequence[PlannedUser]]]:
        """Plan and write all batches before the first mistake. Yields each batch with its changes.

        The time between two writes is at least `batch_pause_seconds`, so that a change of the console gets the lock.
        """
        clock = asyncio.get_running_loop().time
        next_write = clock()
        with ThreadPoolExecutor(count_usable_cores(), "import", initializer=lower_thread_priority) as threads:
            for batch in itertools.takewhile(lambda _: not mistakes, self._list_batches(mistakes)):
                plan = partial(self._plan, batch, threads, dict[int, str]())
                planned = await plan()
                if planned:
                    await asyncio.sleep(next_write - clock())
                    async with self._registry.make_lock() as lock:
                        await self._pending_revocations.run_user_revocations(lock)  # completes renames
                        planned = await plan()
                        endings = [UserEnding.of(user, ending) for user, _, _, ending in planned if ending]
                        await self._registry.add_pending_users(endings)
                        new_users = [(new.id, user) for user, old, new, _ in planned if old is None]
                        if taken := await self._registry.ids.claim(new_users):
                            raise ChangeRefused(f"other users were given these ids meanwhile: {', '.join(taken)}")
                        await self._registry.users.put_many([each[:3] for each in planned])
                        await self._pending_revocations.run_user_revocations(lock)
                    next_write = clock() + self.batch_pause_seconds
                yield batch, planned

    def _list_batches(self, mistakes: Mistakes) -> Iterator[Sequence[Line]]:
        lines = self._read_lines(mistakes)
        while batch := list(itertools.islice(lines, self.lines_per_batch)):
            yield batch

    def _read_lines(self, mistakes: Mistakes) -> Iterator[Line]:
        """Yield each line without mistakes. Blank lines are skipped. Nothing is read after a line that is too long, a
        first line that is not JSON, or MAX_MISTAKES.

        No mistake quotes more of a line than the user name, because it may have a password.
        """
        self._file.seek(0)
        for number, text in enumerate(iter(partial(self._file.readline, MAX_LINE_BYTES + 1), b""), 1):
            place, count = f"line {number}", len(mistakes)
            if count >= MAX_MISTAKES or "line 1" in mistakes:
                return
            if len(text) > MAX_LINE_BYTES:
                mistakes[place] = f"expected one JSON object per line, of at most {MAX_LINE_BYTES} bytes"
                return
            if number == 1:
                text = text.removeprefix(BOM_UTF8)  # RFC 8259 §8.1 allows it; Excel and PowerShell write one
            if not text.strip():
                continue
            try:
                tree = parse_json(text, dict)
                place = _name_line(number, tree.get("username"))
                change = read_user_change(tree, f"{place}: ", mistakes, self._min_password_characters)
            except (ValueError, RecursionError) as error:
                mistakes[place] = f"expected one JSON object per line, in UTF-8: {error}"
                continue
            if change is not None and len(mistakes) == count:
                yield number, change

    async def _plan(
        self, lines: Sequence[Line], threads: ThreadPoolExecutor, hashes: dict[int, str]
    ) -> list[PlannedUser]:
        """Return the changes that the lines make now. `hashes` holds hashes that were made before, by line."""
        olds = await self._registry.users.find_many([change.identity for _, change in lines])
        secrets = {
            number: (change.entry.password, old.password_hash if old else None)
            for (number, change), old in zip(lines, olds, strict=True)
            if change.entry.password is not None and number not in hashes
        }
        hashes |= zip(secrets, await keep_or_hash_all(secrets.values(), threads), strict=True)
        planned = []
        for (number, change), old in zip(lines, olds, strict=True):
            place = _name_line(number, change.entry.username)
            if old is None and not change.names_password:
                raise ChangeRefused(f"{place}: the user was deleted during the import; repeat the import")
            if change.changes_id(old):
                raise ChangeRefused(f"{place}: the user was replaced during the import; repeat the import")
            new = _remember_hash(old, change.apply(old, hashes.get(number)), change.entry.password_hash)
            if new != old:
                planned.append((change.identity, old, new, find_user_narrowing(old, new) if old else None))
        return planned


def _name_line(number: int, username: object) -> str:
    """Return the place of a line, with the user name if it is a text that a user may have as a name."""
    is_name = isinstance(username, str) and 0 < len(username) <= MAX_NAME_CHARACTERS
    return f"line {number} ({username})" if is_name else f"line {number}"


def _remember_hash(old: User | None, new: User, given_hash: str | None) -> User:
    """Return the new record with a digest of the hash that the line gives.

    If an earlier import gave the same hash, the password stays as it is: a login may have replaced the hash since then,
    or the user the password. A line with the hash that the user has by now, as `export` writes it, changes neither.
    """
    if given_hash is None:
        return new
    digest = digest_hash(given_hash)
    if old is not None and old.imported_hash and (old.imported_hash == digest or old.password_hash == given_hash):
        return replace(new, password_hash=old.password_hash, upgraded_from=old.upgraded_from)
    return replace(new, imported_hash=digest)
