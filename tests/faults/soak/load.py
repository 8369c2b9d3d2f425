"""A load of mixed histories: users log in, refresh and log out, and some misbehave.

It runs in a thread, on the instances in turn, and records every request. After a 503 or no answer it repeats a request
with the same token, as a client should. An exchange of a code is repeated only where the session may end.
"""

from __future__ import annotations

import asyncio
import json
import random
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from http.cookiejar import DefaultCookiePolicy
from typing import Any, Final

import httpx2

from tests.faults.soak.checker import HASHING_SECONDS
from tests.faults.soak.clock import pause, read_clock
from tests.faults.soak.history import UNKNOWN_OUTCOMES, Call, History, Kind, Stall
from tests.support.browser import Browser, authorization_response, authorization_url, is_consent_page, is_login_page
from tests.support.clients_and_users import (
    AUDITOR,
    INTROSPECT,
    PHONE_APP,
    PHONE_CALLBACK,
    REVOKE,
    REVOKE_ALL,
    SHOP_CALLBACK,
    TOKEN,
    VERIFY,
    WEB_SHOP,
    OAuthClient,
    UserCredentials,
    bearer,
    login_form,
)
from tests.support.waiting import MAX_WAIT_SECONDS

APPS: Final = (PHONE_APP, WEB_SHOP)
CALLBACKS: Final = {PHONE_APP.client_id: PHONE_CALLBACK, WEB_SHOP.client_id: SHOP_CALLBACK}
AGAIN_SECONDS: Final = 0.15
STEADY: Final = 40
HEARTBEAT_SECONDS: Final = 0.05
LATE_BEAT_SECONDS: Final = 0.1
NO_COOKIES: Final = DefaultCookiePolicy(allowed_domains=())
"""Browsers have their own; all of them share the connections."""


@dataclass
class Session:
    """A session as its client keeps it, with `refresh_tokens` in the order of generations.

    `is_over` says that the client knows of its end. `spent_at` is the earliest time at which the newest token was asked
    for.
    """

    device: Device
    app: OAuthClient
    access_tokens: list[str]
    refresh_tokens: list[str]
    is_over: bool = False
    spent_at: float = float("-inf")

    @property
    def older(self) -> str:
        """Return a token that was spent a moment ago, or the newest one."""
        is_fresh = read_clock() - self.spent_at < self.device.load.grace_seconds / 2
        return self.refresh_tokens[-2:][0] if is_fresh else self.refresh_tokens[-1]


