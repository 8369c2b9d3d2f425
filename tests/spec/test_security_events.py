"""Security events over HTTP: each is reported once, with name, user, client, address and reason."""

import io
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import httpx2
import msgspec
import pytest
import redis

from service.app import build_app
from service.crypto.password_hashing import hash_password
from service.protocol.user import User, identify_user
from service.registry.seed_file.read import parse_seed
from service.registry.seed_file.report import MAX_REPORTED
from service.store.attempts import Counter
from service.store.keys import address_key
from service.worker import Worker
from tests.conftest import SEED, Clock, MakeSettings, http_client_for, make_code, running_lifespan
from tests.support.browser import SESSIONS, Browser, Page, authorization_url
from tests.support.clients_and_users import (
    ALICE,
    BACK_OFFICE,
    BOB,
    PHONE_APP,
    PHONE_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    name_subject,
    revoke_all,
    revoke_user,
    tokens_of,
)
from tests.support.events import events_of

ADDRESS = "203.0.113.7"
SCOPE = "realm:main role:enduser"
WRONG_ALICE = UserCredentials(ALICE.username, "a wrong password")
UNKNOWN_USER = UserCredentials("nobody@example.com", "a wrong password")

SUBJECT = identify_user("main", ALICE.username).digest
WITHOUT_RECORD = User(realm="cep", username="somebody").subject
FAMILY = "the digest of the session"

RecordedEvent = tuple[str, dict[str, Any]]


@dataclass
class Deployment:
    http: httpx2.AsyncClient
    worker: Worker
    clock: Clock
    store: redis.Redis
    json_logs: io.StringIO

    def discard_events(self) -> None:
        """Discard the events of the preparation of a test."""
        events_of(self.json_logs)

    async def log_in(self, client: OAuthClient = PHONE_APP) -> str:
        """Return a refresh token."""
        return tokens_of(await client.log_in(self.http, ALICE))["refresh_token"]

    async def rotate(self, times: int) -> list[str]:
        """Return the refresh tokens of one session, the live one last."""
        tokens = [await self.log_in()]
        for _ in range(times):
            tokens.append(tokens_of(await PHONE_APP.refresh(self.http, tokens[-1]))["refresh_token"])
        return tokens


@pytest.fixture
def deployment(
    http: httpx2.AsyncClient, worker: Worker, clock: Clock, store: redis.Redis, json_logs: io.StringIO
) -> Deployment:
    return Deployment(http, worker, clock, store, json_logs)


Action = Callable[[Deployment], Awaitable[object]]


def of_alice(client: OAuthClient | None = PHONE_APP, **more: str) -> dict[str, Any]:
    return of_client(client, username=ALICE.username, realm="main", **more)


def of_client(client: OAuthClient | None = PHONE_APP, **more: str) -> dict[str, Any]:
    named = {"client_id": client.client_id} if client else {}
    return named | {"address": ADDRESS} | more


async def password_grant(deployment: Deployment) -> None:
    deployment.discard_events()
    await PHONE_APP.log_in(deployment.http, ALICE)


async def code_exchange(deployment: Deployment) -> None:
    code = await make_code(deployment.worker)
    deployment.discard_events()
    await PHONE_APP.exchange(deployment.http, code, PHONE_CALLBACK)


async def second_exchange(deployment: Deployment) -> None:
    code = await make_code(deployment.worker)
    await PHONE_APP.exchange(deployment.http, code, PHONE_CALLBACK)
    deployment.discard_events()
    for _ in range(2):  # the second request finds nothing left to end
        await PHONE_APP.exchange(deployment.http, code, PHONE_CALLBACK)


async def exchange_of_another_client(deployment: Deployment) -> None:
    code = await make_code(deployment.worker)
    deployment.discard_events()
    await WEB_SHOP.exchange(deployment.http, code, PHONE_CALLBACK)


async def refresh(deployment: Deployment) -> None:
    refresh_token = await deployment.log_in()
    deployment.discard_events()
    await PHONE_APP.refresh(deployment.http, refresh_token)


async def repeated_refresh(deployment: Deployment) -> None:
    spent, _ = await deployment.rotate(1)
    deployment.discard_events()
    await PHONE_APP.refresh(deployment.http, spent)


