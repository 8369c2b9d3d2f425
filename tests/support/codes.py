"""Authorization codes made below HTTP, by the scripts that the login and consent pages run."""

from service.crypto.keyring import Keyring, make_browser_session, make_consent
from service.protocol.authorization import AuthorizationRequest, ConsentRequest, ReturnAddress
from service.protocol.authorization_code import AuthorizationCode
from service.protocol.token_form import RandomToken
from service.protocol.user import User
from service.store.browsers.browser_sessions import BrowserSessions
from service.store.browsers.consents import Consents
from tests.support.logins import login_of

SESSION_MS = 3_600_000


def make_code_to_allow(
    username: str, client_id: str, redirect_uri: str, scope: str, code_challenge: str | None = None
) -> AuthorizationCode:
    """Return the code that the user is to allow. The script that issues it decides the times and the user_digest."""
    return AuthorizationCode(
        created_ms=0,
        expires_ms=0,
        user_digest="",
        subject="",
        client_id=client_id,
        redirect_uri=redirect_uri,
        code_challenge=code_challenge,
        username=username,
        scope=scope,
    )


def consent_request_for(code: AuthorizationCode) -> ConsentRequest:
    """Return the consent request from which this code follows."""
    request = AuthorizationRequest(
        client_id=code.client_id,
        return_address=ReturnAddress(code.redirect_uri, None),
        scope=code.scope,
        code_challenge=code.code_challenge,
    )
    return ConsentRequest(request=request, scope=code.scope)


async def allow_code(
    browser_sessions: BrowserSessions,
    consents: Consents,
    keyring: Keyring,
    user: User,
    code: AuthorizationCode,
    sid: str = "",
) -> RandomToken:
    """Return the name of a code that the user allowed, in a browser session that ended after that."""
    session, consent = make_browser_session(user.identity.shard), make_consent(user.identity.shard)
    assert await browser_sessions.start(session, login_of(user, sid), lifetime_ms=SESSION_MS)
    assert await consents.hold(consent, session, consent_request_for(code))
    name = keyring.derive_code(consent)
    assert await consents.allow(consent, session, user, name, consent_request_for(code)) == "issued"
    await browser_sessions.end(session)
    return name
