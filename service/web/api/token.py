"""POST /oauth2/v1/token, which authenticates the client and passes the request to the grant that it names.

The steps that all grants share follow the endpoint, and then the grants.

Clauses: RFC 6749 §3.2, §4.1.2, §4.1.3, §4.1.4, §4.3.2, §4.3.3, §5.1, §5.2, §6, §10.4, §10.5, SPEC §2.1, §3, §4.2, §5.4,
§6
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Final

from starlette.requests import Request
from starlette.responses import Response

from service.crypto.keyring import Keyring, RefreshToken, make_access_token, make_first_refresh_token
from service.observability.metrics import get_metrics
from service.protocol.authorization_code import AuthorizationCode, RedeemedCode, check_exchange, judge_second_exchange
from service.protocol.client import AUTHORIZATION_CODE, PASSWORD, REFRESH_TOKEN, Client, check_grant_type, check_scope
from service.protocol.errors import (
    InvalidClient,
    InvalidGrant,
    InvalidScope,
    TemporarilyUnavailable,
    UnsupportedGrantType,
)
from service.protocol.parameters import TOKEN_PARAMETERS, Form, check_text, require
from service.protocol.scope import (
    Scope,
    check_narrowing,
    check_one_realm_one_role,
    check_user_has,
    parse_realm,
    parse_scope,
)
from service.protocol.token_form import RandomToken, parse_authorization_code
from service.protocol.token_response import TokenResponse
from service.protocol.user import Login
from service.protocol.verdicts import CODE_REFUSALS, REFRESH_REFUSALS, SUCCESS_EVENTS, CodeRefusal
from service.realms.login import Logins
from service.registry.cache import ClientCache, UserCache
from service.store.sessions.codes import Codes
from service.store.sessions.families import Families, RefreshRefused
from service.web.request.client_address import get_prefixes
from service.web.request.client_authentication import AuthenticatedClient, ClientAuthenticator
from service.web.request.reading import read_form
from service.web.request.security_events import record_request_event, record_user_event, recording_login
from service.web.request.state import GRANT
from service.web.responses import render_json


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    """The token endpoint, with its grants by their type.

    `required` of a grant names the parameters that a request must have besides grant_type.
    """

    _authenticator: ClientAuthenticator
    _keyring: Keyring
    _grants: Mapping[str, AuthorizationCodeGrant | PasswordGrant | RefreshTokenGrant]

    async def post(self, request: Request) -> Response:
        """Issue tokens. The checks run in the order of the lines below, which docs/reference/http-api.md documents."""
        form = await read_form(request, TOKEN_PARAMETERS)
        if form.get("grant_type") in self._grants:
            request.scope[GRANT] = form["grant_type"]
        caller = await self._authenticator.authenticate(request, form)
        require(form, "grant_type")
        grant = self._grants.get(form["grant_type"])
        if grant is None:
            raise UnsupportedGrantType("grant_type_unknown")
        require(form, *grant.required)
        check_grant_type(caller.client, grant.grant_type)
        self._keyring.check_in_use()
        return render_json(await grant.issue(request, form, caller))


def _record(
    request: Request, event: str, client_id: str, refresh_token: RefreshToken, username: str, scope: str, **more: str
) -> None:
    realm, family = parse_realm(scope), refresh_token.family_digest
    record_request_event(
        request, event, client_id=client_id, username=username, realm=realm, session=family, scope=scope, **more
    )


def make_token_response(
    keyring: Keyring, access_token: RandomToken, refresh_token: RefreshToken, lives_ms: int, scope: str
) -> TokenResponse:
    return TokenResponse(
        access_token=access_token.text,
        expires_in=lives_ms // 1000,
        refresh_token=keyring.sign_refresh_token(refresh_token),
        scope=scope,
    )


@dataclass(frozen=True, slots=True)
class AuthorizationCodeGrant:
    """The authorization_code grant, which exchanges a code for tokens, once."""

    codes: Codes
    families: Families
    keyring: Keyring

    grant_type: ClassVar[str] = AUTHORIZATION_CODE
    required: ClassVar[tuple[str, ...]] = ("code", "redirect_uri")

    async def issue(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Clauses: RFC 6749 §4.1.3, §4.1.4, §10.5, SPEC §4.2"""
        name = parse_authorization_code(form["code"])
        code = await self.codes.find(name) if name else None
        if name is None or code is None:
            raise InvalidGrant("code_unknown")
        verdict: CodeRefusal = "repeated"
        if isinstance(code, AuthorizationCode):
            self._check_exchange(code, request, form, caller)
            refresh_token, access_token = make_first_refresh_token(name.shard), make_access_token(name.shard)
            outcome = await self.codes.redeem(
                name,
                client=caller.client,
                secret_used=caller.secret_used,
                refresh_token=refresh_token,
                access_token=access_token,
            )
            if isinstance(outcome, int):
                client_id, username, scope = caller.client.client_id, code.username, code.scope
                more = {"sub": code.subject, "grant_type": AUTHORIZATION_CODE}
                _record(request, "tokens_issued", client_id, refresh_token, username, scope, **more)
                return make_token_response(self.keyring, access_token, refresh_token, outcome, code.scope)
            verdict = outcome
            # If a concurrent request has redeemed the code, the record now names the family that it started.
            code = await self.codes.find(name)
        if isinstance(code, RedeemedCode):
            await self._handle_second_exchange(name, code, request, form, caller)
        raise InvalidGrant(CODE_REFUSALS[verdict])

    def _check_exchange(
        self, code: AuthorizationCode, request: Request, form: Form, caller: AuthenticatedClient
    ) -> None:
        try:
            check_exchange(code, caller.client, form)
        except InvalidGrant as error:
            # A client that may no longer request the scope lost a right. All other reasons suggest a misuse.
            if error.reason != "code_scope_withdrawn":
                client_id, reason = caller.client.client_id, error.reason
                record_user_event(request, "code_misused", code, client_id=client_id, reason=reason)
            raise

    async def _handle_second_exchange(
        self, name: RandomToken, redeemed: RedeemedCode, request: Request, form: Form, caller: AuthenticatedClient
    ) -> None:
        """End the family of the first exchange, if `judge_second_exchange` requires it.

        Clauses: RFC 6749 §4.1.2 (a second use ends what the first one gave)
        """
        if not judge_second_exchange(redeemed, caller.client, form):
            return
        family, client_id = redeemed.family_digest, caller.client.client_id
        user = await self.families.end(name.shard, family, client_id=client_id, reason="code_replayed")
        if user is not None:
            get_metrics().code_replays.inc()
            record_user_event(request, "code_replayed", user, client_id=client_id, session=family)