async def replays_in_a_row(deployment: Deployment) -> None:
    spent = await deployment.rotate(3)
    for old in spent[:2]:
        await PHONE_APP.refresh(deployment.http, old)
    deployment.discard_events()
    await PHONE_APP.refresh(deployment.http, spent[2])


async def theft(deployment: Deployment) -> None:
    spent, head = await deployment.rotate(1)
    deployment.clock.advance(300)
    deployment.discard_events()
    for token in (spent, spent, head):
        await PHONE_APP.refresh(deployment.http, token)


async def refresh_by_another_client(deployment: Deployment) -> None:
    refresh_token = await deployment.log_in()
    deployment.discard_events()
    await WEB_SHOP.refresh(deployment.http, refresh_token)


async def refresh_after_a_failover(deployment: Deployment) -> None:
    first = await deployment.log_in()
    (key,) = deployment.store.scan_iter("family:*")
    deployment.store.copy(key, f"kept:{key}")
    second = tokens_of(await PHONE_APP.refresh(deployment.http, first))["refresh_token"]
    deployment.store.copy(f"kept:{key}", key, replace=True)
    deployment.discard_events()
    await PHONE_APP.refresh(deployment.http, second)


async def access_token_revoked(deployment: Deployment) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(deployment.http, ALICE))["access_token"]
    deployment.discard_events()
    for client in (WEB_SHOP, PHONE_APP, PHONE_APP):
        await client.revoke(deployment.http, access_token)


async def refresh_token_revoked(deployment: Deployment) -> None:
    refresh_token = await deployment.log_in()
    deployment.discard_events()
    for client in (WEB_SHOP, PHONE_APP, PHONE_APP):
        await client.revoke(deployment.http, refresh_token)


async def everything_revoked(deployment: Deployment) -> None:
    access_token = tokens_of(await PHONE_APP.log_in(deployment.http, ALICE))["access_token"]
    deployment.discard_events()
    for _ in range(2):
        await revoke_all(deployment.http, access_token)


async def everything_revoked_by_another_system(deployment: Deployment) -> None:
    for subject in (SUBJECT, WITHOUT_RECORD, "no subject"):
        await revoke_user(deployment.http, name_subject(subject))


async def login_page(deployment: Deployment) -> None:
    browser = Browser(deployment.http)
    page = await browser.open(authorization_url())
    deployment.discard_events()
    await browser.log_in(page)


async def consent_allowed_by_a_double_click(deployment: Deployment) -> None:
    browser = Browser(deployment.http)
    page = await browser.open_consent_page(authorization_url())
    deployment.discard_events()
    for _ in range(2):
        await browser.allow(page)


async def consent_denied_by_a_double_click(deployment: Deployment) -> None:
    browser = Browser(deployment.http)
    page = await browser.open_consent_page(authorization_url())
    deployment.discard_events()
    for _ in range(2):
        await browser.deny(page)


async def session_revoked_on_the_page(deployment: Deployment) -> None:
    await deployment.log_in()
    browser = Browser(deployment.http)
    page = await browser.sign_in()
    deployment.discard_events()
    for _ in range(2):
        form = next(form for form in Page(page).forms if form.action == "/sessions/end")
        await browser.send(form.action, form.fields)


async def everything_ended_on_the_page(deployment: Deployment) -> None:
    browser = Browser(deployment.http)
    page = await browser.sign_in()
    deployment.discard_events()
    await browser.submit(page, "/sessions/end-all", {})


async def signed_out(deployment: Deployment) -> None:
    browser = Browser(deployment.http)
    page = await browser.sign_in()
    deployment.discard_events()
    await browser.submit(page, "/sessions/sign-out", {})


async def wrong_password(deployment: Deployment) -> None:
    await PHONE_APP.log_in(deployment.http, WRONG_ALICE)


async def unknown_user(deployment: Deployment) -> None:
    await PHONE_APP.log_in(deployment.http, UNKNOWN_USER)


async def password_typed_as_name_on_the_page(deployment: Deployment) -> None:
    browser = Browser(deployment.http)
    await browser.log_in(await browser.open(SESSIONS), UserCredentials(ALICE.password, "x"))


async def fail_too_often(deployment: Deployment, user: UserCredentials) -> None:
    for _ in range(10):
        await PHONE_APP.log_in(deployment.http, user)
    deployment.discard_events()
    await PHONE_APP.log_in(deployment.http, user)


