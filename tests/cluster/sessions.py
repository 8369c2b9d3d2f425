"""Sessions of many users, spread over a cluster."""

from service.crypto.keyring import Keyring
from service.gateway.access_record import access_key
from service.protocol.token_form import parse_access_token
from service.protocol.user import User, identify_user
from service.store.keys import family_key
from service.worker import Worker
from tests.cluster.nodes import Cluster
from tests.conftest import SECRET_KEY
from tests.faults import deployment as faults
from tests.support.clients_and_users import ALICE, UserCredentials

KEYRING = Keyring((SECRET_KEY.encode(),))


PEOPLE = tuple(UserCredentials(f"user-{number}@example.com", ALICE.password) for number in range(30))


Tokens = dict[str, str]


async def start_session(worker: Worker, credentials: UserCredentials, client_id: str = "phone-app") -> Tokens:
    """Start a session of a user, with or without a record, as a login does."""
    identity = identify_user(credentials.realm, credentials.username)
    user = await worker.registry.users.find(identity) or User(realm=credentials.realm, username=credentials.username)
    access_token, refresh_token = await faults.start_session(worker, user, client_id)
    return {"access_token": access_token, "refresh_token": refresh_token}


def is_known(cluster: Cluster, tokens: Tokens) -> tuple[bool, bool]:
    """Return whether the access token and the family are in the cluster."""
    access_token = parse_access_token(tokens["access_token"])
    refresh_token = KEYRING.parse_refresh_token(tokens["refresh_token"])
    assert access_token is not None
    assert refresh_token is not None
    return (
        cluster.client.exists(access_key(access_token.shard, access_token.digest)) == 1,
        cluster.client.exists(family_key(refresh_token.shard, refresh_token.family_digest)) == 1,
    )
