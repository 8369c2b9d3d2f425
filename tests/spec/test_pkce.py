"""Proof Key for Code Exchange over HTTP: a code with a challenge needs the matching verifier."""

import httpx2
import pytest

from service.worker import Worker
from tests.conftest import make_code
from tests.support.clients_and_users import PHONE_APP, PHONE_CALLBACK, assert_error

# The example of RFC 7636, Appendix B
VERIFIER = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"
CHALLENGE = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"


@pytest.mark.clause(
    "7636-4.6-not-equal",
    "decided-challenge-needs-verifier",
    "decided-wrong-exchange-leaves-the-code",
    "6819-4.4.1.4-known-client-imitated",
    "6819-4.4.1.6-code-injected",
)
@pytest.mark.clause("7636-4.1-verifier-form", "7636-4.4-challenge-bound-to-code", "6749-5.2-invalid-grant")
@pytest.mark.clause("7636-4.2-s256", "7636-4.6-equal", "7636-4.4-challenge-not-shown")
@pytest.mark.parametrize(
    "verifier",
    [
        pytest.param(None, id="none"),
        pytest.param("x" * 43, id="another one"),
        pytest.param(VERIFIER.lower(), id="the right one in lower case"),
        pytest.param(VERIFIER + "=", id="the right one with padding"),
        pytest.param("v" * 129, id="too long a one"),
        pytest.param(CHALLENGE, id="the challenge itself"),
    ],
)
async def test_any_other_verifier_is_refused_and_leaves_the_code(
    http: httpx2.AsyncClient, worker: Worker, verifier: str | None
) -> None:
    code = await make_code(worker, code_challenge=CHALLENGE)
    extra = {} if verifier is None else {"code_verifier": verifier}
    assert CHALLENGE not in code

    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK, **extra), 400, "invalid_grant")
    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK, code_verifier=VERIFIER)).status_code == 200


@pytest.mark.clause("7636-4.5-method-bound-to-code", "7636-4.6-not-equal")
async def test_a_request_cannot_choose_the_method(http: httpx2.AsyncClient, worker: Worker) -> None:
    code = await make_code(worker, code_challenge=CHALLENGE)

    response = await PHONE_APP.exchange(
        http, code, PHONE_CALLBACK, code_verifier=CHALLENGE, code_challenge_method="plain", code_challenge=CHALLENGE
    )

    assert_error(response, 400, "invalid_grant")


@pytest.mark.clause("decided-verifier-without-challenge", "decided-wrong-exchange-leaves-the-code")
async def test_a_verifier_for_a_code_without_a_challenge_is_refused(http: httpx2.AsyncClient, worker: Worker) -> None:
    code = await make_code(worker)

    assert_error(await PHONE_APP.exchange(http, code, PHONE_CALLBACK, code_verifier=VERIFIER), 400, "invalid_grant")
    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK)).status_code == 200
