"""Many concurrent requests about one user: one creates it, and no session outlives its deletion."""

from collections import Counter
from functools import partial

import httpx2
import pytest

from service.protocol.user import identify_user
from service.worker import Worker
from tests.races.instances import InstancePair, all_at_once, is_live, until_available
from tests.support.clients_and_users import PHONE_APP, UserCredentials, delete_user, put_user

CONTENDERS = 50
LOGINS = 12
EVE = UserCredentials("eve@example.com", "a password of Eve's")
SIGN_UP = {"password": EVE.password, "roles": ["enduser"]}


@pytest.mark.clause("decided-managed-users-new-only", "decided-i1-one-winner")
async def test_one_of_many_sign_ups_creates_the_user(
    instances: InstancePair, worker: Worker, http: httpx2.AsyncClient
) -> None:
    bodies = [SIGN_UP | {"name": f"Eve {number}"} for number in range(CONTENDERS)]
    sign_up = partial(put_user, http, EVE.username, headers={"If-None-Match": "*"})
    answers = await all_at_once([until_available(partial(sign_up, body)) for body in bodies])
    user = await worker.registry.users.find(identify_user("main", EVE.username))
    await until_available(partial(delete_user, http, EVE.username))

    assert Counter(answer.status_code for answer in answers) == {201: 1, 412: CONTENDERS - 1}
    (winner,) = [number for number, answer in enumerate(answers) if answer.status_code == 201]
    assert user is not None
    assert user.name == f"Eve {winner}"


@pytest.mark.clause("decided-managed-users", "decided-i7-revocation-is-final")
@pytest.mark.parametrize("place", [0, LOGINS // 2, LOGINS])
async def test_no_session_outlives_the_deletion_of_its_user(
    instances: InstancePair, worker: Worker, http: httpx2.AsyncClient, place: int
) -> None:
    """A new password, logins and the deletion race; afterwards the name is taken anew, which revives nothing."""
    await until_available(partial(put_user, http, EVE.username, SIGN_UP))
    logins = [PHONE_APP.log_in(http, EVE) for _ in range(LOGINS)]
    reset = until_available(partial(put_user, http, EVE.username, SIGN_UP))
    deletion = until_available(partial(delete_user, http, EVE.username))

    answers = await all_at_once([*logins[:place], reset, deletion, *logins[place:]])
    await until_available(partial(delete_user, http, EVE.username))  # the reset may have created the user again
    await until_available(partial(put_user, http, EVE.username, SIGN_UP))

    started = [answer.json() for answer in answers if "access_token" in answer.text]
    assert not [body for body in started if await is_live(instances, http, PHONE_APP, body)]
    assert not await worker.registry.has_pending()
    await until_available(partial(delete_user, http, EVE.username))
