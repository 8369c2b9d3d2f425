"""One scenario for each Lua script, which makes the script return each of its words."""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from service.crypto.keyring import Keyring, make_access_token
from service.protocol.client import Client
from service.protocol.provider import IdentityProvider
from service.protocol.user import User
from service.redis_client.client import FENCE_LIFETIME_MS
from service.redis_client.script import OWN_SCRIPTS
from service.store.attempts import Counter
from service.store.client import StoreClient, load_script
from service.store.keys import family_key, fence_key, registry_key
from service.store.reports.readiness import PROBE_TTL_MS
from service.store.secret_keys import SecretKeys
from service.store.sessions.revocations import MIN_MARK_LIFETIME_MS, Revocations
from tests.lua.comparing import ComparingClient
from tests.lua.store_objects import CHANGED_USER, INDEX, MARK, REVOKED, SHARD, SUBJECT, USER, Page, StoreObjects
from tests.store.sessions import DEFAULT_LIFETIMES

GRACE_MS: Final = DEFAULT_LIFETIMES.refresh_grace_ms

ONE: Final = Counter("login:{abc}:one", 2, 60_000)
TWO: Final = Counter("login:{abc}:two", 50, 3_600_000)


async def start_family(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    assert await objects.start() is not None
    comparing.real.set(MARK, await comparing.read_clock_ms() + 5_000, px=60_000)
    assert await objects.start() is not None
    assert await objects.start(CHANGED_USER) is None
    assert await objects.start(begun_ms=1) is None


async def start_browser_session(comparing: ComparingClient) -> None:
    objects, page, next_page = StoreObjects(comparing), Page(), Page()
    assert await objects.sign_in(page)
    assert await objects.sign_in(next_page, former=page.browser)
    assert not await objects.sign_in(Page(), CHANGED_USER)
    await run_revoke_all(comparing, 0)
    assert not await objects.sign_in(Page(), begun_ms=1)


async def end_browser_session(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    page = await objects.open()
    for _ in range(2):
        await objects.browser_sessions.end(page.browser)


async def hold_consent(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    page = await objects.open()
    comparing.offset_ms += 3_000_000
    assert await objects.hold(Page(page.browser))
    await objects.browser_sessions.end(page.browser)
    assert not await objects.hold(page)


async def allow_consent(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    page = await objects.open()
    assert await objects.allow(page, CHANGED_USER) == "changed"
    assert [await objects.allow(page) for _ in range(2)] == ["issued", "repeated"]
    await objects.redeem(page.code_name)
    assert await objects.allow(page) == "answered"
    await objects.browser_sessions.end(page.browser)
    assert await objects.allow(page) == "signed_out"
    assert await objects.allow(Page()) == "unknown"


async def deny_consent(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    page = await objects.open()
    assert [await objects.deny(page) for _ in range(2)] == ["denied", "repeated"]
    allowed = await objects.open()
    await objects.allow(allowed)
    assert await objects.deny(allowed) == "answered"
    await objects.browser_sessions.end(page.browser)
    assert [await objects.deny(page), await objects.deny(Page())] == ["signed_out", "unknown"]


async def redeem_authorization_code(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    name = await objects.issue_code()
    assert [await objects.redeem(name) for _ in range(2)] == [600_000, "repeated"]
    late = await objects.issue_code()
    comparing.offset_ms += DEFAULT_LIFETIMES.code_ms
    assert await objects.redeem(late) == "unknown"
    covered = await objects.issue_code()
    await run_revoke_all(comparing, 0)
    assert await objects.redeem(covered) == "revoked"


async def spend_refresh_token(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    grant = await objects.must_start()
    refusals = [
        await objects.spend(grant, 1, client_id="another-app"),
        await objects.spend(grant, 1, allowed_scope=""),
        await objects.spend(grant, 1, wanted_scope="role:device"),
    ]
    assert [each.verdict for each in refusals] == ["foreign", "withdrawn", "beyond"]
    with_secret = await objects.must_start(secret_used=True)
    assert (await objects.spend(with_secret, 1)).verdict == "without_secret"
    verdicts = [
        (await objects.spend(grant, generation, wanted_scope="role:organisation")).verdict for generation in (1, 1)
    ]
    assert [*verdicts, (await objects.spend(grant, 9)).verdict] == ["rotated", "repeated", "recovered"]
    comparing.offset_ms += GRACE_MS
    assert [(await objects.spend(grant, 1)).verdict for _ in range(2)] == ["replayed", "unknown"]
    brief = await objects.must_start(access_token_ttl=0.5, refresh_token_ttl=90, refresh_grace=0)
    assert (await objects.spend(brief, 1, access_token_ttl=60, refresh_token_ttl=3_600)).verdict == "rotated"
    comparing.offset_ms += 100_000
    assert [(await objects.spend(brief, 2, session_max_age=100)).verdict for _ in range(2)] == ["unknown"] * 2


async def end_family(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    grant = await objects.must_start()
    for generation in (1, 1, 2):
        await objects.spend(grant, generation)
    digest = grant.first.family_digest
    ended = [
        await objects.families.end(SHARD, digest, client_id=client_id, reason="revoked")
        for client_id in ("another-app", "phone-app", "phone-app")
    ]
    assert ended == [None, User(realm=USER.realm, username=USER.username, id=USER.subject), None]


async def revoke_access_token(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    [access_token] = (await objects.must_start()).access_tokens
    tries = [(access_token, "another-app"), (access_token, "phone-app"), (make_access_token(SHARD), "phone-app")]
    revoked = [await objects.access_tokens.revoke(token, client_id=client_id) for token, client_id in tries]
    assert revoked == [None, User(realm=USER.realm, username=USER.username, id=USER.subject), None]


async def revoke_all(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    assert (await run_revoke_all(comparing, 0))[0] == "nothing"
    grant = await objects.must_start()
    await objects.open()
    kept_member = f"family:{grant.first.family_digest}"
    assert await run_revoke_all(comparing, 0, kept_member) == ["more", await read_mark(comparing)]
    await objects.must_start()
    assert await run_revoke_all(comparing, 0) == ["more", 0]
    assert (await run_revoke_all(comparing, 500))[0] == "finished"
    kept, earlier = await objects.must_start(), await objects.must_start()
    for generation in (1, 1, 2):
        await objects.spend(earlier, generation)
    await objects.issue_code()
    await objects.open()
    revocations = Revocations(comparing, max_keys=2)
    until_ms = await comparing.read_clock_ms()
    comparing.offset_ms += 5_000
    await objects.must_start()
    assert (await revocations.revoke_all(SHARD, SUBJECT, until_ms=until_ms)).was_alive
    assert (await revocations.revoke_all(SHARD, SUBJECT, kept_family=kept.first.family_digest)).was_alive
    assert (await run_revoke_all(comparing, 2, marked_ms=await comparing.read_clock_ms() + 5_000))[0] == "lost"
    broken = await objects.must_start()
    comparing.real.set(family_key(SHARD, broken.first.family_digest), "of another version", px=60_000)
    assert (await run_revoke_all(comparing, 2))[0] == "unreadable"


async def reserve_attempt(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    for _ in range(2):
        await objects.attempts.reserve([ONE, TWO])
    assert await reserve(comparing, ONE, TWO) == "busy"
    await objects.attempts.settle([ONE, TWO], [ONE, TWO], passed=False)
    assert await reserve(comparing, ONE, TWO) == "exhausted"


async def reserve(store_client: StoreClient, *counters: Counter) -> str:
    """Run the script once. `Attempts.reserve` repeats it while checks are pending."""
    limits = [number for counter in counters for number in (counter.most, counter.window_ms)]
    keys = [counter.key for counter in counters]
    return str((await store_client.run(load_script("reserve_attempt"), counters=keys, limits=limits))[0])


async def settle_attempt(comparing: ComparingClient) -> None:
    objects = StoreObjects(comparing)
    for passed in (True, False, True, False):
        await objects.attempts.reserve([TWO])
        await objects.attempts.settle([TWO], passed=passed)
    await objects.attempts.reserve([ONE, TWO])
    await objects.attempts.reserve([TWO])
    await objects.attempts.settle([ONE, TWO], passed=False)


CLIENT: Final = Client(
    client_id="c",
    grant_types=("password", "refresh_token"),
    redirect_uris=("https://a.example/callback", "https://b.example/callback"),
)


async def put_client(comparing: ComparingClient) -> None:
    registry = StoreObjects(comparing).registry
    narrowed = msgspec.structs.replace(CLIENT, grant_types=("password",), redirect_uris=CLIENT.redirect_uris[:1])
    await registry.clients.put(CLIENT)
    await registry.clients.put(narrowed, CLIENT)
    await registry.clients.put(Client(client_id=CLIENT.client_id), narrowed, applied="{}")


async def delete_client(comparing: ComparingClient) -> None:
    registry = StoreObjects(comparing).registry
    for is_forgotten in (False, True):
        await registry.clients.put(CLIENT, applied="{}")
        await registry.clients.delete(CLIENT, is_forgotten=is_forgotten)


async def put_realm(comparing: ComparingClient) -> None:
    registry = StoreObjects(comparing).registry
    await registry.realms.put("cep", IdentityProvider(client_id="us"), applied="{}")
    await registry.realms.put("cep", None, ends_sessions=True)


async def put_user(comparing: ComparingClient) -> None:
    registry = StoreObjects(comparing).registry
    await registry.users.put(USER, "{}")
    await registry.users.put(CHANGED_USER, None)


async def remove_user(comparing: ComparingClient) -> None:
    registry = StoreObjects(comparing).registry
    await registry.users.put(USER, "{}")
    await registry.users.remove(USER.identity)


async def replace_password_hash(comparing: ComparingClient) -> None:
    registry = StoreObjects(comparing).registry
    await registry.users.put(USER)
    user = await registry.users.find(USER.identity)
    assert user is not None
    for _ in range(2):
        await registry.users.replace_password_hash(user, "stronger", "digest")
    await registry.users.replace_password_hash(CHANGED_USER, "stronger", "digest")


async def probe_store(comparing: ComparingClient) -> None:
    for _ in range(2):
        await probe(comparing)


async def probe(store_client: StoreClient) -> None:
    await store_client.run(load_script("reports/probe_store"), probe_key=registry_key("probe"), ttl_ms=PROBE_TTL_MS)


async def register_secret_keys(comparing: ComparingClient) -> None:
    registered = [await SecretKeys(comparing, Keyring([key * 32])).register() for key in (b"1", b"2")]
    assert registered == [True, False]


async def append_events(comparing: ComparingClient) -> None:
    events = StoreObjects(comparing).events
    await events.append([b'{"a": 1}', b'{"b": "\xc3\xa9"}'], [b"{}"], [b"{}"])
    await events.append([], [], [b'{"c": 3}'])


async def keep_lock(comparing: ComparingClient) -> None:
    await comparing.write("SET", registry_key("lock"), "a", "PX", 1000)
    verdicts = [
        await keep(comparing, holder, lifetime) for holder, lifetime in (("b", 1), ("a", 1000), ("a", 0), ("a", 0))
    ]
    assert verdicts == ["lost", "kept", "kept", "lost"]


async def keep(store_client: StoreClient, holder: str, lifetime_ms: int) -> str:
    key, keep_lock = registry_key("lock"), OWN_SCRIPTS["keep_lock"]
    return str((await store_client.run(keep_lock, lock_key=key, holder=holder, lifetime_ms=lifetime_ms))[0])


async def leave_fence(comparing: ComparingClient) -> None:
    for _ in range(2):
        await fence(comparing)


async def fence(store_client: StoreClient) -> None:
    await store_client.run(OWN_SCRIPTS["leave_fence"], fence_key=fence_key(SHARD), lifetime_ms=FENCE_LIFETIME_MS)


async def run_revoke_all(
    store_client: StoreClient, most_keys: int, kept_member: str = "", marked_ms: int = 0
) -> list[str | int]:
    """Run one step, as a revokeAll that is interrupted after it."""
    return await store_client.run(
        load_script("sessions/revoke_all"),
        user_keys=[MARK, INDEX, REVOKED],
        most_keys=most_keys,
        kept_member=kept_member,
        until_ms=0,
        least_lifetime_ms=MIN_MARK_LIFETIME_MS,
        sid="",
        reason="revoke_all",
        marks=[marked_ms],
    )


async def read_mark(store_client: StoreClient) -> int:
    return int(await store_client.read("GET", MARK))


SCENARIOS: Final[dict[str, Callable[[ComparingClient], Awaitable[None]]]] = {
    scenario.__name__: scenario
    for scenario in (
        *(start_family, start_browser_session, end_browser_session, hold_consent, allow_consent, deny_consent),
        *(redeem_authorization_code, spend_refresh_token, end_family, revoke_access_token, revoke_all),
        *(reserve_attempt, settle_attempt, put_client, delete_client, put_realm, put_user, remove_user),
        replace_password_hash,
        *(probe_store, register_secret_keys, append_events, keep_lock, leave_fence),
    )
}
"""The scenarios by the names of their scripts."""