@dataclass(frozen=True, slots=True)
class PasswordGrant:
    """The password grant, which exchanges a user name and a password for tokens."""

    clients: ClientCache
    users: UserCache
    logins: Logins
    families: Families
    keyring: Keyring

    grant_type: ClassVar[str] = PASSWORD
    required: ClassVar[tuple[str, ...]] = ("username", "password")

    async def issue(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Clauses: RFC 6749 §4.3.2, §4.3.3, SPEC §4.2 (password), §5.4"""
        check_text(form, "username", "password")
        if "scope" not in form:
            raise InvalidScope("scope_missing")
        scope = parse_scope(form["scope"])
        check_one_realm_one_role(scope)
        check_scope(caller.client, scope)
        realm, client_id, username = scope.realms[0], caller.client.client_id, form["username"]
        with recording_login(request, realm=realm, client_id=client_id):
            login = await self.logins.log_in(realm, username, form["password"], get_prefixes(request))
        user = login.user
        record_user_event(request, "login_succeeded", user, client_id=client_id)
        client = await self._recheck_registration(caller, scope)
        with recording_login(request, realm=realm, client_id=client_id, user=user):
            check_user_has(scope, user.roles)
        secret_used = caller.secret_used
        refresh_token, response = await self.start_session(login, client, str(scope), secret_used=secret_used)
        more = {"sub": user.subject, "grant_type": PASSWORD}
        _record(request, "tokens_issued", client_id, refresh_token, user.username, str(scope), **more)
        return response

    async def start_session(
        self, login: Login, client: Client, scope: str, *, secret_used: bool
    ) -> tuple[RefreshToken, TokenResponse]:
        """Start the session of a login that was checked. Returns its refresh token and the response."""
        identity = login.user.identity
        refresh_token, access_token = make_first_refresh_token(identity.shard), make_access_token(identity.shard)
        lives_ms = await self.families.start(
            login,
            client=client,
            scope=scope,
            secret_used=secret_used,
            refresh_token=refresh_token,
            access_token=access_token,
        )
        if lives_ms is None:
            self.users.forget(identity)
            raise TemporarilyUnavailable("record_changed", retry_after_seconds=1)
        return refresh_token, make_token_response(self.keyring, access_token, refresh_token, lives_ms, scope)

    async def _recheck_registration(self, caller: AuthenticatedClient, scope: Scope) -> Client:
        """Return the client, which may have changed since the first check, because a login takes time.

        Raises an OAuthError if the client lost its registration, the grant type or the scope during the login.
        """
        async with self.logins.seed_keeper.required():
            client = await self.clients.find(caller.client.client_id)
            if client is None:
                raise InvalidClient("client_unknown")
        check_grant_type(client, PASSWORD)
        check_scope(client, scope)
        return client


PATTERN_LENGTH: Final = 3
"""Replays of this many generations in a row suggest that a second party uses the same refresh tokens."""

REPLAYS_OF_A_PATTERN: Final = 5
"""The number of replays of one generation that lost responses and two open tabs do not explain.

Only this replay of the generation raises the event replay_pattern; later ones do not repeat it.
"""


@dataclass(frozen=True, slots=True)
class RefreshTokenGrant:
    """The refresh_token grant, which exchanges a refresh token for the next one and an access token."""

    families: Families
    keyring: Keyring

    grant_type: ClassVar[str] = REFRESH_TOKEN
    required: ClassVar[tuple[str, ...]] = ("refresh_token",)

    async def issue(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Spend the refresh token and issue the next one. Both are one call of one script.

        Clauses: RFC 6749 §6, §10.4, SPEC §3, §4.2 (refresh_token)
        """
        wanted_scope = ""
        if "scope" in form:
            scope = parse_scope(form["scope"])
            check_narrowing(scope)
            check_scope(caller.client, scope)
            wanted_scope = str(scope)
        refresh_token = self.keyring.parse_refresh_token(form["refresh_token"])
        if refresh_token is None:
            raise InvalidGrant("refresh_token_malformed")
        access_token = make_access_token(refresh_token.shard)
        outcome = await self.families.spend(
            refresh_token,
            client=caller.client,
            secret_used=caller.secret_used,
            wanted_scope=wanted_scope,
            access_token=access_token,
        )
        get_metrics().refresh_tally.count(outcome.verdict)
        client_id, username, sub = caller.client.client_id, outcome.username, outcome.subject
        if isinstance(outcome, RefreshRefused):
            error, reason, event = REFRESH_REFUSALS[outcome.verdict]
            if event:
                _record(request, event, client_id, refresh_token, username, outcome.scope, sub=sub, reason=reason)
            raise error(reason, name=outcome.item)
        is_pattern = outcome.streak >= PATTERN_LENGTH or outcome.replays == REPLAYS_OF_A_PATTERN
        event = "replay_pattern" if is_pattern else SUCCESS_EVENTS[outcome.verdict]
        _record(request, event, client_id, refresh_token, username, outcome.scope, sub=sub)
        head = refresh_token._replace(generation=outcome.head)
        return make_token_response(self.keyring, access_token, head, outcome.lives_ms, outcome.scope)
