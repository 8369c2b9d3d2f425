"""Faults in the Lua scripts of sessions and pages, which random histories must find."""

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from unittest.mock import patch

from service.redis_client.client import RedisClient
from service.redis_client.script import Script
from tests.support.servers import CHECKOUT

FAULTS: Final[Mapping[str, tuple[str, str]]] = {
    "a refresh ignores a revokeAll": (" or family.created_ms <= read_mark(family.user_digest, '') then", " then"),
    "an exchange ignores a revokeAll": ("if code_created_ms <= read_mark(user_digest, sid) then", "if false then"),
    "a page ignores a revokeAll": ("if line[2] <= read_mark(", "if false and line[2] <= read_mark("),
    "a login ignores that a revokeAll overtook it": ("if begun_ms <= marked_ms and", "if false and"),
    "a revokeAll ignores that its mark is lost": ("return { 'lost' }", "marked_ms = marked_ms"),
    "a revokeAll deletes the caller's session early": ("if members[i] ~= kept_member then", "if true then"),
    "the end of one login at a provider ends all": ("created_ms > read_mark(user_digest, of_sid)", "false"),
    "the grace is inverted": ("now_ms - spent_ms >= grace_ms) then", "now_ms - spent_ms < grace_ms) then"),
    "the grace never ends": ("(not spent_ms or now_ms - spent_ms >= grace_ms)", "not spent_ms"),
    "a replay does not end the family": ("end_family(family, family_digest, 'replayed', now_ms, replay)", ""),
    "the last spent token is taken for the head": ("is_replay = generation <", "is_replay = generation + 1 <"),
    "a recovery moves the head by one": ("family.head = generation + 1", "family.head = family.head + 1"),
    "another client may refresh": ("then return { 'foreign', ''", "and false then return { 'foreign', ''"),
    "another client may revoke an access token": ("if line[5] ~= client_id then", "if false then"),
    "a code is accepted twice": ("redis.call('DEL', code_key)", ""),
    "a code is not in the index": ("add_member(consent.user_digest, 'code:' .. code_digest, expires_ms, now_ms)", ""),
    "an access token has no TTL": ("record, 'PX', string.format('%d', lives_ms))", "record)"),
    "an access token outlives its family": ("math.min(ttl_ms, family.expires_ms - now_ms)", "ttl_ms"),
    "the end of a family leaves its access tokens": ("DEL', unpack(keys)) end\n  forget", "TIME') end\n  forget"),
    "the end of a family leaves its entry": ("forget_member(family.user_digest, 'family:' .. family_digest)", ""),
    "a family forgets its replays' tokens": (
        "'repeated', family.replay_tokens",
        "'repeated', { count = 0, text = '' }",
    ),
    "a family is deleted too early": ("math.max(family.expires_ms, family.access_until_ms)", "family.expires_ms"),
    "the maximum age limits nothing": ("math.min(expires_ms, created_ms + max_age_ms)", "expires_ms"),
    "the newest of too many sessions ends": ("('ZRANGE', index_key, '0'", "('ZREVRANGE', index_key, '0'"),
}
"""What goes wrong, with the text of one Lua file, and the text that takes its place."""


@contextmanager
def planting(fault: str) -> Iterator[None]:
    """Run all scripts with the fault. Raises AssertionError unless its text occurs exactly once in the Lua files."""
    old, new = FAULTS[fault]
    files = [file.read_text("utf-8") for file in (CHECKOUT / "service" / "store").rglob("*.lua")]
    assert sum(text.count(old) for text in files) == 1, f"the text of the planted fault must occur once: {fault}"
    run = RedisClient._run

    @cache
    def alter(script: Script) -> Script:
        text = script.text.replace(old, new)
        return script._replace(text=text, sha1=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    async def run_altered(client: RedisClient, ask: Any, script: Script, *parts: Any) -> list[str | int]:
        return await run(client, ask, alter(script), *parts)

    with patch.object(RedisClient, "_run", run_altered):
        yield
