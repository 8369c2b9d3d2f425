"""The rules for the values of a seed file's entries. The console checks its input by them, too.

A check notes each mistake under its place in the file, which is `at` and the name of the field. The first mistake at a
place hides all later ones there, which may follow from it.

Clauses: RFC 6749 §2, §3.1.2, §3.1.2.2, RFC 7591 §2, SPEC §2.3
"""

from __future__ import annotations

from typing import Final

from service.crypto.hash_kinds import find_hash_mistake
from service.crypto.password_hashing import is_secret_hash
from service.crypto.password_rules import find_password_mistake
from service.protocol.client import AUTHORIZATION_CODE, MAX_CLIENT_ID_CHARACTERS
from service.protocol.errors import InvalidScope
from service.protocol.grammar import SCOPE_TOKEN, is_showable, is_unicode_without_line_ends, is_vschar
from service.protocol.scope import MAIN_REALM, SCOPE_ITEMS, Scope, parse_scope
from service.protocol.uri import find_origin_mistake, find_server_mistake, find_uri_mistake
from service.protocol.user import EMAIL_CLAIM, ID_FORM, INVISIBLE_WITHIN, MAX_NAME_CHARACTERS, MAX_PASSWORD_CHARACTERS
from service.registry.seed_file.entries import ClientEntry, RealmEntry, UserEntry

Mistakes = dict[str, str]
"""The mistakes of a file by their places."""

_NON_IDENTIFYING_CLAIMS: Final = frozenset(
    {"iss", "aud", "azp", "client_id", "scope", "token_type", "active", "acr", "amr"}
    | {"exp", "iat", "nbf", "auth_time", "jti", "nonce", "sid", "at_hash", "c_hash"}
)
"""Claims that do not identify a user.

Some are the same for all users, who would become one user. Others differ at each login, so one user would become many.
"""

_IN_ONE_LINE: Final = "in one line, without control characters and marks that change the text direction"
_PASSWORD_MISTAKES: Final[dict[str, str]] = {
    "common": "is one of the most common passwords",
    "own_name": "must not be the user's own name or email address",
}


def check_realm(entry: RealmEntry, at: str, mistakes: Mistakes) -> None:
    """Clauses: RFC 6749 §3.3, Appendix A.1, A.2"""
    note = mistakes.setdefault
    sources = ("introspection_endpoint", "userinfo_endpoint", "jwks_uri")
    needed = ("authorization_endpoint", "token_endpoint")
    for name in ("issuer", *needed, *sources):
        address = getattr(entry, name)
        if address and (mistake := find_server_mistake(address)):
            note(f"{at}{name}", mistake)
    if not is_vschar(entry.client_id):
        note(f"{at}client_id", "expected printable ASCII characters")
    if entry.client_secret and not is_vschar(entry.client_secret):
        note(f"{at}client_secret", "expected printable ASCII characters")
    items = entry.scope.split(" ") if entry.scope else []
    if not all(map(SCOPE_TOKEN.fullmatch, items)):
        note(f"{at}scope", "expected items of printable ASCII characters, separated by single spaces")
    if not is_unicode_without_line_ends(entry.username_claim):
        note(f"{at}username_claim", "expected the name of a claim, in one line")
    if entry.username_claim in _NON_IDENTIFYING_CLAIMS:
        note(f"{at}username_claim", "expected a claim that always identifies the same user")
    if entry.trust_email and entry.username_claim != EMAIL_CLAIM:
        note(f"{at}trust_email", f"expected username_claim: {EMAIL_CLAIM} in the same entry")
    _check_shown(f"{at}name", entry.name, mistakes)
    if entry.issuer:
        return
    for name in needed:
        if not getattr(entry, name):
            note(f"{at}{name}", "is missing, and there is no issuer whose metadata could contain it")
    if not any(getattr(entry, name) for name in sources):
        note(at.removesuffix("."), f"one of {', '.join(sources)} is needed to identify the user, or an issuer")
    elif not (entry.introspection_endpoint or entry.userinfo_endpoint):
        note(f"{at}issuer", "is missing: ID tokens are accepted from one issuer only")


