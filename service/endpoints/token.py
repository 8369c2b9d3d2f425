"""POST /oauth2/v1/token: three grants, each in four steps: load, judge, commit, render.

Clauses: RFC 6749 §3.2, §4.1.3, §4.3.2, §5.1, §5.2, §6, SPEC §4.2
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from service.audit import Event, record_event
from service.credentials import Keyring, RefreshToken, make_first_refresh_token
from service.endpoints.addresses import find_address, get_prefixes
from service.endpoints.answers import GRANT, render_tokens
from service.endpoints.client_authentication import AuthenticatedClient, ClientAuthenticator
from service.endpoints.forms import read_form
from service.endpoints.recording import recording_login
from service.metrics import count_code_replay, count_refresh
from service.protocol.authorization_code import AuthorizationCode, RedeemedCode, check_exchange, judge_second_exchange
from service.protocol.client import AUTHORIZATION_CODE, PASSWORD, REFRESH_TOKEN, check_grant_type, check_scope
from service.protocol.errors import InvalidClient, InvalidGrant, InvalidScope, OAuthError, UnsupportedGrantType
from service.protocol.parameters import TOKEN_PARAMETERS, Form, check_text, require
from service.protocol.scope import (
    Scope,
    check_narrowing,
    check_one_realm_one_role,
    check_user_has,
    parse_realm,
    parse_scope,
)
from service.protocol.token_response import TokenResponse
from service.realms.logins import Logins
from service.registry.cache import ClientCache, UserCache
from service.store.codes import Codes
from service.store.families import Families, Refused, Spent
from service.tokens import RandomToken, make_access_token, parse_authorization_code

PATTERN_LENGTH: Final = 3
"""Replays in so many generations in a row look like somebody following along."""

REPLAYS_OF_A_PATTERN: Final = 5
"""The fifth replay of one generation is more than lost answers and two tabs explain. Later ones raise no event."""

_REFUSALS: Final[dict[str, tuple[type[OAuthError], str]]] = {
    "replayed": (InvalidGrant, "refresh_token_replayed"),
    "foreign": (InvalidGrant, "refresh_token_of_another_client"),
    "without_secret": (InvalidGrant, "refresh_without_secret"),
    "withdrawn": (InvalidGrant, "refresh_token_scope_withdrawn"),
    "beyond": (InvalidScope, "scope_beyond_grant"),
    "unknown": (InvalidGrant, "refresh_token_unknown"),
}
_REFRESH_EVENTS: Final[dict[str, Event]] = {
    "rotated": "tokens_refreshed",
    "repeated": "refresh_token_repeated",
    "recovered": "lost_generations_recovered",
}
_CODE_MISUSES: Final = (
    "code_of_another_client",
    "redirect_uri_differs",
    "code_verifier_missing",
    "code_verifier_wrong",
    "code_verifier_unexpected",
)
_CODE_REFUSALS: Final = {"repeated": "code_repeated", "revoked": "code_revoked", "unknown": "code_unknown"}


@dataclass(frozen=True, slots=True)
class TokenEndpoint:
    authenticator: ClientAuthenticator
    clients: ClientCache
    users: UserCache
    logins: Logins
    codes: Codes
    families: Families
    keyring: Keyring

    async def post(self, request: Request) -> Response:
        """The order of the checks is the order of these lines; see docs/errors.md."""
        form = await read_form(request, TOKEN_PARAMETERS)
        if form.get("grant_type") in _REQUIRED:
            request.scope[GRANT] = form["grant_type"]
        caller = await self.authenticator.authenticate(request, form)
        require(form, "grant_type")
        grant_type = form["grant_type"]
        if grant_type not in _REQUIRED:
            raise UnsupportedGrantType("grant_type_unknown")
        require(form, *_REQUIRED[grant_type])
        check_grant_type(caller.client, grant_type)
        return render_tokens(await _GRANTS[grant_type](self, request, form, caller))

    async def exchange_code(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Clauses: RFC 6749 §4.1.3, §4.1.4, §10.5, SPEC §4.2"""
        name = parse_authorization_code(form["code"])
        code = await self.codes.find(name) if name else None
        if name is None or code is None:
            raise InvalidGrant("code_unknown")
        if isinstance(code, RedeemedCode):
            await self._judge_second_exchange(name, code, request, form, caller)
            raise InvalidGrant("code_repeated")
        self._check_exchange(code, request, form, caller)
        refresh_token, access_token = make_first_refresh_token(name.shard), make_access_token(name.shard)
        outcome = await self.codes.redeem(
            name, secret_used=caller.secret_used, refresh_token=refresh_token, access_token=access_token
        )
        if isinstance(outcome, int):
            self._record_issue(request, AUTHORIZATION_CODE, caller, refresh_token, code.username, code.scope)
            return self._make_response(access_token, refresh_token, outcome, code.scope)
        if outcome == "repeated":
            # Somebody else was faster; what is kept of the code now says whose family that was.
            redeemed = await self.codes.find(name)
            if isinstance(redeemed, RedeemedCode):
                await self._judge_second_exchange(name, redeemed, request, form, caller)
        raise InvalidGrant(_CODE_REFUSALS[outcome])

    def _check_exchange(
        self, code: AuthorizationCode, request: Request, form: Form, caller: AuthenticatedClient
    ) -> None:
        try:
            check_exchange(code, caller.client, form)
        except InvalidGrant as error:
            if error.reason in _CODE_MISUSES:
                record_event(
                    "code_misused",
                    client_id=caller.client.client_id,
                    username=code.username,
                    realm=parse_realm(code.scope),
                    reason=error.reason,
                    address=find_address(request),
                )
            raise

    async def _judge_second_exchange(
        self, name: RandomToken, redeemed: RedeemedCode, request: Request, form: Form, caller: AuthenticatedClient
    ) -> None:
        """Clauses: RFC 6749 §4.1.2 (a second use ends what the first one gave)"""
        if not judge_second_exchange(redeemed, caller.client, form):
            return
        family, client_id = redeemed.family_digest, caller.client.client_id
        username = await self.families.end(name.shard, family, client_id=client_id, reason="code_replayed")
        if username is not None:
            count_code_replay()
            address = find_address(request)
            record_event("code_replayed", client_id=client_id, username=username, family=family, address=address)

    async def check_password(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """Clauses: RFC 6749 §4.3.2, §4.3.3, SPEC §4.2 (password), §5.4"""
        check_text(form, "username", "password")
        if "scope" not in form:
            raise InvalidScope("scope_missing")
        scope = parse_scope(form["scope"])
        check_one_realm_one_role(scope)
        check_scope(caller.client, scope)
        realm, client_id, username = scope.realms[0], caller.client.client_id, form["username"]
        with recording_login(request, realm=realm, client_id=client_id, username=username):
            user = await self.logins.log_in(realm, username, form["password"], get_prefixes(request))
        record_event(
            "login_succeeded",
            client_id=client_id,
            username=user.username,
            realm=realm,
            address=find_address(request),
        )
        await self._check_registration_again(caller, scope)
        check_user_has(scope, user.roles)
        shard = user.identity.shard
        refresh_token, access_token = make_first_refresh_token(shard), make_access_token(shard)
        lives_ms = await self.families.start(
            user,
            client_id=client_id,
            scope=str(scope),
            secret_used=caller.secret_used,
            refresh_token=refresh_token,
            access_token=access_token,
        )
        if lives_ms is None:
            self.users.forget(user.identity)
            raise InvalidGrant("user_changed")
        self._record_issue(request, PASSWORD, caller, refresh_token, user.username, str(scope))
        return self._make_response(access_token, refresh_token, lives_ms, str(scope))

    async def _check_registration_again(self, caller: AuthenticatedClient, scope: Scope) -> None:
        """A login takes its time; what the client lost meanwhile it must not get any more."""
        client = await self.clients.find(caller.client.client_id)
        if client is None:
            raise InvalidClient("client_unknown")
        check_grant_type(client, PASSWORD)
        check_scope(client, scope)

    async def refresh(self, request: Request, form: Form, caller: AuthenticatedClient) -> TokenResponse:
        """One script call, whatever comes of it.

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
            client_id=caller.client.client_id,
            secret_used=caller.secret_used,
            wanted_scope=wanted_scope,
            allowed_scope=caller.client.scope,
            access_token=access_token,
        )
        count_refresh(outcome.verdict)
        self._record_refresh(outcome, refresh_token, request, caller)
        if isinstance(outcome, Refused):
            refusal, reason = _REFUSALS[outcome.verdict]
            raise refusal(reason)
        head = refresh_token._replace(generation=outcome.head)
        return self._make_response(access_token, head, outcome.lives_ms, outcome.scope)

    def _record_refresh(
        self, outcome: Spent | Refused, refresh_token: RefreshToken, request: Request, caller: AuthenticatedClient
    ) -> None:
        client_id, family, address = caller.client.client_id, refresh_token.family_digest, find_address(request)
        if isinstance(outcome, Spent):
            is_pattern = outcome.streak >= PATTERN_LENGTH or outcome.replays == REPLAYS_OF_A_PATTERN
            record_event(
                "replay_pattern" if is_pattern else _REFRESH_EVENTS[outcome.verdict],
                client_id=client_id,
                username=outcome.username,
                realm=parse_realm(outcome.scope),
                family=family,
                scope=outcome.scope,
                address=address,
            )
        elif outcome.verdict == "replayed":
            username = outcome.username
            record_event(
                "refresh_token_replayed", client_id=client_id, username=username, family=family, address=address
            )
        elif outcome.verdict in ("foreign", "without_secret"):
            _, reason = _REFUSALS[outcome.verdict]
            record_event("refresh_token_misused", client_id=client_id, family=family, reason=reason, address=address)

    def _record_issue(
        self,
        request: Request,
        grant_type: str,
        caller: AuthenticatedClient,
        refresh_token: RefreshToken,
        username: str,
        scope: str,
    ) -> None:
        record_event(
            "tokens_issued",
            client_id=caller.client.client_id,
            username=username,
            realm=parse_realm(scope),
            family=refresh_token.family_digest,
            scope=scope,
            grant_type=grant_type,
            address=find_address(request),
        )

    def _make_response(
        self, access_token: RandomToken, refresh_token: RefreshToken, lives_ms: int, scope: str
    ) -> TokenResponse:
        return TokenResponse(
            access_token=access_token.text,
            expires_in=lives_ms // 1000,
            refresh_token=self.keyring.sign_refresh_token(refresh_token),
            scope=scope,
        )


_Grant = Callable[[TokenEndpoint, Request, Form, AuthenticatedClient], Awaitable[TokenResponse]]

_GRANTS: Final[dict[str, _Grant]] = {
    AUTHORIZATION_CODE: TokenEndpoint.exchange_code,
    PASSWORD: TokenEndpoint.check_password,
    REFRESH_TOKEN: TokenEndpoint.refresh,
}
_REQUIRED: Final = {
    AUTHORIZATION_CODE: ("code", "redirect_uri"),
    PASSWORD: ("username", "password"),
    REFRESH_TOKEN: ("refresh_token",),
}
