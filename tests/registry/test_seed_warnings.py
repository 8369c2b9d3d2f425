"""Warnings about a seed file, and what is stored of the length of a client's secret."""

import pytest

from service.crypto.password_hashing import hash_password
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.read import parse_seed
from service.worker import Worker


def clients(**fields: str) -> bytes:
    """Return a seed with one client for each name, whose entry has this field as well."""
    return (
        "clients:"
        + "".join(f"\n- {{client_id: {name}, grant_types: [refresh_token], {field}}}" for name, field in fields.items())
    ).encode()


@pytest.mark.clause("decided-short-secret-warned")
async def test_short_client_secrets_are_warned_of_and_taken(seeding: Seeding, worker: Worker) -> None:
    short, long, hashed = (
        "client_secret: nineteen-characters",
        "client_secret: twenty-characters-or",
        hash_password("x"),
    )
    seed = parse_seed(clients(one=short, other=long, third=f"client_secret_hash: {hashed!r}", public="scope: ''"))
    warning = "client secrets shorter than 20 characters can be guessed: one"

    assert (await seeding.compare(seed)).warnings == (warning,)
    assert (await seeding.apply(seed)).warnings == (warning,)
    found = await worker.registry.clients.list_all()
    remembered = {client_id: client.has_short_secret for client_id, client in found.items()}
    assert remembered == {"one": True, "other": False, "public": False, "third": False}


async def test_records_that_cannot_work_are_warned_of_once_and_taken(seeding: Seeding) -> None:
    """The warnings come when an entry is applied, and not at each start."""
    seed = parse_seed(
        b"""
realms: {foo: {client_id: us, issuer: 'https://a.example', username_claim: email, trust_email: true}}
clients:
- {client_id: idle}
- {client_id: keeper, client_secret: a secret of twenty characters, manage_users: true}
- {client_id: mute, grant_types: [password]}
- {client_id: open, grant_types: [authorization_code], scope: 'realm:main', redirect_uris: ['http://shop.example/']}
- {client_id: star, grant_types: [authorization_code], scope: 'realm:main', redirect_uris: ['https://*.example/']}
users:
- {username: dave, password: long enough, roles: [enduser]}
- {username: erin@example.com, password: long enough}
"""
    )

    risk, *others = (await seeding.apply(seed)).warnings
    assert risk.startswith("realm foo: trust_email: ")
    assert others == [
        "foo: this realm cannot be used: only main, cep can appear in a scope",
        "idle: it can do nothing: it has no grant type, and none of introspect, revoke_users or manage_users",
        "keeper: it has no scope, so it can manage only users without roles, who cannot log in",
        "mute: it has no scope, so all of its requests are rejected",
        "open: codes are sent unencrypted to http://shop.example/",
        "star: the * in https://*.example/ matches only a *: register each redirect URI separately",
        "dave: user names of realm main should be email addresses",
        "erin@example.com: the user has no role, so they cannot log in",
    ]
    assert (await seeding.apply(seed, force=True)).warnings == (risk,)