class Device:
    """A browser or phone with an address of its own.

    `only` is the instance of all its requests, or None. With it each request has a new connection, because the workers
    of an instance share the connections.
    """

    def __init__(self, load: Load, credentials: UserCredentials, rng: random.Random, only: int | None = None) -> None:
        self.load = load
        self.only = only
        self.person = credentials
        self.rng = rng
        self.address = f"198.18.{rng.randrange(256)}.{rng.randrange(1, 255)}"
        self._browser = Browser(httpx2.AsyncClient(transport=_PageTransport(self), base_url="http://127.0.0.1:8000"))

    async def send(
        self, kind: Kind, path: str, client: OAuthClient, sent: str = "", *, form: Mapping[str, str] | None = None
    ) -> Call:
        """Send a request to an instance: a form, or a GET or POST with the bearer token."""
        await self.load.wait_for_turn()
        instance = self.rng.randrange(len(self.load.clients)) if self.only is None else self.only
        http = self.load.clients[instance]
        started, response, trouble = read_clock(), None, ""
        headers = {"X-Forwarded-For": self.address} | ({} if form is not None else bearer(sent))
        headers |= {} if self.only is None else {"Connection": "close"}
        method = "GET" if kind == "verify" else "POST"
        timeout = self.load.give_up_seconds + (HASHING_SECONDS if kind == "login" else 0)
        try:
            body = None if form is None else {**client.credentials, **form}
            response = await http.request(method, path, data=body, headers=headers, timeout=timeout)
        except httpx2.HTTPError as error:
            trouble = type(error).__name__
        ended = read_clock()
        told = {} if response is None else _read_answer(response)
        call = Call(
            kind=kind,
            user=self.person.username,
            client_id=client.client_id,
            instance=instance,
            started=started,
            ended=ended,
            sent=sent,
            trouble=trouble,
            **told,
        )
        self.load.note(call)
        return call

    async def grant(self, kind: Kind, client: OAuthClient, sent: str, **form: str) -> Call:
        return await self.send(kind, TOKEN, client, sent, form=form)

    async def log_in(self, client: OAuthClient) -> Session | None:
        """Log in. Returns None if the outcome is unknown, since then the tokens are lost."""
        call = await self.send("login", TOKEN, client, form=login_form(self.person))
        return self.keep(call, client)

    def keep(self, call: Call, client: OAuthClient) -> Session | None:
        if call.status != 200:
            return None
        session = Session(self, client, [call.access_token], [call.refresh_token])
        self.load.sessions.append(session)
        return session

    async def get_code(self, client: OAuthClient) -> str | None:
        """Get a code from the pages. Returns None if they led to none."""
        callback = CALLBACKS[client.client_id]
        try:
            page = await self._browser.open(authorization_url(client, callback))
            if is_login_page(page):
                page = await self._browser.log_in(page, self.person)
            if not is_consent_page(page):
                return None
            started = read_clock()
            answer = await self._browser.allow(page)
        except httpx2.HTTPError:
            return None
        location = answer.headers.get("location", "")
        if not location.startswith(callback) or "code=" not in location:
            return None
        code = authorization_response(answer, callback)["code"]
        call = Call(
            kind="code",
            user=self.person.username,
            client_id=client.client_id,
            instance=answer.extensions["instance"],
            started=started,
            ended=read_clock(),
            status=answer.status_code,
            code=code,
        )
        self.load.note(call)
        return code

    async def exchange(self, client: OAuthClient, code: str, redirect_uri: str | None = None) -> Call:
        form = {"grant_type": "authorization_code", "redirect_uri": redirect_uri or CALLBACKS[client.client_id]}
        return await self.grant("exchange", client, code, code=code, **form)

    async def refresh(
        self, session: Session, refresh_token: str | None = None, client: OAuthClient | None = None
    ) -> Call:
        """Refresh with the newest generation, and keep a newer one that comes back."""
        sent = refresh_token or session.refresh_tokens[-1]
        form = {"grant_type": "refresh_token", "refresh_token": sent}
        call = await self.grant("refresh", client or session.app, sent, **form)
        if call.status == 200 and client is None:
            session.access_tokens.append(call.access_token)
            if call.refresh_token not in session.refresh_tokens:
                session.refresh_tokens.append(call.refresh_token)
                session.spent_at = call.started
        elif call.status == 400 and client is None:
            session.is_over = True
        return call

    async def verify(self, session: Session, access_token: str) -> Call:
        return await self.send("verify", VERIFY, session.app, access_token)

    async def introspect(self, token: str) -> Call:
        return await self.send("introspect", INTROSPECT, AUDITOR, token, form={"token": token})

    async def revoke(self, client: OAuthClient, token: str) -> Call:
        return await self.send("revoke", REVOKE, client, token, form={"token": token})

    async def revoke_all(self, session: Session) -> Call:
        return await self.send("revoke_all", REVOKE_ALL, session.app, session.access_tokens[-1])

    async def until_answered(self, ask_once: Callable[[], Awaitable[Call]]) -> Call:
        """Repeats while the outcome is unknown, and ends where it stays so although all faults are over."""
        call, began = await ask_once(), read_clock()
        while call.status in UNKNOWN_OUTCOMES:
            if read_clock() >= max(began, self.load.ending_since) + MAX_WAIT_SECONDS:
                self.load.history.unanswered.append(call)
                break
            await pause(AGAIN_SECONDS)
            call = await ask_once()
        return call

    async def pause(self, longest_seconds: float = 1.0) -> None:
        await pause(self.rng.uniform(0, longest_seconds))