def check_client(entry: ClientEntry, at: str, mistakes: Mistakes) -> None:
    note = mistakes.setdefault
    secret, secret_hash = entry.client_secret, entry.client_secret_hash
    if not is_vschar(entry.client_id) or len(entry.client_id) > MAX_CLIENT_ID_CHARACTERS:
        note(f"{at}client_id", f"expected 1 to {MAX_CLIENT_ID_CHARACTERS} printable ASCII characters")
    _check_shown(f"{at}client_name", entry.client_name, mistakes)
    if secret is not None and secret_hash is not None:
        note(f"{at}client_secret_hash", "expected client_secret or client_secret_hash, not both")
    if secret is not None and not (is_vschar(secret) and len(secret) <= MAX_PASSWORD_CHARACTERS):
        note(f"{at}client_secret", f"expected 1 to {MAX_PASSWORD_CHARACTERS} printable ASCII characters")
    if secret_hash is not None and not is_secret_hash(secret_hash):
        note(f"{at}client_secret_hash", "expected an argon2 hash in PHC form, or sha256: with its digest")
    rights = {"introspect": "introspect", "revoke_users": "revoke the tokens of users", "manage_users": "manage users"}
    for name, what in rights.items():
        if getattr(entry, name) and secret is None and secret_hash is None:
            note(f"{at}{name}", f"only a client with a secret can {what}")
    for name, find_mistake in (("redirect_uris", find_uri_mistake), ("cors_origins", find_origin_mistake)):
        for index, uri in enumerate(getattr(entry, name)):
            if mistake := find_mistake(uri):
                note(f"{at}{name}[{index}]", mistake)
    if AUTHORIZATION_CODE in entry.grant_types and not entry.redirect_uris:
        note(f"{at}redirect_uris", "the grant authorization_code needs at least one")
    allowed = _read_scope(entry.scope, f"{at}scope", mistakes)
    default = _read_scope(entry.default_scope, f"{at}default_scope", mistakes)
    if f"{at}scope" not in mistakes and not allowed.covers(default):
        note(f"{at}default_scope", "exceeds the client's scope")
    if len(default.realms) > 1:
        note(f"{at}default_scope", "expected at most one realm")


def check_user(entry: UserEntry, at: str, mistakes: Mistakes, min_password_characters: int) -> None:
    note = mistakes.setdefault
    password, password_hash = entry.password, entry.password_hash
    has_password = password is not None or password_hash is not None
    if not is_showable(entry.username) or len(entry.username) > MAX_NAME_CHARACTERS:
        note(f"{at}username", f"expected 1 to {MAX_NAME_CHARACTERS} characters {_IN_ONE_LINE}")
    if entry.realm == MAIN_REALM and not INVISIBLE_WITHIN.isdisjoint(entry.username):
        note(f"{at}username", "expected a name without invisible characters, and no white space except spaces")
    if entry.id and entry.realm != MAIN_REALM:
        note(f"{at}id", f"expected none: only users of realm {MAIN_REALM} have an id of their own")
    if entry.id and not ID_FORM.fullmatch(entry.id):
        note(f"{at}id", "expected 1 to 128 printable ASCII characters without spaces and %, and not beginning with ~")
    _check_shown(f"{at}name", entry.name, mistakes)
    if password is not None and password_hash is not None:
        note(f"{at}password_hash", "expected password or password_hash, not both")
    if entry.realm == MAIN_REALM and not has_password:
        note(f"{at}password", "password or password_hash is required")
    if entry.realm != MAIN_REALM and f"{at}realm" not in mistakes and has_password:
        note(f"{at}password", f"users of realm {entry.realm} log in at its identity provider and have no password here")
    if password is not None:
        mistake = find_password_mistake(password, min_password_characters, entry.username, entry.name)
        form = f"expected {min_password_characters} to {MAX_PASSWORD_CHARACTERS} characters in one line"
        if mistake is not None:
            note(f"{at}password", _PASSWORD_MISTAKES.get(mistake, form))
    if password_hash is not None and (hash_mistake := find_hash_mistake(password_hash)):
        note(f"{at}password_hash", hash_mistake)


def _check_shown(place: str, text: str, mistakes: Mistakes) -> None:
    if text and not (is_showable(text) and len(text) <= MAX_NAME_CHARACTERS):
        mistakes.setdefault(place, f"expected at most {MAX_NAME_CHARACTERS} characters {_IN_ONE_LINE}")


def _read_scope(text: str, place: str, mistakes: Mistakes) -> Scope:
    try:
        return parse_scope(text) if text else Scope()
    except InvalidScope as error:
        mistakes.setdefault(place, f"{error.description} Known items are {', '.join(SCOPE_ITEMS)}.")
        return Scope()