async def too_many_logins(deployment: Deployment) -> None:
    await fail_too_often(deployment, WRONG_ALICE)


async def too_many_unknown_logins(deployment: Deployment) -> None:
    await fail_too_often(deployment, UNKNOWN_USER)


async def role_that_the_user_lacks(deployment: Deployment) -> None:
    await PHONE_APP.log_in(deployment.http, ALICE, "realm:main role:device")


async def role_that_the_user_lacks_on_the_page(deployment: Deployment) -> None:
    browser = Browser(deployment.http)
    await browser.log_in(await browser.open(authorization_url(scope="realm:main role:device")))


async def wrong_secret(deployment: Deployment) -> None:
    await OAuthClient(WEB_SHOP.client_id, "a wrong secret").revoke(deployment.http, "x")


async def unknown_client(deployment: Deployment) -> None:
    await OAuthClient(WEB_SHOP.client_secret or "", "x").introspect(deployment.http, "x")


async def too_many_wrong_secrets(deployment: Deployment) -> None:
    counter = Counter(address_key("client", ADDRESS, WEB_SHOP.client_id), 30, 60_000)
    for _ in range(30):
        await deployment.worker.attempts.count([counter])
    await WEB_SHOP.refresh(deployment.http, "x")


ACTIONS: list[tuple[Action, list[RecordedEvent]]] = [
    (
        password_grant,
        [
            ("login_succeeded", of_alice()),
            ("tokens_issued", of_alice(scope=SCOPE, grant_type="password", session=FAMILY)),
        ],
    ),
    (code_exchange, [("tokens_issued", of_alice(scope=SCOPE, grant_type="authorization_code", session=FAMILY))]),
    (second_exchange, [("code_replayed", of_alice(session=FAMILY))]),
    (exchange_of_another_client, [("code_misused", of_alice(WEB_SHOP, reason="code_of_another_client"))]),
    (refresh, [("tokens_refreshed", of_alice(scope=SCOPE, session=FAMILY))]),
    (repeated_refresh, [("refresh_token_repeated", of_alice(scope=SCOPE, session=FAMILY))]),
    (replays_in_a_row, [("replay_pattern", of_alice(scope=SCOPE, session=FAMILY))]),
    (theft, [("refresh_token_replayed", of_alice(scope=SCOPE, reason="refresh_token_replayed", session=FAMILY))]),
    (
        refresh_by_another_client,
        [
            (
                "refresh_token_misused",
                of_alice(WEB_SHOP, scope=SCOPE, reason="refresh_token_of_another_client", session=FAMILY),
            )
        ],
    ),
    (refresh_after_a_failover, [("lost_generations_recovered", of_alice(scope=SCOPE, session=FAMILY))]),
    (access_token_revoked, [("access_token_revoked", of_alice())]),
    (refresh_token_revoked, [("refresh_token_revoked", of_alice(session=FAMILY))]),
    (everything_revoked, [("revoke_all", of_alice(None, reason="bearer"))]),
    (
        everything_revoked_by_another_system,
        [
            ("revoke_all", of_alice(BACK_OFFICE, reason="client")),
            ("nothing_revoked", of_client(BACK_OFFICE, sub=WITHOUT_RECORD, reason="client")),
        ],
    ),
    (login_page, [("login_succeeded", of_alice())]),
    (consent_allowed_by_a_double_click, [("code_issued", of_alice(scope=SCOPE))]),
    (consent_denied_by_a_double_click, [("consent_denied", of_alice(scope=SCOPE))]),
    (session_revoked_on_the_page, [("session_revoked", of_alice(session=FAMILY))]),
    (everything_ended_on_the_page, [("revoke_all", of_alice(None, reason="sessions_page"))]),
    (signed_out, [("signed_out", of_alice(None))]),
    (wrong_password, [("login_failed", of_alice(reason="password_wrong"))]),
    (unknown_user, [("login_failed", of_client(realm="main", reason="user_unknown"))]),
    (password_typed_as_name_on_the_page, [("login_failed", of_client(None, realm="main", reason="user_unknown"))]),
    (too_many_logins, [("login_throttled", of_alice(reason="login_throttled"))]),
    (too_many_unknown_logins, [("login_throttled", of_client(realm="main", reason="login_throttled"))]),
    (
        role_that_the_user_lacks,
        [("login_succeeded", of_alice()), ("login_failed", of_alice(reason="scope_beyond_user"))],
    ),
    (
        role_that_the_user_lacks_on_the_page,
        [("login_succeeded", of_alice()), ("login_failed", of_alice(reason="user_without_role"))],
    ),
    (wrong_secret, [("client_authentication_failed", of_client(WEB_SHOP, reason="client_secret_wrong"))]),
    (unknown_client, [("client_authentication_failed", of_client(None, reason="client_unknown"))]),
    (too_many_wrong_secrets, [("client_throttled", of_client(WEB_SHOP))]),
]


