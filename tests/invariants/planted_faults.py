"""Faults in the Lua scripts of sessions and browser sessions, which random histories must find."""

import hashlib
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any, Final
from unittest.mock import patch

from service.redis_client.client import RedisClient
from service.redis_client.script import Script
from tests.support.servers import CHECKOUT

FAULTS: Final[Mapping[str, tuple[str, str]]] = {
    "a refresh ignores the mark of a revokeAll": (
        "now_ms >= family.expires_ms or family.created_ms <= read_mark(family.user_digest, '')",
        "now_ms >= family.expires_ms",
    ),
    "an exchange of a code ignores the mark of a revokeAll": (
        "if code_created_ms <= read_mark(user_digest, sid) then return { 'revoked' } end\n",
        "",
    ),
    "a browser session ignores the mark of a revokeAll": (
        "  if line[2] <= read_mark(line[digest_position], line[sid_position]) then return nil end\n",
        "",
    ),
    "a login that began before a revokeAll starts a session": (
        "if begun_ms <= marked_ms and (sid == '' or marked_ms <= now_ms + SET_BACK_MS) then return nil end",
        "",
    ),
    "a revokeAll does not notice that its mark was lost": (
        "if marked_ms > 0 and read_mark_at(mark_key) < marked_ms then return { 'lost' } end",
        "",
    ),
    "a revokeAll deletes the caller's session with the others": ("if members[i] ~= kept_member then", "if true then"),
    "the end of one login at a provider ends the others": (
        "return created_ms > read_mark(user_digest, of_sid)",
        "return false",
    ),
    "the end of a login at a provider sets no mark for logins without a session id": (
        "sid ~= '' and string.sub(mark_key, 1, -#sid - 1) .. '-' or nil }",
        "nil }",
    ),
    "the grace is inverted": (
        "now_ms - spent_ms >= grace_ms) then\n  local replay",
        "now_ms - spent_ms < grace_ms) then\n  local replay",
    ),
    "the grace never ends": (
        "(not spent_ms or now_ms - spent_ms >= grace_ms)",
        "not spent_ms",
    ),
    "a replay does not end the family": ("  end_family(family, family_digest, 'replayed', now_ms, replay)\n", ""),
    "the last spent generation is taken for the head": (
        "local is_replay = generation < family.head",
        "local is_replay = generation < family.head - 1",
    ),
    "a recovery does not move the head behind the recovered generation": (
        "family.head = generation + 1",
        "family.head = family.head + 1",
    ),
    "another client may refresh": (
        "if family.client_id ~= client_id then return { 'foreign', ''",
        "if false then return { 'foreign', ''",
    ),
    "another client may revoke a refresh token": ("if family.client_id ~= client_id then return { 'foreign' } end", ""),
    "another client may revoke an access token": ("if line[5] ~= client_id then return { 'foreign' } end", ""),
    "a code is accepted twice": ("redis.call('DEL', code_key)\n", ""),
    "a code is not in the user's index": (
        "add_member(consent.user_digest, 'code:' .. code_digest, expires_ms, now_ms)\n",
        "",
    ),
    "an access token never expires": (
        "redis.call('SET', key_of('access', digest), record, 'PX', string.format('%d', lives_ms))",
        "redis.call('SET', key_of('access', digest), record)",
    ),
    "an access token outlives its family": ("math.min(ttl_ms, family.expires_ms - now_ms)", "ttl_ms"),
    "the end of a family leaves its access tokens": (
        "if #keys > 0 then redis.call('DEL', unpack(keys)) end\n  forget_member",
        "forget_member",
    ),
    "the end of a family leaves its entry in the index": (
        "  forget_member(family.user_digest, 'family:' .. family_digest)\n",
        "",
    ),
    "a family does not know the access tokens of its replays": (
        "verdict, list = 'repeated', family.replay_tokens",
        "verdict, list = 'repeated', { count = 0, text = '' }",
    ),
    "a family is forgotten before its last access token": (
        "local lives_until_ms = math.max(family.expires_ms, family.access_until_ms)",
        "local lives_until_ms = family.expires_ms",
    ),
    "the maximum age does not limit a family": (
        "return max_age_ms > 0 and math.min(expires_ms, created_ms + max_age_ms) or expires_ms",
        "return expires_ms",
    ),
    "the newest session of too many ends": (
        "redis.call('ZRANGE', index_key, '0', '-1'), -most",
        "redis.call('ZREVRANGE', index_key, '0', '-1'), -most",
    ),
    "a denied request can still be allowed": (
        "if consent.answer ~= '' then return { 'answered' } end\nif (redis",
        "if (redis",
    ),
}
"""What goes wrong, with the text of one Lua file, and the text that takes its place."""


@contextmanager
def planting(fault: str) -> Iterator[None]:
    """Run all scripts with the fault. Raises AssertionError unless its text occurs exactly once in the Lua files."""
    old, new = FAULTS[fault]
    files = [file.read_text("utf-8") for file in (CHECKOUT / "service" / "store").rglob("*.lua")]
    assert sum(text.count(old) for text in files) == 1, f"the text of the planted fault does not occur once: {fault}"
    run = RedisClient._run

    @cache
    def alter(script: Script) -> Script:
        text = script.text.replace(old, new)
        return script._replace(text=text, sha1=hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())

    async def run_altered(
        client: RedisClient,
        ask: Callable[..., Awaitable[Any]],
        script: Script,
        keys: Sequence[str],
        arguments: Sequence[str | int],
    ) -> list[str | int]:
        return await run(client, ask, alter(script), keys, arguments)

    with patch.object(RedisClient, "_run", run_altered):
        yield
