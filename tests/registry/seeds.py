"""A small seed with parts that a test may change, and its application over a connection of the test."""

from __future__ import annotations

from dataclasses import dataclass, replace

from service.crypto.keyring import Keyring
from service.crypto.password_hashing import hash_password
from service.protocol.client import Lifetimes
from service.registry.pending_revocations import PendingRevocations
from service.registry.seed_file.apply import Seeding
from service.registry.seed_file.entries import Seed
from service.registry.seed_file.read import parse_seed
from service.store.client import StoreClient
from service.store.registry.store import RegistryStore
from service.store.reports.session_scan import SessionScan
from service.store.sessions.families import Families
from service.store.sessions.revocations import Revocations
from tests.store.sessions import DEFAULT_LIFETIMES

KEY_ONE, KEY_TWO = b"1" * 32, b"2" * 32
SECRET_HASH, PASSWORD_HASH, OTHER_HASH = hash_password("secret"), hash_password("password"), hash_password("other")

SEED_TEXT = """
realms:
  cep: {{client_id: us, client_secret: secret-at-the-organisation, issuer: "https://login.example.org"}}
clients:
  - {{client_id: phone-app, grant_types: [{grants}], scope: "{scope}", redirect_uris: ["{redirect_uri}"]}}
  - {{client_id: web-shop, client_secret_hash: "{secret_hash}", grant_types: [password, refresh_token],
     scope: "realm:main role:enduser"}}
users:
  - {{username: alice@example.com, password_hash: "{password_hash}", roles: [{roles}], name: {name}}}
  - {{username: bob@example.com, password_hash: "{bobs_hash}", roles: [enduser]}}
"""


@dataclass(frozen=True)
class SeedText:
    """The text of a seed with ready hashes, so that applying it is quick."""

    grants: str = "password, authorization_code, refresh_token"
    scope: str = "realm:main role:enduser role:organisation"
    redirect_uri: str = "https://phone.example/x"
    secret_hash: str = SECRET_HASH
    password_hash: str = PASSWORD_HASH
    bobs_hash: str = PASSWORD_HASH
    roles: str = "enduser, organisation"
    name: str = "Alice"

    def but(self, **changes: str) -> SeedText:
        return replace(self, **changes)

    @property
    def text(self) -> str:
        return SEED_TEXT.format(**vars(self))

    @property
    def seed(self) -> Seed:
        return parse_seed(self.text.encode())


def make_seeding(
    connection: StoreClient,
    *secret_keys: bytes,
    lifetimes: Lifetimes = DEFAULT_LIFETIMES,
    scan_delay_seconds: float = 0,
) -> Seeding:
    """Return the seeding of a process with these keys.

    A sweep does not wait for requests under the old registration, since there are none.
    """
    registry = RegistryStore(connection)
    session_scan = SessionScan(connection, Families(connection, lifetimes))
    pending_revocations = PendingRevocations(
        registry, Revocations(connection), session_scan, scan_delay_seconds=scan_delay_seconds
    )
    return Seeding(registry, Keyring(secret_keys or (KEY_ONE,)), pending_revocations, batch_pause_seconds=0)