def _read_answer(response: httpx2.Response) -> dict[str, Any]:
    """The fields of a call that the answer fills in."""
    body: Any = {}
    if response.headers.get("content-type", "").startswith("application/json") and response.content:
        body = json.loads(response.content)
    username = body.get("username", "") if body.get("active") else response.headers.get("x-auth-user", "")
    return {
        "status": response.status_code,
        "error": body.get("error", ""),
        "access_token": body.get("access_token", ""),
        "refresh_token": body.get("refresh_token", ""),
        "expires_in": float(body.get("expires_in", 0)),
        "named": username,
        "has_retry_after": "retry-after" in response.headers,
    }


class _PageTransport(httpx2.AsyncBaseTransport):
    """Sends what a browser asks for to any of the instances, and writes it down."""

    def __init__(self, device: Device) -> None:
        self._device = device

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        load, credentials = self._device.load, self._device.person
        await load.wait_for_turn()
        instance = self._device.rng.randrange(len(load.clients))
        http = load.clients[instance]
        own = {name: value for name, value in request.headers.items() if name not in ("host", "content-length")}
        started, status, trouble, again = read_clock(), 0, "", False
        try:
            response = await http.request(
                request.method,
                str(request.url.raw_path, "ascii"),
                content=await request.aread(),
                headers=own | {"X-Forwarded-For": self._device.address},
                timeout=load.give_up_seconds + HASHING_SECONDS,
            )
            status, again = response.status_code, "retry-after" in response.headers
        except httpx2.HTTPError as error:
            trouble = type(error).__name__
            raise
        finally:
            call = Call(
                kind="page",
                user=credentials.username,
                client_id="",
                instance=instance,
                started=started,
                ended=read_clock(),
                status=status,
                trouble=trouble,
                has_retry_after=again,
            )
            load.note(call)
        kept = [(name, value) for name, value in response.headers.multi_items() if name != "content-encoding"]
        return httpx2.Response(
            response.status_code, headers=kept, content=response.content, extensions={"instance": instance}
        )


Operations = Callable[[Device], Awaitable[None]]


async def live_with_a_session(device: Device) -> None:
    """A client that refreshes and asks, sometimes in two tabs or once more with an older token; honest in all of it."""
    session = await device.log_in(device.rng.choice(APPS))
    for _ in range(device.rng.randint(5, 25)):
        if session is None or session.is_over or device.load.is_ending:
            return
        await _do_something(device, session)
        await device.pause()
    if session is not None and device.rng.random() < 0.3:
        await _log_out(device, session)


async def _do_something(device: Device, session: Session) -> None:
    rng = device.rng
    match rng.choices(("refresh", "tabs", "replay", "verify", "introspect", "foreign"), (5, 2, 2, 5, 3, 1))[0]:
        case "refresh":
            await device.until_answered(lambda: device.refresh(session))
        case "tabs":
            sent = session.refresh_tokens[-1]
            tabs = (device.until_answered(lambda: device.refresh(session, sent)) for _ in range(rng.randint(2, 4)))
            await asyncio.gather(*tabs)
        case "replay":
            await device.refresh(session, session.older)
        case "verify":
            await device.verify(session, rng.choice(session.access_tokens[-3:]))
        case "introspect":
            await device.introspect(rng.choice((session.access_tokens[-1], *session.refresh_tokens[-2:])))
        case "foreign":
            other = APPS[1 - APPS.index(session.app)]
            await device.refresh(session, client=other)
            await device.revoke(other, rng.choice((session.access_tokens[-1], session.refresh_tokens[-1])))


async def _log_out(device: Device, session: Session) -> None:
    """Revoke an access token and then the session, and use the dead tokens."""
    token = device.rng.choice(session.access_tokens[-3:])
    await device.until_answered(lambda: device.revoke(session.app, token))
    await device.verify(session, token)
    await device.verify(session, session.access_tokens[-1])
    older = device.rng.choice(session.refresh_tokens[-3:])
    await device.until_answered(lambda: device.revoke(session.app, older))
    session.is_over = True
    asked = (device.verify(session, session.access_tokens[-1]), device.refresh(session))
    await asyncio.gather(*asked)


