"""A login of an unknown user costs the same hash as a wrong password, over HTTP, so its duration reveals no account.

`test_login_costs_alike.py` proves that both send the same commands to Redis.
"""

from dataclasses import replace

import httpx2
import pytest

from service.crypto.password_hashing import hash_password
from service.protocol.user import User
from service.worker import Worker
from tests.support.clients_and_users import ALICE, PHONE_APP, UserCredentials
from tests.support.password_hashes import FULL_COST, recording_hashes

pytestmark = pytest.mark.usefixtures("real_hashes")


@pytest.mark.clause("decided-unknown-user-costs-the-same")
@pytest.mark.parametrize(
    ("password", "hashes"),
    [
        pytest.param("wrong", 1, id="a usual password"),
        pytest.param("x" * 2000, 1, id="a very long one"),
        pytest.param("a\u0308" * 900, 1, id="a very long one with loose accents"),
        pytest.param("wa\u0308re", 2, id="one with loose accents"),
    ],
)
async def test_an_unknown_user_takes_the_work_of_a_wrong_password(
    http: httpx2.AsyncClient, worker: Worker, password: str, hashes: int
) -> None:
    await worker.registry.users.put(User(realm="main", username=ALICE.username, password_hash=hash_password("right")))
    for credentials in (replace(ALICE, password=password), UserCredentials("nobody@example.com", password)):
        with recording_hashes() as costs:
            response = await PHONE_APP.log_in(http, credentials)

        assert response.status_code == 400
        assert costs == hashes * [FULL_COST], credentials.username
