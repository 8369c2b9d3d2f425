"""Users of an external realm without a record have its default roles, and lose sessions together with a role."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
import pytest
import redis

from service.protocol.provider import IdentityProvider
from service.protocol.token_form import RandomToken
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.entries import Seed
from service.registry.seed_file.read import parse_seed
from service.worker import Worker
from tests.registry.seeds import SeedText
from tests.store.sessions import Session, Sessions
from tests.support.clients_and_users import ALICE, UserCredentials

ZOE, YVES, LISTED = (UserCredentials(name, "", realm="cep") for name in ("zoe", "yves", "listed"))
ENDUSER, PARTNER, BOTH = (
    f"realm:cep {roles}" for roles in ("role:enduser", "role:partner", "role:enduser role:partner")
)


def make_seed(default_roles: str = "enduser, partner", *, users: dict[str, str] | None = None) -> Seed:
    """Return the small seed with a realm whose users are listed with these roles."""
    listed = "".join(
        f"  - {{username: {name}, realm: cep, roles: [{roles}]}}\n"
        for name, roles in ({"listed": "enduser, partner"} | (users or {})).items()
    )
    realm = f'issuer: "https://login.example.org", default_roles: [{default_roles}]'
    text = SeedText().text.replace('issuer: "https://login.example.org"', realm)
    return parse_seed((text + listed).encode())


@dataclass
class RoleSessions:
    """A session or a code for each way in which a user's roles can be needed."""

    sessions: Sessions
    by_name: dict[str, Session]
    code: RandomToken

    @classmethod
    async def start(cls, sessions: Sessions) -> RoleSessions:
        by_name = {
            "zoe, enduser": await sessions.start(ZOE, scope=ENDUSER),
            "zoe, partner": await sessions.start(ZOE, scope=PARTNER),
            "yves, enduser": await sessions.start(YVES, scope=ENDUSER),
            "listed, both": await sessions.start(LISTED, scope=BOTH),
            "alice, main": await sessions.start(ALICE),
        }
        return cls(sessions, by_name, await sessions.issue_code(YVES, scope=ENDUSER))

    @property
    def ended(self) -> set[str]:
        ended = {name for name, session in self.by_name.items() if not self.sessions.record(session)}
        assert ended == {name for name, session in self.by_name.items() if not self.sessions.live(session)[0]}
        return ended if self.sessions.code_is_there(self.code) else ended | {"yves, code"}


ZOES = {"zoe, enduser", "zoe, partner"}
YVES_ALL = {"yves, enduser", "yves, code"}


@pytest.mark.clause("decided-default-roles-narrowed")
@pytest.mark.parametrize(
    ("after", "ended"),
    [
        pytest.param(make_seed(), set(), id="nothing changed"),
        pytest.param(make_seed("enduser"), ZOES, id="a role taken away"),
        pytest.param(make_seed(""), ZOES | YVES_ALL, id="no role left"),
        pytest.param(make_seed(users={"zoe": "enduser"}), ZOES, id="listed with fewer roles"),
        pytest.param(make_seed("enduser", users={"zoe": "enduser, partner"}), set(), id="listed with what was taken"),
        pytest.param(make_seed("enduser", users={"zoe": "enduser"}), ZOES, id="listed, and the role taken away"),
    ],
)
async def test_only_users_with_a_lost_role_are_ended(
    sessions: Sessions, seeding: Seeding, after: Seed, ended: set[str]
) -> None:
    """All sessions of the user end, as for a listed user who loses a role."""
    await seeding.apply(make_seed())
    started = await RoleSessions.start(sessions)
    await seeding.apply(after)

    assert started.ended == ended
    assert await sessions.worker.registry.list_pending_scans("pending_realm_scans") == {}


@pytest.mark.clause("decided-i5-organisation-secret-encrypted", "6819-5.1.4.1.3-realm-secret-encrypted")
async def test_a_realm_is_kept_whole_and_its_secret_sealed(
    worker: Worker, seeding: Seeding, store: redis.Redis
) -> None:
    await seeding.apply(make_seed())
    record = await worker.registry.realms.find("cep")

    assert record is not None
    assert record.sealed_secret
    assert "secret-at-the-organisation" not in str(store.get("realm:{registry}:cep"))
    assert msgspec.structs.replace(record, sealed_secret="") == IdentityProvider(
        client_id="us", issuer="https://login.example.org", default_roles=("enduser", "partner")
    )
