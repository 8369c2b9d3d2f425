"""The authorization_code grant, which exchanges a code for tokens, once.

Clauses: RFC 6749 §4.1.2, §4.1.3, §4.1.4, §10.5, SPEC §4.2
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

from starlette.requests import Request

from service.crypto.keyring import Keyring, make_access_token, make_first_refresh_token
from service.observability.metrics import get_metrics
from service.protocol.authorization_code import AuthorizationCode, RedeemedCode, check_exchange, judge_second_exchange
from service.protocol.client import AUTHORIZATION_CODE
from service.protocol.errors import InvalidGrant
from service.protocol.parameters import Form
from service.protocol.scope import parse_realm
from service.protocol.token_form import RandomToken, parse_authorization_code
from service.protocol.token_response import TokenResponse
from service.store.codes import Codes
from service.store.families import Families
from service.web.api.grants.issue import make_token_response, record_issue
from service.web.request.client_authentication import AuthenticatedClient
from service.web.request.security_events import record_request_event

_CODE_REFUSALS: Final = {"repeated": "code_repeated", "revoked": "code_revoked", "unknown": "code_unknown"}


@dataclass(frozen=True, slots=True)
class AuthorizationCodeGrant:
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
        if isinstance(code, RedeemedCode):
            await self._judge_second_exchange(name, code, request, form, caller)
            raise InvalidGrant("code_repeated")
        self._check_exchange(code, request, form, caller)
        refresh_token, access_token = make_first_refresh_token(name.shard), make_access_token(name.shard)
        outcome = await self.codes.redeem(
            name, secret_used=caller.secret_used, refresh_token=refresh_token, access_token=access_token
        )
        if isinstance(outcome, int):
            record_issue(request, AUTHORIZATION_CODE, caller, refresh_token, code.username, code.scope)
            return make_token_response(self.keyring, access_token, refresh_token, outcome, code.scope)
        if outcome == "repeated":
            # A concurrent request has redeemed the code. The record of the code now names the family it started.
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
            # A client that may no longer request the scope lost a right. All other reasons suggest a misuse.
            if error.reason != "code_scope_withdrawn":
                record_request_event(
                    request,
                    "code_misused",
                    client_id=caller.client.client_id,
                    username=code.username,
                    realm=parse_realm(code.scope),
                    reason=error.reason,
                )
            raise

    async def _judge_second_exchange(
        self, name: RandomToken, redeemed: RedeemedCode, request: Request, form: Form, caller: AuthenticatedClient
    ) -> None:
        """End the family of the first exchange, if `judge_second_exchange` requires it.

        Clauses: RFC 6749 §4.1.2 (a second use ends what the first one gave)
        """
        if not judge_second_exchange(redeemed, caller.client, form):
            return
        family, client_id = redeemed.family_digest, caller.client.client_id
        username = await self.families.end(name.shard, family, client_id=client_id, reason="code_replayed")
        if username is not None:
            get_metrics().code_replays.inc()
            record_request_event(request, "code_replayed", client_id=client_id, username=username, family=family)
