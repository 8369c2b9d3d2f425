"""Many concurrent guesses of a client's secret. The right one among them gains nothing from being cached."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from urllib.parse import quote_plus

import httpx2
import pytest

from tests.races.instances import InstancePair, all_at_once, open_connections, running_instances
from tests.support.clients_and_users import MADE_SECRET, READER, REVOKE, WEB_SHOP, OAuthClient, assert_error, basic
from tests.support.servers import start_redis, stop

ALLOWED = 5
GUESSES = 100
OTHER_ADDRESS = "198.51.100.1"

ADDRESSES = map("192.0.2.{}".format, count(1))
"""A new address for each test. A worker caches how long it refuses an address, and `clear` does not reach that."""


@pytest.fixture(scope="module")
def instances_behind_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InstancePair]:
    """Two instances that trust X-Forwarded-For.

    They run on one server, because the race is about the memory of the instances.
    """
    server = start_redis(tmp_path_factory.mktemp("redis"))
    with running_instances(
        tmp_path_factory.mktemp("secrets"),
        server,
        TOKEN_SERVICE_CLIENT_ATTEMPTS=f"{ALLOWED}/hour",
        TOKEN_SERVICE_TRUSTED_PROXIES="127.0.0.1",
    ) as instances:
        yield instances
    stop(server.process)


async def present(http: httpx2.AsyncClient, client: OAuthClient, address: str, *, by_header: bool) -> httpx2.Response:
    headers = {"X-Forwarded-For": address}
    if by_header:
        headers |= basic(client.client_id, client.client_secret or "")
        return await http.post(REVOKE, data={"token": "x"}, headers=headers)
    return await http.post(REVOKE, data=client.credentials | {"token": "x"}, headers=headers)


@pytest.mark.clause("decided-client-limit", "decided-limit-stops-checking", "6749-2.3.1-brute-force")
@pytest.mark.parametrize("instances", [1, 2])
@pytest.mark.parametrize(
    "by_header", [pytest.param(False, id="body", marks=pytest.mark.long), pytest.param(True, id="basic")]
)
@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET], ids=lambda client: client.client_id)
async def test_cached_secret_is_throttled_too(
    instances_behind_proxy: InstancePair, client: OAuthClient, by_header: bool, instances: int
) -> None:
    instances_behind_proxy.clear()
    address = next(ADDRESSES)
    async with replace(instances_behind_proxy, ports=instances_behind_proxy.ports[:instances]).http() as http:
        await open_connections(http)
        for _ in range(2 * instances):
            assert (await present(http, client, OTHER_ADDRESS, by_header=by_header)).status_code == 200
        guesses = [replace(client, client_secret=f"guess-{number}") for number in range(GUESSES)]

        answers = await all_at_once(
            [present(http, guess, address, by_header=by_header) for guess in [*guesses, client]]
        )

        *wrong, right = answers
        checked = [answer for answer in answers if answer.status_code in (200, 401)]
        assert 1 <= len(checked) <= ALLOWED
        assert {answer.status_code for answer in wrong} <= {401, 429, 503}
        assert right.status_code in (200, 429, 503)
        for answer in answers:
            if answer not in checked:
                assert int(answer.headers["retry-after"]) >= 1
        # This address has made no wrong guess.
        assert (await present(http, client, OTHER_ADDRESS, by_header=by_header)).status_code == 200


@pytest.mark.clause("decided-client-limit", "decided-limit-stops-checking", "6749-2.3.1-brute-force")
@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET], ids=lambda client: client.client_id)
async def test_flood_after_a_success_is_refused_too(instances_behind_proxy: InstancePair, client: OAuthClient) -> None:
    instances_behind_proxy.clear()
    address = next(ADDRESSES)
    async with replace(instances_behind_proxy, ports=instances_behind_proxy.ports[:1]).http() as http:
        await open_connections(http)
        assert (await present(http, client, address, by_header=False)).status_code == 200
        guesses = [replace(client, client_secret=f"guess-{number}") for number in range(GUESSES)]

        answers = await all_at_once([present(http, guess, address, by_header=False) for guess in [*guesses, client]])

        checked = [answer for answer in answers if answer.status_code in (200, 401)]
        assert 1 <= len(checked) <= ALLOWED
        assert answers[-1].status_code != 401
        assert_error(await present(http, client, address, by_header=False), 429, "invalid_client")


@pytest.mark.clause("decided-only-failures-count")
@pytest.mark.parametrize("client", [WEB_SHOP, MADE_SECRET], ids=lambda client: client.client_id)
async def test_concurrent_right_secrets_pass_without_counts(
    instances_behind_proxy: InstancePair, client: OAuthClient
) -> None:
    instances_behind_proxy.clear()
    address = next(ADDRESSES)
    async with instances_behind_proxy.http() as http:
        await open_connections(http)

        answers = await all_at_once([present(http, client, address, by_header=False) for _ in range(GUESSES)])

    assert [answer.status_code for answer in answers] == [200] * GUESSES
    assert not list(instances_behind_proxy.store.scan_iter("address:*"))


@pytest.mark.clause("decided-only-failures-count")
@pytest.mark.parametrize("bursts", [1, pytest.param(3, marks=pytest.mark.long)])
async def test_burst_with_the_known_secret_is_answered_completely(
    instances_behind_proxy: InstancePair, bursts: int
) -> None:
    """These are far more than may wait for one counter. One of them reserves room, and all pass with it."""
    instances_behind_proxy.clear()
    address = next(ADDRESSES)
    for _ in range(bursts):
        # The instances may close connections of an earlier burst while a request is on its way.
        async with instances_behind_proxy.http() as http:
            await open_connections(http)
            answers = await all_at_once([present(http, MADE_SECRET, address, by_header=True) for _ in range(600)])

        assert {answer.status_code for answer in answers} == {200}


@pytest.mark.clause("decided-only-failures-count", "decided-basic-encoded-and-raw", "decided-client-limit")
@pytest.mark.parametrize("wrong", [0, 4 * ALLOWED])
async def test_both_spellings_of_a_secret_pass_among_wrong_ones(
    instances_behind_proxy: InstancePair, wrong: int
) -> None:
    """The secret of reader holds `%` and `+`, so that Basic has two readings of it."""
    instances_behind_proxy.clear()
    address = next(ADDRESSES)
    encoded = replace(READER, client_secret=quote_plus(READER.client_secret or ""))
    guesses = [replace(READER, client_secret=f"guess+{number}") for number in range(wrong)]
    async with instances_behind_proxy.http() as http:
        await open_connections(http)

        answers = await all_at_once(
            [present(http, app, address, by_header=True) for app in [READER, encoded] * 50 + guesses]
        )

    rights, wrongs = answers[:100], answers[100:]
    assert {answer.status_code for answer in rights} <= ({200, 429, 503} if wrong else {200})
    assert sum(answer.status_code == 401 for answer in wrongs) <= ALLOWED
    failed = {instances_behind_proxy.store.get(key) for key in instances_behind_proxy.store.scan_iter("address:*")}
    assert failed == ({str(ALLOWED)} if wrong else set())
