"""The composition root: settings, Redis, stores, endpoints, and the one table of error answers."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from urllib.parse import urlsplit

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from service.audit import start_trail
from service.configured import find_durability, find_store, make_lifetimes
from service.credentials import Keyring
from service.endpoints.access_log import AccessLog
from service.endpoints.addresses import TrustedProxies
from service.endpoints.answers import (
    answer_bearer_missing,
    answer_client_gone,
    answer_http_exception,
    answer_oauth_error,
    answer_outage,
    answer_unforeseen,
)
from service.endpoints.authorization import AuthorizationEndpoint
from service.endpoints.browser import Browsers
from service.endpoints.client_authentication import ClientAuthenticator
from service.endpoints.consent import ConsentEndpoint
from service.endpoints.cross_origin import CrossOrigin
from service.endpoints.direct import Direct, ErrorHandlers
from service.endpoints.external_login import ExternalLoginEndpoint
from service.endpoints.head_limit import HeadLimit
from service.endpoints.health import HealthEndpoint
from service.endpoints.introspect import IntrospectionEndpoint
from service.endpoints.login import LoginEndpoint
from service.endpoints.metadata import MetadataEndpoint
from service.endpoints.metrics import MetricsEndpoint
from service.endpoints.page_limit import PageLimit
from service.endpoints.pages import Handler, Pages
from service.endpoints.pending_logins import PendingLogins
from service.endpoints.revoke import RevocationEndpoint
from service.endpoints.revoke_all import RevokeAllEndpoint
from service.endpoints.sessions import SessionsEndpoint
from service.endpoints.sign_in import SignIn
from service.endpoints.start import StartEndpoint
from service.endpoints.token import TokenEndpoint
from service.endpoints.verify import VerifyEndpoint
from service.gateway.lookup import BearerLookup
from service.hashing import HashingPool, verify_nobody
from service.lifeline import die_with_supervisor
from service.logs import configure_logging
from service.metrics import (
    TOLD_SECONDS,
    count_bearer_read,
    count_moving_slot,
    count_redis_call,
    forget_live,
    note_live,
    tell_counts,
)
from service.protocol.errors import BearerMissing, OAuthError
from service.protocol.metadata import metadata_paths
from service.realms.external import ExternalRealms
from service.realms.logins import AllowedAttempts, Logins
from service.realms.main import MainRealm
from service.realms.outgoing import Outgoing
from service.registry.cache import RegistryMemory
from service.registry.consequences import Consequences
from service.registry.seed import BadSeed
from service.registry.seeding import Seeding
from service.rendering import Look, Renderer
from service.settings import Limit, Settings, load_settings
from service.store.access_tokens import AccessTokens
from service.store.attempts import Attempts
from service.store.browser_sessions import BrowserSessions
from service.store.census import CensusForbidden, take_census
from service.store.codes import Codes
from service.store.connection import StoreConnection
from service.store.consents import Consents
from service.store.deadline import StoreUnavailable, start_budget
from service.store.events import EventStream
from service.store.external_logins import ExternalLogins
from service.store.families import Families
from service.store.registry import RegistryStore
from service.store.revocations import Revocations
from service.store.sweeps import Sweeps
from service.trail import EventTrail

SEED_RETRY_SECONDS = 1.0
CENSUS_SECONDS = 15.0
SETTLE_SECONDS = 15.0

DIRECT = frozenset({"verify", "introspect", "token", "revoke", "revokeAll"})
"""The routes that are found without the router."""

ERROR_HANDLERS: ErrorHandlers = {
    OAuthError: answer_oauth_error,
    BearerMissing: answer_bearer_missing,
    StoreUnavailable: answer_outage,
    HTTPException: answer_http_exception,
    ClientDisconnect: answer_client_gone,
    Exception: answer_unforeseen,
}

log = logging.getLogger("service")


def create_app() -> ASGIApp:
    """The application of one worker, from the environment."""
    settings = load_settings(os.environ)
    configure_logging(settings.log_level, settings.log_format)
    die_with_supervisor()
    return assemble(Parts(settings))


class Parts:
    """What one worker is made of, each part given what it needs. Only tests move its clock."""

    def __init__(self, settings: Settings, clock_offset_ms: Callable[[], int] = lambda: 0) -> None:
        self.settings = settings
        store = find_store(settings)
        self.connection = StoreConnection(
            store,
            durability=find_durability(settings),
            clock_offset_ms=clock_offset_ms,
            watch=count_redis_call,
            on_moving_slot=count_moving_slot,
        )
        self.bearer = BearerLookup(
            store, memory=settings.verify_cache, watch=count_bearer_read, clock_offset_ms=clock_offset_ms
        )
        self.lifetimes = lifetimes = make_lifetimes(settings)
        self.keyring = Keyring(settings.secret_keys)
        self.access_tokens = AccessTokens(self.connection)
        self.attempts = Attempts(self.connection)
        self.browser_sessions = BrowserSessions(self.connection)
        self.codes = Codes(self.connection, lifetimes)
        self.consents = Consents(self.connection, lifetimes)
        self.families = Families(self.connection, lifetimes)
        self.external_logins = ExternalLogins(self.connection)
        self.registry = RegistryStore(self.connection)
        self.event_stream = EventStream(self.connection)
        self.event_trail = EventTrail(self.event_stream.append)
        self.revocations = Revocations(self.connection)
        self.passwords = HashingPool("password")
        self.secrets = HashingPool("secret")
        self.memory = memory = RegistryMemory(store, clock_offset_ms)
        self.clients, self.users = memory.clients, memory.users
        self.pending_logins = PendingLogins(self.keyring, memory.now_ms)
        self.authenticator = ClientAuthenticator(
            self.clients, self.attempts, _limit(settings.client_attempts), self.secrets, memory.now_ms
        )
        self.outgoing = Outgoing()
        self.logins = Logins(
            MainRealm(self.registry, self.users, self.passwords),
            ExternalRealms(memory.realms, self.users, self.keyring, self.outgoing, self.connection.read_clock_ms),
            self.attempts,
            _allowed_attempts(settings),
        )
        self.sweeps = Sweeps(self.connection, self.families)
        self.consequences = Consequences(self.registry, self.revocations, self.sweeps)
        self.seeding = Seeding(self.registry, self.keyring, self.consequences, hashing_threads=os.cpu_count() or 1)
        self.health = HealthEndpoint(self.connection, self.bearer, self.clients, self.is_seed_in_force)
        self.is_seeded = settings.seed_file is None
        self._seed_trouble = ""

    async def apply_seed(self) -> None:
        """Tries once; where that fails the worker is not ready, and tries again.

        A mistake in the file ends the start of the service, but not that of a worker which replaces another: whoever
        edits the file while the service runs must not bring it down.
        """
        if self.settings.seed_file is None:
            return
        try:
            least = self.settings.min_password_characters
            outcome = await self.seeding.apply_file(self.settings.seed_file, least)
        except (StoreUnavailable, BadSeed) as error:
            if str(error) != self._seed_trouble:
                log.error("the seed file is not applied yet: %s", error)
            self._seed_trouble = str(error)
            return
        except Exception:
            log.exception("the seed file is not applied yet")
            return
        self.is_seeded, self._seed_trouble = True, ""
        for warning in outcome.warnings:
            log.warning("the seed file %s: %s", self.settings.seed_file, warning)
        log.info("the seed file %s is in force; entries added or updated: %d", self.settings.seed_file, outcome.changes)

    async def keep_seed_applied(self) -> None:
        """A service that starts before its Redis becomes ready by itself, and so does one whose Redis was emptied."""
        while True:
            await asyncio.sleep(SEED_RETRY_SECONDS)
            if not await self.is_seed_in_force():
                await self.apply_seed()

    async def is_seed_in_force(self) -> bool:
        """Whether this worker has seen its seed applied, and the store still knows of one; an outage tells nothing."""
        if self.is_seeded and self.settings.seed_file is not None:
            with suppress(StoreUnavailable):
                self.is_seeded = await self.registry.find_seed("file") is not None
        return self.is_seeded

    async def keep_settled(self) -> None:
        """What a change at the console ends has ended when the console says so; where that was killed, we end it."""
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            try:
                if await self.registry.owes_anything():
                    async with self.registry.make_lock() as lock:
                        await self.consequences.settle(lock)
            except StoreUnavailable as outage:
                log.debug("nothing was settled: %s", outage)
            except Exception:
                log.exception("what a change of clients or users ends has not ended yet")

    async def keep_census(self) -> None:
        """For the metrics. Outages have their lines in the log already; what is forbidden has one, once."""
        is_known = False
        while True:
            try:
                note_live(*await take_census(self.connection))
                is_known = True
            except (StoreUnavailable, CensusForbidden) as error:
                if is_known:
                    forget_live()
                if isinstance(error, CensusForbidden):
                    log.warning("sessions are not counted for the metrics, as this Redis user may not: %s", error)
                    return
            await asyncio.sleep(CENSUS_SECONDS)

    async def keep_metrics_told(self) -> None:
        while True:
            await asyncio.sleep(TOLD_SECONDS)
            tell_counts()

    async def close(self) -> None:
        self.passwords.close()
        self.secrets.close()
        await self.outgoing.close()
        await self.bearer.close()
        await self.memory.close()
        await self.connection.close()


def assemble(parts: Parts) -> ASGIApp:
    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        start_trail(parts.event_trail)
        parts.event_trail.start()
        # The first of these costs double, and should not cost a user.
        await parts.passwords.run(verify_nobody)
        await parts.apply_seed()
        works = (parts.keep_seed_applied(), parts.keep_settled(), parts.keep_census(), parts.keep_metrics_told())
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            await parts.event_trail.close()
            await parts.close()
        finally:
            tell_counts()

    base_path = urlsplit(parts.settings.base_url).path
    prefixes = {"", base_path}
    routes = make_routes(parts)
    app = Starlette(routes=routes, exception_handlers=ERROR_HANDLERS, lifespan=lifespan)
    # A redirect would turn a POST into something else, or send its body twice.
    app.router.redirect_slashes = False
    # Around the application, not inside as its middleware: a 500 is made outside of all that.
    direct = Direct(app, [route for route in routes if route.name in DIRECT], ERROR_HANDLERS)
    methods = {f"{prefix}/oauth2/v1/{name}": "POST" for prefix in prefixes for name in ("token", "revoke")}
    cross_origin = CrossOrigin(direct, parts.memory.origins, methods | dict.fromkeys(metadata_paths(base_path), "GET"))
    limited = HeadLimit(cross_origin, {f"{prefix}/oauth2/v1/verify" for prefix in prefixes})
    known = TrustedProxies(AccessLog(limited), parts.settings.trusted_proxies)
    return _at_the_edge(parts.event_trail, known)


def make_routes(parts: Parts) -> list[Route]:
    """Everything that is served; docs/openapi.yaml describes what of it is no page."""
    base_path = urlsplit(parts.settings.base_url).path
    prefixes = sorted({"", base_path})
    api = [route for prefix in prefixes for route in _make_api_routes(parts, prefix)]
    return api + _make_metadata_routes(parts, base_path) + _make_page_routes(parts)


def _make_api_routes(parts: Parts, prefix: str) -> list[Route]:
    token = TokenEndpoint(
        parts.authenticator, parts.clients, parts.users, parts.logins, parts.codes, parts.families, parts.keyring
    )
    revoke = RevocationEndpoint(parts.authenticator, parts.access_tokens, parts.families, parts.keyring)
    revoke_all = RevokeAllEndpoint(parts.access_tokens, parts.revocations)
    introspect = IntrospectionEndpoint(
        parts.authenticator, parts.bearer, parts.families, parts.keyring, issuer=parts.settings.base_url
    )
    routes = [
        Route(f"{prefix}/oauth2/v1/verify", VerifyEndpoint(parts.bearer), name="verify"),
        Route(f"{prefix}/oauth2/v1/introspect", introspect.post, methods=["POST"], name="introspect"),
        Route(f"{prefix}/oauth2/v1/token", token.post, methods=["POST"], name="token"),
        Route(f"{prefix}/oauth2/v1/revoke", revoke.post, methods=["POST"], name="revoke"),
        Route(f"{prefix}/oauth2/v1/revokeAll", revoke_all.post, methods=["POST"], name="revokeAll"),
        Route(f"{prefix}/healthz", parts.health.live, methods=["GET"], name="healthz"),
        Route(f"{prefix}/readyz", parts.health.ready, methods=["GET"], name="readyz"),
    ]
    if parts.settings.metrics_address is None:
        base_host = urlsplit(parts.settings.base_url).hostname or ""
        routes.append(Route(f"{prefix}/metrics", MetricsEndpoint(base_host), name="metrics"))
    return routes


def _make_page_routes(parts: Parts) -> list[Route]:
    """The pages of the web URL, below its path and without it, as a proxy may have taken that away."""
    settings = parts.settings
    web_path = urlsplit(settings.web_url).path
    look = Look(settings.page_name, settings.page_accent, settings.page_logo is not None)
    renderer = Renderer(look, web_path)
    is_secure = urlsplit(settings.web_url).scheme == "https"
    pages = Pages(renderer, issuer=settings.base_url, web_path=web_path, is_secure=is_secure)
    browsers = Browsers(parts.keyring, is_secure=is_secure)
    page_limit = PageLimit(parts.attempts, _limit(settings.pages_per_address))
    consent = ConsentEndpoint(
        pages,
        browsers,
        parts.clients,
        parts.users,
        parts.logins,
        parts.consents,
        parts.browser_sessions,
        page_limit,
        parts.keyring,
        parts.lifetimes,
    )
    sign_in = SignIn(
        pages,
        browsers,
        parts.users,
        parts.browser_sessions,
        consent,
        session_ms=settings.login_session_ttl_ms,
        stay_ms=settings.stay_signed_in_ttl_ms,
    )
    external = ExternalLoginEndpoint(
        pages,
        browsers,
        parts.clients,
        parts.logins,
        parts.pending_logins,
        parts.external_logins,
        sign_in,
        redirect_uri=f"{settings.web_url}/authorization/callback",
    )
    login = LoginEndpoint(
        pages, browsers, parts.clients, parts.logins, page_limit, parts.pending_logins, external, sign_in
    )
    authorization = AuthorizationEndpoint(
        pages, browsers, parts.clients, parts.logins, parts.browser_sessions, login, consent
    )
    sessions = SessionsEndpoint(
        pages,
        browsers,
        parts.clients,
        parts.logins,
        parts.browser_sessions,
        parts.families,
        parts.revocations,
        login,
    )
    start = StartEndpoint(
        pages, renderer, base_url=settings.base_url, web_url=settings.web_url, logo=settings.page_logo
    )
    handlers: dict[str, dict[str, Handler]] = {
        "/": {"GET": start.get},
        "/authorization/": {"GET": authorization.get},
        "/authorization/login": {"GET": login.get, "POST": login.post},
        "/authorization/callback": {"GET": external.get},
        "/authorization/consent": {"GET": consent.get, "POST": consent.post},
        "/authorization/switch": {"POST": authorization.switch},
        "/sessions": {"GET": sessions.lead},
        "/sessions/": {"GET": sessions.get},
        "/sessions/end": {"POST": sessions.end},
        "/sessions/end-all": {"POST": sessions.end_all},
        "/sessions/sign-out": {"POST": sessions.sign_out},
        "/authorization/assets/page.css": {"GET": start.stylesheet},
        "/authorization/assets/logo": {"GET": start.logo},
    }
    return [
        Route(prefix + path, pages.guard(by_method), methods=list(by_method), name=path.strip("/") or "start")
        for prefix in sorted({"", web_path})
        for path, by_method in handlers.items()
    ]


def _make_metadata_routes(parts: Parts, base_path: str) -> list[Route]:
    settings = parts.settings
    metadata = MetadataEndpoint(parts.logins, base_url=settings.base_url, web_url=settings.web_url)
    return [Route(path, metadata.get, methods=["GET"], name="metadata") for path in sorted(metadata_paths(base_path))]


def _at_the_edge(trail: EventTrail, app: ASGIApp) -> ASGIApp:
    """What all work on a request shares: one deadline for Redis, and where its events go."""

    async def at_the_edge(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            start_budget()
        start_trail(trail)
        await app(scope, receive, send)

    return at_the_edge


def _allowed_attempts(settings: Settings) -> AllowedAttempts:
    return AllowedAttempts(
        per_user_and_address=_limit(settings.login_attempts),
        per_user=_limit(settings.login_attempts_per_user),
        per_address=_limit(settings.login_attempts_per_address),
    )


def _limit(limit: Limit) -> tuple[int, int]:
    return limit.count, limit.window_ms
