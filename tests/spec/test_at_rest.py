"""The content of Redis after each kind of request: no token, code, secret or password in plain text."""

from __future__ import annotations

from dataclasses import replace

import httpx2
import pytest
import redis

from service.protocol.authorization_code import make_code_challenge
from service.worker import Worker
from tests.conftest import SECRET_KEY, make_code
from tests.support.at_rest import read_everything
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    MADE_SECRET,
    METER,
    PHONE_APP,
    PHONE_CALLBACK,
    READER,
    WEB_SHOP,
    assert_error,
    bearer,
    tokens_of,
)

VERIFIER = "v" * 64


async def send_every_request(http: httpx2.AsyncClient, worker: Worker) -> list[str]:
    """Send every kind of request once. Returns all secrets that a client or a browser could present."""
    pending = await make_code(worker, BOB)
    code = await make_code(worker, code_challenge=make_code_challenge(VERIFIER))
    answers = [
        tokens_of(await PHONE_APP.log_in(http, ALICE)),
        tokens_of(await WEB_SHOP.log_in(http, BOB)),
        tokens_of(await MADE_SECRET.log_in(http, BOB)),
        tokens_of(await READER.log_in(http, ALICE)),
        tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK, code_verifier=VERIFIER)),
    ]
    answers.append(tokens_of(await PHONE_APP.refresh(http, answers[0]["refresh_token"])))
    answers.append(tokens_of(await PHONE_APP.refresh(http, answers[0]["refresh_token"])))
    await PHONE_APP.log_in(http, replace(ALICE, password="a wrong password"))
    await replace(WEB_SHOP, client_secret="a wrong secret").revoke(http, "x")
    tokens = [answer[kind] for answer in answers for kind in ("access_token", "refresh_token")]
    return [pending, code, *tokens]


@pytest.mark.clause("6749-10.3-confidential-in-storage", "6749-10.4-confidential-in-storage")
@pytest.mark.clause(
    "decided-i5-nothing-presentable-at-rest", "6819-5.1.4.1.3-no-clear-text", "decided-seed-secrets-hashed"
)
async def test_redis_holds_no_token_code_secret_or_password(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    presentable = await send_every_request(http, worker)
    presentable += [token[9:] for token in presentable]
    presentable += [client.client_secret or "" for client in (WEB_SHOP, MADE_SECRET, READER)]
    presentable += [credentials.password for credentials in (ALICE, BOB, METER)]
    presentable += [VERIFIER, SECRET_KEY, "a wrong password", "a wrong secret"]

    everything = "\n".join(read_everything(store))

    assert ALICE.username in everything
    assert not [text for text in presentable if text in everything]


@pytest.mark.clause("decided-i5-nothing-presentable-at-rest", "6749-10.4-confidential-in-storage")
async def test_nothing_that_redis_holds_is_accepted_as_a_token(
    http: httpx2.AsyncClient, worker: Worker, store: redis.Redis
) -> None:
    await send_every_request(http, worker)
    words = {word for text in read_everything(store) for part in text.split("\n") for word in part.split(":")}
    candidates = [word for word in words if len(word) >= 20 and word.isascii() and word.isprintable()]

    assert len(candidates) > 20
    for candidate in candidates:
        for text in (candidate, f"tsat1_{candidate}"[:53]):
            assert (await http.post("/oauth2/v1/revokeAll", headers=bearer(text))).status_code == 401
        for text in (candidate, f"tsrt1_{candidate}"[:61]):
            assert_error(await PHONE_APP.refresh(http, text), 400, "invalid_grant")
        assert_error(await PHONE_APP.exchange(http, candidate, PHONE_CALLBACK), 400, "invalid_grant")