async def log_in_and_out(device: Device) -> None:
    """Log out while a refresh is under way."""
    session = await device.log_in(device.rng.choice(APPS))
    if session is None:
        return
    await device.until_answered(lambda: device.refresh(session))
    await device.pause(0.5)
    await asyncio.gather(device.refresh(session), _log_out(device, session))


async def use_a_code(device: Device) -> None:
    """A session by the code flow; an exchange whose answer was lost is given up, or repeated at one's own risk."""
    client = device.rng.choice(APPS)
    code = await device.get_code(client)
    if code is None:
        return
    if device.rng.random() < 0.3:
        other = APPS[1 - APPS.index(client)]
        await device.exchange(other, code, CALLBACKS[client.client_id])
    call = await device.exchange(client, code)
    if call.status in UNKNOWN_OUTCOMES and device.rng.random() < 0.5:
        call = await device.exchange(client, code)
    session = device.keep(call, client)
    for _ in range(device.rng.randint(0, 8)):
        if session is None or session.is_over or device.load.is_ending:
            return
        await _do_something(device, session)
        await device.pause()


async def contend_for_a_code(device: Device) -> None:
    """Exchange a code several times, at once or in turn. At most one wins, and a second one ends its session."""
    app = device.rng.choice(APPS)
    code = await device.get_code(app)
    if code is None:
        return
    device.load.history.misused.add(code)
    if device.rng.random() < 0.5:
        calls = await asyncio.gather(*(device.exchange(app, code) for _ in range(device.rng.randint(2, 6))))
    else:
        first = await device.exchange(app, code)
        calls = [first, await device.until_answered(lambda: device.exchange(app, code))]
    for session in [device.keep(call, app) for call in calls]:
        if session is not None:
            await device.refresh(session)
            await device.verify(session, session.access_tokens[0])


async def steal(device: Device) -> None:
    """A generation that comes back after the grace ends the session for everybody."""
    session = await device.log_in(device.rng.choice(APPS))
    if session is None:
        return
    stolen = session.refresh_tokens[0]
    device.load.history.misused.add(stolen)
    await device.until_answered(lambda: device.refresh(session))
    late = read_clock() + device.load.grace_seconds + device.rng.uniform(0.2, 2)
    while read_clock() < late:
        if device.load.is_ending:
            return
        await pause(AGAIN_SECONDS)
    await device.until_answered(lambda: device.refresh(session, stolen))
    await device.refresh(session)
    await device.verify(session, session.access_tokens[-1])


async def log_out_everywhere(device: Device) -> None:
    """Send a revokeAll with unused codes, while a refresh and an exchange are under way."""
    session = await device.log_in(device.rng.choice(APPS))
    if session is None:
        return
    app = device.rng.choice(APPS)
    codes = [await device.get_code(app) for _ in range(2)]
    under_way: list[Awaitable[Call]] = [device.refresh(session)]
    if codes[0] is not None:
        under_way.append(device.exchange(app, codes[0]))
    _, *calls = await asyncio.gather(device.until_answered(lambda: device.revoke_all(session)), *under_way)
    for call in calls[1:]:
        device.keep(call, app)
    if codes[1] is not None:
        device.keep(await device.exchange(app, codes[1]), app)
    await device.refresh(session)
    await device.verify(session, session.access_tokens[0])


LIVES: Final[Sequence[tuple[Operations, int]]] = (
    (live_with_a_session, 8),
    (log_in_and_out, 3),
    (use_a_code, 3),
    (contend_for_a_code, 2),
    (steal, 1),
    (log_out_everywhere, 2),
)