@pytest.mark.clause("spec-6-events", "6819-5.1.3-event-log", "decided-typed-names-not-recorded")
@pytest.mark.parametrize(("action", "expected"), ACTIONS, ids=[action.__name__ for action, _ in ACTIONS])
async def test_security_event_is_logged_once_with_user_and_address(
    action: Action, expected: list[RecordedEvent], deployment: Deployment
) -> None:
    await action(deployment)
    events = events_of(deployment.json_logs)
    families = {str(key).rpartition(":")[2] for key in deployment.store.scan_iter("family:*")}

    for _, fields in events:
        family = fields.get("session", "")
        assert not family or not families or family in families
        fields |= {"session": FAMILY} if family else {}
    assert events == expected


async def test_shutdown_writes_the_waiting_events(
    make_settings: MakeSettings, clock: Clock, registry: None, worker: Worker
) -> None:
    app = build_app(Worker(make_settings(), lambda: clock.offset_ms))
    async with running_lifespan(app), http_client_for(app) as http:
        tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
        await PHONE_APP.log_in(http, WRONG_ALICE)
        await PHONE_APP.revoke(http, tokens["refresh_token"])
    entries = [msgspec.json.decode(entry.text) for entry in await worker.event_stream.read()]

    assert {entry["event"] for entry in entries} == {"login_failed", "refresh_token_revoked"}
    sub = identify_user("main", ALICE.username).digest
    assert {"event": "login_failed"} | of_alice(reason="password_wrong", sub=sub) in entries


NEW_USER = '\n  - {{username: {}, roles: [enduser], password_hash: "' + hash_password("password") + '"}}\n'


async def test_seed_reports_each_entry(worker: Worker, json_logs: io.StringIO) -> None:
    """A new secret, a new password and `disabled` have events of their own, beside which nothing was updated."""
    text = SEED.read_text()
    edited = parse_seed(
        text.replace("client_secret: web-shop-secret", "client_secret: another-web-shop-secret")
        .replace("password: hunter2 hunter2", "disabled: true\n    password: hunter3 hunter3")
        .replace("client_name: Phone App", "client_name: Another name\n    disabled: true")
        .encode()
    )
    worker.pending_revocations.scan_delay_seconds = 0  # no request is under way
    await worker.seeding.apply(edited, actor="root")
    recorded = [(name, fields.get("client_id") or fields.get("username")) for name, fields in events_of(json_logs)]

    assert recorded == [
        ("client_disabled", PHONE_APP.client_id),
        ("client_updated", PHONE_APP.client_id),
        ("client_secret_rotated", WEB_SHOP.client_id),
        ("user_password_set", BOB.username),
        ("user_disabled", BOB.username),
        ("seed_applied", None),
    ]
    await worker.seeding.apply(parse_seed(text.encode()), actor="root", force=True)
    forced = {name: fields.get("reason") for name, fields in events_of(json_logs)}
    assert forced["user_enabled"] == forced["client_enabled"] == "seed_forced"


@pytest.mark.clause("decided-vital-events")
async def test_large_seed_names_each_user_whose_rights_end(worker: Worker, json_logs: io.StringIO) -> None:
    names = [f"user{number}@example.com" for number in range(MAX_REPORTED + 5)]
    text = SEED.read_text() + "".join(map(NEW_USER.format, names))
    await worker.seeding.apply(parse_seed(text.encode()), actor="root")
    assert [name for name, _ in events_of(json_logs)].count("user_created") <= MAX_REPORTED
    disabled = parse_seed(text.replace("{username", "{disabled: true, username").encode())
    await worker.seeding.apply(disabled, actor="root")
    recorded = events_of(json_logs)

    assert [fields["username"] for name, fields in recorded if name == "user_disabled"] == names
