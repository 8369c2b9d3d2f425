"""The map of the token service.

Every request is four steps: load facts, judge them with a pure function, commit with one Lua script, render the answer.
Python decides the words, Lua decides the race.

The layers, from the inside out; each may import those above it, none those below it:

    protocol/     the rules as plain values and functions: no await, clock, randomness, Redis or HTTP
    tokens        random tokens: their form and digest
    credentials   what is signed or sealed with the service's keys; hashing: passwords and secrets, in bounded threads
    store/        Redis: one noun a file, one transition a Lua script; every key name in store/keys.py
    gateway/      what an API imports to judge bearer tokens by itself: lookups from memory or Redis, middleware
    registry/     clients, users and realms: the seed file, how it is applied, each worker's cache
    realms/       how a login is checked and throttled: by our own passwords, or at an organisation's server
    rendering     pages: templates, their texts and colours
    endpoints/    HTTP: one file an address
    admin/        the console behind scripts/admin: one subject a file
    app           the composition root: puts the parts together; nothing but the start imports it

The import law in short: only `store` imports the Redis client, only `realms` what speaks to other servers, only
`metrics` the client of Prometheus, only `endpoints`, `app` and the gateway's backend for it import Starlette, and
`protocol` imports nothing else of ours. The start stands beside the layers: settings and what they mean (`configured`),
logs, lifeline, and serving/ with the supervisor of the processes and the listener of the metrics. The security events
have their names in `audit` and their way to Redis in `trail`, the metrics theirs in `metrics`, and what the log and the
caller hear of an outage stands in `outage`.

Where the sections of the specification are kept:

    SPEC §1    three grants, form encoding        endpoints/token.py, protocol/parameters.py
    SPEC §2.1  the token response                 protocol/token_response.py, endpoints/answers.py
    SPEC §2.2  scope, realms, roles               protocol/scope.py; realms/{main,external}.py
    SPEC §2.3  client and user records            protocol/client.py, protocol/user.py, store/registry.py
    SPEC §2.4  the error body                     protocol/{errors,refusal}.py, endpoints/answers.py
    SPEC §3    the life of tokens                 store/lua/spend_refresh_token.lua, store/families.py
    SPEC §4.1  login and consent                  protocol/authorization.py; endpoints/{authorization,login,consent}.py,
                                                  store/consents.py, store/lua/allow_consent.lua
    SPEC §4.2  the token endpoint                 endpoints/token.py; protocol/authorization_code.py, protocol/pkce.py
    SPEC §4.3  revoke                             endpoints/revoke.py, store/lua/end_family.lua
    SPEC §4.4  revokeAll                          endpoints/revoke_all.py, store/revocations.py
    SPEC §4.5  bearer tokens                      protocol/bearer.py, store/access_tokens.py;
                                                  gateway/{lookup,bearer}.py, endpoints/{verify,introspect}.py
    SPEC §5    who clients and users are          endpoints/{client_authentication,browser,external_login}.py, realms/,
                                                  registry/seed.py, store/browser_sessions.py
    SPEC §6    events                             audit.py, trail.py, store/events.py, admin/events.py
    SPEC §7    errors                             protocol/errors.py; the table from exception to answer in app.py
    SPEC §8    limits                             settings.py
    SPEC §9    the version in the path            app.py
"""

__version__ = "0.1.0"
