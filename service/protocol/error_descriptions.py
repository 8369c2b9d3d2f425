"""The error descriptions that are sent to callers, by the reason of the error.

Reasons that a caller must not be able to distinguish share one description.

Clauses: RFC 6749 §5.2, RFC 6750 §3, SPEC §2.4
"""

from __future__ import annotations

from typing import Final

_WRONG_CLIENT: Final = "Client authentication failed: unknown client, or a wrong, missing or unexpected client secret."


_WRONG_LOGIN: Final = "The user name or the password is wrong."


_DEAD_REFRESH_TOKEN: Final = "The refresh token is unknown, expired or revoked, or was issued to another client."


_DEAD_CODE: Final = "The authorization code is unknown, expired or already used, or was issued to another client."


_TOO_MANY_CHECKS: Final = "The service is checking too many passwords or secrets at the moment; try again in a moment."


_PROVIDER_AWAY: Final = (
    "The identity provider that checks this login does not answer at the moment; try again in a moment."
)


_NOT_ADMITTED: Final = "The user may not log in here."


_MISSING_SCOPE: Final = "The access token does not have all of the scope that is needed."


_DEAD_ACCESS_TOKEN: Final = "The access token is unknown, expired or revoked."


DESCRIPTIONS: Final[dict[str, str]] = {
    # HTTP and the form
    "content_type_differs": "The request body must have the content type application/x-www-form-urlencoded, in UTF-8.",
    "form_malformed": "The request body is not valid application/x-www-form-urlencoded text in UTF-8.",
    "form_too_large": "The request body is larger than 64 KiB.",
    "form_too_slow": "The request body did not arrive in time.",
    "request_malformed": "Malformed HTTP request.",
    "parameter_repeated": "{name} was sent more than once.",
    "parameter_missing": "The parameter {name} is missing or empty.",
    "parameter_malformed": "The parameter {name} contains characters that are not allowed in it.",
    "parameters_too_many": "The form or the query has more than 128 parameters.",
    "parameter_in_query": "Send {name} in the request body, not in the URI.",
    "host_not_one": "A request of HTTP/1.1 has exactly one Host header, and one of HTTP/1.0 at most one.",
    "headers_too_many": "The request has more than 256 headers, or more than 256 trailers.",
    "path_too_long": "The path of the address is longer than 4 KiB.",
    "body_in_too_many_chunks": (
        "The body comes in more than 256 chunks, or its chunk headers are too long. Send larger chunks."
    ),
    "head_too_large": "The address and the headers of the request are larger than 64 KiB together.",
    "head_too_slow": "The address and the headers of the request did not arrive in time.",
    "unknown_path": "Nothing is served at this address. Paths are case-sensitive, a slash at their end included.",
    "method_not_allowed": "This address does not answer this method; use {name}.",
    # The client
    "client_authenticated_twice": "The client authenticates twice, or under two names; use HTTP Basic or the body.",
    "client_missing": "Client authentication is missing: send HTTP Basic or client_id (and client_secret) in the body.",
    "client_unknown": _WRONG_CLIENT,
    "client_secret_wrong": _WRONG_CLIENT,
    "client_secret_missing": _WRONG_CLIENT,
    "client_secret_unexpected": _WRONG_CLIENT,
    "basic_malformed": "The Authorization header is not a valid HTTP Basic credential.",
    "client_throttled": "Too many failed client authentications from this address; try again later.",
    "grant_type_not_registered": "This client is not registered for this grant type.",
    "introspection_not_registered": "This client is not registered for introspection.",
    "grant_type_unknown": "The grant type is not supported; use authorization_code, password or refresh_token.",
    # The authorization request
    "client_unregistered": "No application is registered under this client_id.",
    "redirect_uri_unregistered": "The redirect_uri is not one that the application registered.",
    "state_too_long": "The parameter state is longer than 8 KiB; control characters count six times.",
    "response_type_unknown": "The response_type is not supported; use code.",
    "code_challenge_missing": "This client must send a code_challenge with code_challenge_method=S256.",
    "code_challenge_malformed": "The code_challenge must be a SHA-256 in base64url: 43 characters without padding.",
    "code_challenge_method_unsupported": "The code_challenge_method must be S256.",
    "user_denied": "The user refused the request.",
    "provider_denied": "The identity provider refused the login.",
    "user_not_admitted": _NOT_ADMITTED,
    "email_not_verified": _NOT_ADMITTED,
    "user_without_role": "The user has none of the roles that were asked for.",
    # The scope
    "scope_missing": "The parameter scope is missing: name exactly one realm and one role.",
    "scope_malformed": "The scope is malformed; separate items of the form realm:NAME or role:NAME by single spaces.",
    "scope_item_unknown": "The scope contains an item that is not a known realm:NAME or role:NAME.",
    "scope_item_repeated": "The scope contains an item twice.",
    "scope_not_one_realm_one_role": "The scope must contain exactly one realm and exactly one role.",
    "scope_without_default": "The parameter scope is missing, and no default is registered for this client.",
    "scope_of_two_realms": "The scope may contain one realm at most.",
    "scope_without_role": "The scope must contain a role.",
    "scope_beyond_client": "The scope goes beyond what this client may ask for.",
    "scope_beyond_user": "The scope goes beyond what this user has.",
    "scope_beyond_grant": "The scope goes beyond what was originally granted.",
    "realm_without_login": "No login is configured for the realm in the scope.",
    # The grants
    "user_unknown": _WRONG_LOGIN,
    "user_disabled": _WRONG_LOGIN,
    "user_changed": _WRONG_LOGIN,
    "provider_doubts_email": _WRONG_LOGIN,
    "password_wrong": _WRONG_LOGIN,
    "login_throttled": "Too many failed logins; try again later.",
    "code_unknown": _DEAD_CODE,
    "code_of_another_client": _DEAD_CODE,
    "code_revoked": _DEAD_CODE,
    "code_repeated": _DEAD_CODE,
    "code_scope_withdrawn": "This client may no longer ask for the scope of this authorization code.",
    "redirect_uri_differs": "redirect_uri does not match the one in the authorization request.",
    "code_verifier_missing": "The parameter code_verifier is missing: the code was asked for with a code_challenge.",
    "code_verifier_wrong": "The code_verifier does not match the code_challenge.",
    "code_verifier_unexpected": "A code_verifier was sent for a code that was asked for without a code_challenge.",
    "refresh_token_malformed": _DEAD_REFRESH_TOKEN,
    "refresh_token_unknown": _DEAD_REFRESH_TOKEN,
    "refresh_token_of_another_client": _DEAD_REFRESH_TOKEN,
    "refresh_token_replayed": "The refresh token was used before and its grace period is over; the session has ended.",
    "refresh_token_scope_withdrawn": "This client may no longer ask for the scope of this refresh token.",
    "refresh_without_secret": "This refresh token was obtained with a client secret and must be used with one.",
    # The bearer
    "bearer_repeated": "The request carries more than one Authorization header.",
    "access_token_unknown": _DEAD_ACCESS_TOKEN,
    "needed_scope_malformed": "The scope that is needed is malformed: one parameter, items separated by single spaces.",
    "needed_scope_unknown": _MISSING_SCOPE,
    "needed_scope_missing": _MISSING_SCOPE,
    # The service
    "store_unavailable": "The service cannot reach its store at the moment; try again in a moment.",
    "hashing_queue_full": _TOO_MANY_CHECKS,
    "checks_queue_full": _TOO_MANY_CHECKS,
    "provider_unavailable": _PROVIDER_AWAY,
    "provider_busy": _PROVIDER_AWAY,
    "provider_spared": (
        "The identity provider refused too many logins from this address or with this user name; try again later."
    ),
    "seed_not_in_force": "Clients and users are being loaded at the moment; try again in a moment.",
    "registry_locked": "Clients and users are being changed at the moment; try again in a moment.",
    "pages_throttled": "Too many requests from this address; try again later.",
    "unforeseen": "The service met an unexpected condition.",
}
