"""The map of the token service.

Most requests are four steps: load facts, judge them with a pure function, commit with one Lua script, render the
response. A refresh loads only the client, and its script judges all that
can change with the session. A lookup of a token only reads.

The packages. Each imports only those above it.
tests/house/test_import_law.py holds the order, and which package may import which library.

    system/         calls of the operating system: processes, interrupts, private files; and where the program's own
                    files are
    protocol/       the rules as plain values and functions: no await, clock, randomness, Redis or HTTP
    redis_client/   a Redis client: connections, Sentinel and Cluster, durable writes, a lock; knows no key of ours
    gateway/        what an API imports to judge bearer tokens by itself: lookups from memory or Redis, middleware
    observability/  logs, security events, metrics, and the trace that a caller's request belongs to
    crypto/         opaque tokens, the keyring, password hashes and their threads
    embedded/       the Redis server that the service starts itself
    config/         the settings and what they mean
    store/          Redis: rooms for sessions, browsers and registry; one transition a Lua script, beside its Python;
                    every key name in store/keys.py
    registry/       clients, users and realms: caches of the workers, changes of records; seed_file/ applies a seed
    realms/         how a login is checked and throttled: by our own passwords, or at an identity provider, which
                    provider/ calls over HTTP, bounded in time and size
    web/            HTTP: middleware, how requests are read, the endpoints for programs (api), the pages for people
    admin/          the console behind scripts/admin: one subject a file
    serving/        the processes around uvicorn, and the listener of the metrics
    components      what a worker and the console share: all that works on one store
    worker          the components of one worker and its background loops
    routes          every path and its handler
    app             the application: the middleware in order, and the table from exception to answer

Three groups of packages do not import each other: system and protocol; crypto and embedded; web and admin.
protocol, redis_client and gateway use relative imports, and import no other package of the service.

Where the sections of the specification are kept:

    SPEC §1    three grants, form encoding      web/api/token.py, protocol/parameters.py
    SPEC §2.1  the token response               protocol/token_response.py, web/responses.py
    SPEC §2.2  scope, realms, roles             protocol/scope.py, realms/main.py, realms/external.py
    SPEC §2.3  client and user records          protocol/client.py, protocol/user.py, store/registry/
    SPEC §2.4  the error body                   protocol/errors.py, web/responses.py
    SPEC §3    the life of tokens               store/sessions/spend_refresh_token.lua, store/sessions/families.py
    SPEC §4.1  login and consent                protocol/authorization.py, web/pages/authorization.py,
                                                web/pages/consent.py, store/browsers/consents.py,
                                                store/browsers/allow_consent.lua
    SPEC §4.2  the token endpoint               web/api/token.py, protocol/authorization_code.py, protocol/verdicts.py
    SPEC §4.3  revoke                           web/api/revoke.py, store/sessions/end_family.lua
    SPEC §4.4  revokeAll                        web/api/revoke.py, store/sessions/revocations.py
    SPEC §4.5  bearer tokens                    protocol/bearer.py, store/sessions/access_tokens.py, gateway/lookup.py,
                                                gateway/bearer.py, web/api/verify.py,
                                                web/api/introspect.py, web/api/userinfo.py
    SPEC §5    who clients and users are        web/request/client_authentication.py, web/pages/cookies.py,
                                                realms/, registry/seed_file/read.py, store/browsers/browser_sessions.py
    SPEC §6    events                           observability/audit.py, observability/audit_stream.py, store/events.py,
                                                admin/commands/events.py
    SPEC §7    errors                           protocol/errors.py; the table from exception to answer in app.py
    SPEC §8    limits                           config/settings.py
    SPEC §9    the version in the path          routes.py
"""

__version__ = "1.0.0rc1"
