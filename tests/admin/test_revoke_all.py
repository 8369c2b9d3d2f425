"""`revoke-all --user · --client · --issued-before · --everything`."""

from __future__ import annotations

import httpx2
import pytest

from service.admin.formatting import format_time
from tests.admin.conftest import Admin
from tests.admin.lookups import is_live
from tests.conftest import Clock
from tests.support.clients_and_users import ALICE, BOB, PHONE_APP, WEB_SHOP


@pytest.mark.parametrize(
    ("words", "ended"),
    [
        (("--user", ALICE.username), {"alice's phone", "alice's shop"}),
        (("--client", "phone-app"), {"alice's phone", "bob's phone"}),
        (("--everything",), {"alice's phone", "alice's shop", "bob's phone"}),
    ],
)
async def test_what_is_named_ends_and_nothing_else(
    admin: Admin, http: httpx2.AsyncClient, words: tuple[str, ...], ended: set[str]
) -> None:
    tokens = {
        "alice's phone": (await PHONE_APP.log_in(http, ALICE)).json(),
        "alice's shop": (await WEB_SHOP.log_in(http, ALICE)).json(),
        "bob's phone": (await PHONE_APP.log_in(http, BOB)).json(),
    }

    done = await admin("revoke-all", *words, "--yes", "--json")

    assert done.status == 0
    assert {whose for whose, each in tokens.items() if not await is_live(http, each["access_token"])} == ended
    assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200


async def test_what_was_issued_before_a_time_ends_and_what_came_later_lives(
    admin: Admin, http: httpx2.AsyncClient, clock: Clock
) -> None:
    old = (await PHONE_APP.log_in(http, ALICE)).json()
    clock.advance(60)
    new = (await PHONE_APP.log_in(http, ALICE)).json()
    issued = (await admin("token", "inspect", new["access_token"], "--json")).json["issued"]

    done = await admin("revoke-all", "--issued-before", issued, "--yes")

    assert done.status == 0
    assert not await is_live(http, old["access_token"])
    assert await is_live(http, new["access_token"])
    assert (await PHONE_APP.refresh(http, old["refresh_token"])).status_code == 400
    assert (await PHONE_APP.refresh(http, new["refresh_token"])).status_code == 200


@pytest.mark.parametrize(
    ("words", "status", "message"),
    [
        ((), 2, "expected exactly one of --user, --client, --issued-before and --everything"),
        (("--everything", "--client", "phone-app"), 2, "expected exactly one of"),
        (("--everything", "--realm", "main"), 2, "--realm requires --user"),
        (("--issued-before", "yesterday"), 2, "'yesterday': expected a time by ISO 8601"),
        (("--issued-before", "2999-01-01T00:00:00Z"), 2, "expected a time that has passed"),
        (("--issued-before", "0026-11-21", "--yes"), 2, "'0026-11-21': expected a time by ISO 8601"),
        (("--issued-before", "1970-01-01T00:00:00.001Z", "--yes"), 2, "in this century"),
        (("--user", "nobody"), 1, "there is no user nobody in realm main"),
        (("--user", "nobody", "--realm", "cep"), 1, "there is no realm cep"),
        (("--client", "nobody"), 1, "there is no client nobody"),
        (("--everything",), 1, "no answer to the question; nothing was changed"),
    ],
)
async def test_what_cannot_be_done_is_told_and_ends_nothing(
    admin: Admin, http: httpx2.AsyncClient, words: tuple[str, ...], status: int, message: str
) -> None:
    tokens = (await PHONE_APP.log_in(http, ALICE)).json()

    refused = await admin("revoke-all", *words)

    assert (refused.status, refused.output) == (status, "")
    assert message in refused.aside
    assert await is_live(http, tokens["access_token"])


def test_times_are_written_as_they_are_read() -> None:
    assert format_time(1_795_250_000_999) == "2026-11-21T08:33:20Z"