@dataclass
class Load(threading.Thread):
    """The load between `start` and `finish`. Half of the users never send a revokeAll, so that sessions stay alive."""

    ports: Sequence[int]
    people: Sequence[UserCredentials]
    seed: str
    rate: float
    grace_seconds: float
    give_up_seconds: float
    lanes: int = 16
    history: History = field(default_factory=History)
    sessions: list[Session] = field(default_factory=list)
    clients: list[httpx2.AsyncClient] = field(default_factory=list)
    failure: BaseException | None = None

    def __post_init__(self) -> None:
        super().__init__(daemon=True)  # Ctrl-C does not wait for it
        self._ending = threading.Event()
        self.ending_since = float("inf")
        self._next_turn = 0.0

    # A thread is told apart by itself, not by what it holds.
    __hash__ = threading.Thread.__hash__

    @property
    def patient(self) -> Sequence[UserCredentials]:
        """Return the users who never log out everywhere."""
        return self.people[: len(self.people) // 2]

    @property
    def others(self) -> Sequence[UserCredentials]:
        return self.people[len(self.people) // 2 :]

    @property
    def is_ending(self) -> bool:
        return self._ending.is_set()

    def note(self, call: Call) -> None:
        self.history.calls.append(call)

    def finish(self) -> History:
        """Every history ends, every session is asked for once more. Faults must be over."""
        self.ending_since = read_clock()
        self._ending.set()
        self.join()
        if self.failure is not None:
            raise self.failure
        return self.history

    def run(self) -> None:
        try:
            asyncio.run(self._run())
        except BaseException as failure:
            self.failure = failure

    async def wait_for_turn(self) -> None:
        """Wait for the next request of the rate. Missed turns are not made up for."""
        now = read_clock()
        self._next_turn = max(self._next_turn, now) + 1 / self.rate
        await pause(self._next_turn - now)

    async def _run(self) -> None:
        limits = httpx2.Limits(max_connections=400, max_keepalive_connections=400, keepalive_expiry=1)
        async with AsyncExitStack() as stack:
            for port in self.ports:
                http = httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", limits=limits)
                http.cookies.jar.set_policy(NO_COOKIES)
                self.clients.append(await stack.enter_async_context(http))
            beating = asyncio.create_task(self._beat())
            await asyncio.gather(*(self._live(lane) for lane in range(self.lanes)))
            self.rate = max(self.rate, 200)
            for instance in range(len(self.clients)):
                await self._await_service(instance)
            await self._ask_for_everything()
            beating.cancel()
            self.history.is_closed = True

    async def _beat(self) -> None:
        """Notes when the machine had no time for us."""
        while True:
            before = read_clock()
            await pause(HEARTBEAT_SECONDS)
            now = read_clock()
            if now - before > HEARTBEAT_SECONDS + LATE_BEAT_SECONDS:
                self.history.stalls.append(Stall(before + HEARTBEAT_SECONDS, now))

    async def _live(self, lane: int) -> None:
        rng = random.Random(f"{self.seed} {lane}")
        lives, weights = zip(*LIVES, strict=True)
        while not self.is_ending:
            life = rng.choices(lives, weights)[0]
            people = self.others if life is log_out_everywhere else self.people
            await life(Device(self, rng.choice(people), rng))
            await pause(rng.uniform(0, 0.5))

    async def _await_service(self, instance: int) -> None:
        """Ask one instance until it answers many requests in a row, whichever of its workers they meet."""
        device, row = Device(self, self.patient[0], random.Random(f"{self.seed} {instance}"), instance), 0
        session = None
        while row < STEADY:
            if session is None:
                call = await device.send("login", TOKEN, PHONE_APP, form=login_form(device.person))
                session = device.keep(call, PHONE_APP)
            else:
                ask_next = (device.refresh, partial(device.verify, access_token=session.access_tokens[-1]))[row % 2]
                call = await ask_next(session)
            row = row + 1 if call.status not in UNKNOWN_OUTCOMES else 0
            if row == 0 and read_clock() >= self.ending_since + MAX_WAIT_SECONDS:
                self.history.unanswered.append(call)
                return

    async def _ask_for_everything(self) -> None:
        """Use every session. The live ones must work, and the ended ones must not."""
        waiting = iter(list(self.sessions))

        async def ask_in_turn() -> None:
            for session in waiting:
                await session.device.until_answered(partial(session.device.refresh, session))
                for token in session.access_tokens[-2:]:
                    await session.device.until_answered(partial(session.device.verify, session, token))

        await asyncio.gather(*(ask_in_turn() for _ in range(self.lanes)))
