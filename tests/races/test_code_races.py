"""Many concurrent exchanges of one code: at most one wins, and the other attempts end its session."""

import httpx2
import pytest

from service.worker import Worker
from tests.conftest import make_code
from tests.races.instances import CONCURRENT_REQUESTS, InstancePair, all_at_once, is_live
from tests.support.clients_and_users import (
    PHONE_APP,
    PHONE_CALLBACK,
    SHOP_CALLBACK,
    WEB_SHOP,
    OAuthClient,
    assert_error,
    tokens_of,
)

ROUNDS = 4


@pytest.mark.clause("decided-i1-one-winner", "decided-second-exchange-ends-family", "6749-4.1.2-second-use-denied")
@pytest.mark.clause("6749-10.5-short-lived-single-use", "6819-5.1.5.4-one-time-use")
@pytest.mark.clause("6819-5.2.1.1-derived-tokens-revoked")
@pytest.mark.parametrize(("client", "callback"), [(PHONE_APP, PHONE_CALLBACK), (WEB_SHOP, SHOP_CALLBACK)])
async def test_concurrent_exchanges_of_one_code_end_its_session(
    instances: InstancePair, http: httpx2.AsyncClient, worker: Worker, client: OAuthClient, callback: str
) -> None:
    for _ in range(ROUNDS):
        code = await make_code(worker, client=client, redirect_uri=callback)

        answers = await all_at_once([client.exchange(http, code, callback) for _ in range(CONCURRENT_REQUESTS)])

        won = [answer for answer in answers if answer.status_code == 200]
        assert len(won) == 1
        for answer in answers:
            if answer is not won[0]:
                assert_error(answer, 400, "invalid_grant")
        assert not await is_live(instances, http, client, dict(tokens_of(won[0])))


@pytest.mark.clause("decided-i1-one-winner", "decided-wrong-exchange-leaves-the-code")
async def test_code_survives_exchanges_by_another_client(
    instances: InstancePair, http: httpx2.AsyncClient, worker: Worker
) -> None:
    for place in (0, CONCURRENT_REQUESTS // 2, CONCURRENT_REQUESTS):
        code = await make_code(worker)
        requests = [WEB_SHOP.exchange(http, code, PHONE_CALLBACK) for _ in range(CONCURRENT_REQUESTS)]
        requests.insert(place, PHONE_APP.exchange(http, code, PHONE_CALLBACK))

        answers = await all_at_once(requests)

        tokens = tokens_of(answers.pop(place))
        for answer in answers:
            assert_error(answer, 400, "invalid_grant")
        assert await is_live(instances, http, PHONE_APP, dict(tokens))
