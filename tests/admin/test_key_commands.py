"""`key list · adopt`, and an instance whose secret key is not in use in its store."""

import httpx2
import pytest

from service.crypto.keyring import Keyring
from service.worker import Worker
from tests.admin.conftest import Admin
from tests.conftest import SECRET_KEY, Clock, MakeSettings, make_code, serving
from tests.support.browser import LOGIN, Browser, authorization_url, is_consent_page, is_login_page
from tests.support.clients_and_users import (
    ALICE,
    AUDITOR,
    PHONE_APP,
    PHONE_CALLBACK,
    VERIFY,
    assert_error,
    bearer,
    tokens_of,
)
from tests.support.waiting import until_status

OTHER_KEY = "another secret key of 32 bytes or more"
(OURS,), (OTHER,) = (Keyring([key.encode()]).key_ids for key in (SECRET_KEY, OTHER_KEY))

pytestmark = pytest.mark.clause("decided-secret-key-foreign")


async def await_readiness(http: httpx2.AsyncClient, status: int) -> None:
    await until_status(lambda: http.get("/readyz"), status)


@pytest.mark.parametrize("has_seed", [True, False])
async def test_foreign_instance_refuses_nothing_for_good(
    http: httpx2.AsyncClient, admin: Admin, make_settings: MakeSettings, clock: Clock, has_seed: bool
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    variables = {} if has_seed else {"TOKEN_SERVICE_SEED_FILE": ""}
    async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=OTHER_KEY, **variables), clock) as foreign:
        unready = await foreign.get("/readyz")
        answers = [
            await PHONE_APP.refresh(foreign, tokens["refresh_token"]),
            await PHONE_APP.log_in(foreign, ALICE),
            await PHONE_APP.exchange(foreign, "a code", PHONE_CALLBACK),
            await PHONE_APP.revoke(foreign, tokens["refresh_token"]),
            await AUDITOR.introspect(foreign, tokens["refresh_token"]),
        ]

        assert (unready.status_code, "configured secret keys belongs to this Redis" in unready.text) == (503, True)
        for answer in answers:
            assert_error(answer, 503, "temporarily_unavailable")
            assert answer.headers["retry-after"] == "1"
        for page in (await foreign.get(authorization_url()), await foreign.post(LOGIN, data={"username": "a"})):
            assert (page.status_code, page.headers["retry-after"]) == (503, "1")
        assert (await foreign.get("/authorization/assets/page.css")).status_code == 200
        assert (await foreign.get(VERIFY, headers=bearer(tokens["access_token"]))).status_code == 200
        assert (await PHONE_APP.refresh(http, tokens["refresh_token"])).status_code == 200


async def test_adopting_a_key_makes_its_instance_ready(
    admin: Admin, environment: dict[str, str], make_settings: MakeSettings, clock: Clock
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=OTHER_KEY), clock) as http:
        await await_readiness(http, 503)
        environment["TOKEN_SERVICE_SECRET_KEY"] = OTHER_KEY
        doctor = await admin("doctor", "--json")
        adopted = await admin("key", "adopt", "--json")
        await await_readiness(http, 200)

        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
    (found,) = [each for each in doctor.json if each["subject"] == "TOKEN_SERVICE_SECRET_KEY"]
    assert (doctor.status, found["level"]) == (1, "error")
    assert adopted.json == {"keys": [OTHER], "removed": []}
    assert (await admin("key", "list", "--json")).json == [
        {"key": OTHER, "in_use": True, "configured": True},
        {"key": OURS, "in_use": True, "configured": False},
    ]


async def test_adopting_only_one_key_stops_a_stolen_one(
    http: httpx2.AsyncClient, admin: Admin, environment: dict[str, str]
) -> None:
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    environment["TOKEN_SERVICE_SECRET_KEY"] = OTHER_KEY

    unanswered = await admin("key", "adopt", "--only", "--json")
    assert (unanswered.status, OURS in unanswered.aside) == (1, True)
    await await_readiness(http, 200)

    assert (await admin("key", "adopt", "--only", "--yes", "--json")).json == {"keys": [OTHER], "removed": [OURS]}
    await await_readiness(http, 503)
    assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 503, "temporarily_unavailable")
    events = (await admin("events", "--json")).lines
    assert (events[-1]["event"], events[-1]["count"]) == ("secret_keys_adopted", 1)


async def test_dropped_key_leaves_what_it_did_not_sign(
    http: httpx2.AsyncClient,
    admin: Admin,
    environment: dict[str, str],
    worker: Worker,
    make_settings: MakeSettings,
    clock: Clock,
) -> None:
    """Refresh tokens and open forms are refused at once. `revoke-all --everything` ends what is random."""
    tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
    browser = Browser(http)
    form = await browser.open_consent_page(authorization_url())
    codes = [await make_code(worker) for _ in range(2)]
    environment["TOKEN_SERVICE_SECRET_KEY"] = OTHER_KEY
    await admin("key", "adopt", "--only", "--yes")
    async with serving(make_settings(TOKEN_SERVICE_SECRET_KEY=OTHER_KEY), clock) as renewed:
        await await_readiness(renewed, 200)
        browser.http = renewed
        assert_error(await PHONE_APP.refresh(renewed, tokens["refresh_token"]), 400, "invalid_grant")
        assert (await browser.allow(form)).status_code == 403
        assert (await PHONE_APP.exchange(renewed, codes[0], PHONE_CALLBACK)).status_code == 200
        assert is_consent_page(await browser.open(authorization_url()))
        assert (await renewed.get(VERIFY, headers=bearer(tokens["access_token"]))).status_code == 200

        assert (await admin("revoke-all", "--everything", "--yes")).status == 0
        assert_error(await PHONE_APP.exchange(renewed, codes[1], PHONE_CALLBACK), 400, "invalid_grant")
        assert is_login_page(await browser.open(authorization_url()))
        assert (await renewed.get(VERIFY, headers=bearer(tokens["access_token"]))).status_code == 401
