"""All gateways of examples/gateways keep the same promises to the API behind them, for any request."""

import json
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from threading import Event

import pytest

from tests.gateway.proxies.conftest import ALICE, ProxyDeployment
from tests.gateway.proxies.gateways import Answer, Gateway, Headers, bearer
from tests.gateway.proxies.recorder import Arrived, Reply
from tests.support.waiting import MAX_WAIT_SECONDS

pytestmark = pytest.mark.clause("decided-gateway-examples")

IDENTITY = ("X-Auth-Subject", "X-Auth-Realm", "X-Auth-User", "X-Auth-Client", "X-Auth-Scope", "X-Auth-Expires-In")
FORGED = "forged"
# The status and the Retry-After of a response while the service is down.
AWAY = {"nginx": (503, "1"), "haproxy": (503, "1"), "caddy": (502, "1"), "traefik": (500, None), "envoy": (503, "1")}


FORGERIES: Headers = [(name, FORGED) for name in IDENTITY]


def identity_of(arrived: Arrived) -> dict[str, str]:
    """Return the headers that an API may take for the caller's identity, by their CGI names. None may be repeated."""
    folded = [(re.sub("[^a-z0-9]", "-", name.lower()), value) for name, value in arrived.headers]
    found = [(name, value) for name, value in folded if name.startswith("x-auth")]
    assert len(dict(found)) == len(found), found
    return dict(found)


def always(reply: Reply) -> Callable[[Arrived], Reply]:
    return lambda _: reply


# Requests that pass, and what the API then knows.


@pytest.mark.clause("6819-4.6.4-counterfeit-api")
def test_live_token_is_replaced_by_the_identity(gateway: Gateway, deployment: ProxyDeployment, enduser: str) -> None:
    answer = gateway.get("/things?a=1", enduser)

    assert (answer.status, answer.body, answer.headers["X-From"]) == (200, b"from the API", "api")
    (arrived,) = deployment.api.arrived
    assert arrived.target == "/things?a=1"
    identity = identity_of(arrived)
    assert identity.pop("x-auth-subject")
    assert 0 < int(identity.pop("x-auth-expires-in")) <= 600
    assert identity == {
        "x-auth-realm": "main",
        "x-auth-user": "alice@example.com",
        "x-auth-client": "phone-app",
        "x-auth-scope": "realm:main role:enduser",
    }
    assert arrived.header("authorization") is None


def test_errors_of_the_api_itself_pass_as_they_are(gateway: Gateway, deployment: ProxyDeployment, enduser: str) -> None:
    for status in (401, 403, 404, 500, 503):
        reply = Reply(status, {"X-From": "api"}, b"the API's own")
        with deployment.api.answering(always(reply)):
            answer = gateway.get("/things", enduser)

        assert (answer.status, answer.body, answer.headers["X-From"]) == (status, b"the API's own", "api")
        assert answer.headers["Retry-After"] is None
        assert answer.headers["WWW-Authenticate"] is None


# Requests that are refused.


def test_no_token_is_401_with_a_challenge(gateway: Gateway, deployment: ProxyDeployment) -> None:
    for method in ("GET", "HEAD", "POST", "OPTIONS"):
        answer = gateway.ask(method, "/things", body=b"body" if method == "POST" else b"")

        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
        assert "error=" not in answer.headers["WWW-Authenticate"]
        assert answer.body == b""
    assert not deployment.api.arrived


def test_dead_token_is_401(gateway: Gateway, deployment: ProxyDeployment) -> None:
    authorizations = [("Authorization", value) for value in ("Bearer nonsense", "Basic YTpi", "Bearer ", "")]
    for header in (*authorizations, ("X-Auth-User", "alice@example.com")):
        answer = gateway.ask("GET", "/things", [header])

        assert answer.status == 401, header
        assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
    assert not deployment.api.arrived


def test_a_kept_connection_vouches_for_nothing(gateway: Gateway, deployment: ProxyDeployment, enduser: str) -> None:
    with closing(HTTPConnection("127.0.0.1", gateway.port, timeout=MAX_WAIT_SECONDS)) as connection:
        told = []
        for headers in (dict(bearer(enduser)), {}, dict(bearer(enduser)), {}):
            connection.request("GET", "/things", headers=headers)
            response = connection.getresponse()
            response.read()
            told.append(response.status)

    assert told == [200, 401, 200, 401]
    assert len(deployment.api.arrived) == 2


def test_two_tokens_are_not_let_through_as_one(
    gateway: Gateway, deployment: ProxyDeployment, enduser: str, partner: str
) -> None:
    answer = gateway.ask("GET", "/reports/x", [*bearer(enduser), *bearer(partner)])

    assert answer.status in (400, 401, 403)
    assert not deployment.api.arrived


def assert_refusal_is_json(answer: Answer, error: str) -> None:
    (challenge,) = answer.headers.get_all("WWW-Authenticate", [])
    assert f'error="{error}"' in challenge
    assert answer.headers["Content-Type"] == "application/json"
    body = json.loads(answer.body)
    assert set(body) == {"error", "error_description"}
    assert (body["error"], body["error_description"] in challenge) == (error, True)


def test_a_revoked_token_is_401_at_the_very_next_request(gateway: Gateway, deployment: ProxyDeployment) -> None:
    token = deployment.log_in(ALICE, "realm:main role:enduser")
    assert gateway.get("/things", token).status == 200

    deployment.revoke(token)

    answer = gateway.get("/things", token)
    assert answer.status == 401
    assert_refusal_is_json(answer, "invalid_token")


def test_a_token_without_the_scope_is_403_with_a_challenge(
    gateway: Gateway, deployment: ProxyDeployment, enduser: str, partner: str
) -> None:
    answer = gateway.get("/reports/2026", enduser)

    assert answer.status == 403
    assert_refusal_is_json(answer, "insufficient_scope")
    assert "role:partner" in answer.headers["WWW-Authenticate"]
    assert not deployment.api.arrived
    assert gateway.get("/reports/2026", partner).status == 200


# What the API must not be told.


def test_forged_identity_is_removed_on_a_public_path(
    gateway: Gateway, deployment: ProxyDeployment, enduser: str
) -> None:
    assert gateway.get("/public/x", headers=FORGERIES).status == 200
    assert gateway.get("/public/x", enduser, FORGERIES).status == 200

    for arrived in deployment.api.arrived:
        assert identity_of(arrived) == {}
        assert arrived.header("authorization") is None


def test_forged_identity_is_removed_if_a_header_is_missing(
    before_stand_in: Gateway, deployment: ProxyDeployment
) -> None:
    assert before_stand_in.get("/things", "x", FORGERIES).status == 200

    told = {name: value for name, value in identity_of(deployment.api.arrived[-1]).items() if value}
    assert told == {"x-auth-subject": "s", "x-auth-realm": "main", "x-auth-user": "stand-in"}


@pytest.mark.parametrize("value", ["close, {}", "{}, upgrade"])
def test_connection_takes_no_identity_away(
    gateway: Gateway, deployment: ProxyDeployment, enduser: str, value: str
) -> None:
    connection = value.format(", ".join((*IDENTITY, "X-Forwarded-For")))

    status = gateway.get("/things", enduser, [("Connection", connection)]).status

    assert status == (400 if gateway.name == "envoy" else 200)
    assert len(deployment.api.arrived) == (status == 200)
    for arrived in deployment.api.arrived:
        assert len(identity_of(arrived)) == len(IDENTITY)
        assert "x-auth" not in (arrived.header("connection") or "").lower()


def test_forged_identity_is_removed_from_trailers(gateway: Gateway, deployment: ProxyDeployment, enduser: str) -> None:
    trailers = [(name, FORGED) for name in IDENTITY]

    assert gateway.ask("POST", "/things", bearer(enduser), b"body", trailers=trailers).status == 200

    (arrived,) = deployment.api.arrived
    assert arrived.body == b"body"
    assert FORGED not in identity_of(arrived).values()
    # HAProxy 2.6 cannot drop them; docs/how-to/gateway-proxies.md says that an API must ignore them.
    assert not arrived.trailers or gateway.name == "haproxy"


def test_caller_cannot_choose_its_address(gateway: Gateway, deployment: ProxyDeployment, enduser: str) -> None:
    headers = [("X-Forwarded-For", "192.0.2.1"), ("X_Forwarded_For", "192.0.2.1")]

    assert gateway.get("/things", enduser, headers).status == 200

    told = [
        value
        for name, value in deployment.api.arrived[-1].headers
        if name.lower().replace("_", "-") == "x-forwarded-for"
    ]
    assert "192.0.2.1" not in ",".join(told).split(",")


# Requests to the service.


TRACEPARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


def test_the_trace_reaches_the_service_and_the_api(before_stand_in: Gateway, deployment: ProxyDeployment) -> None:
    for target in ("/things", "/reports/x"):
        assert before_stand_in.get(target, "t", [("traceparent", TRACEPARENT)]).status == 200
    assert before_stand_in.get("/things", "t").status == 200

    for arrived in (deployment.stand_in.arrived, deployment.api.arrived):
        assert [one.header("traceparent") or None for one in arrived] == [TRACEPARENT, TRACEPARENT, None]


def test_service_gets_only_the_token_of_the_request(before_stand_in: Gateway, deployment: ProxyDeployment) -> None:
    headers = [("Cookie", "c=" + "x" * 3000), ("X-Own", "own"), ("Content-Type", "text/own")]

    before_stand_in.ask("POST", "/things/secret?scope=role:partner&x=secret", [*bearer("t"), *headers], b"secret")

    (asked,) = deployment.stand_in.arrived
    assert asked.target == "/oauth2/v1/verify"
    assert asked.header("authorization") == "Bearer t"
    assert asked.body == b""
    assert asked.header("content-length") in (None, "0")
    assert not {"cookie", "x-own", "content-type"} & {name.lower() for name, _ in asked.headers}
    assert deployment.api.arrived[-1].body == b"secret"


# When the service is in trouble.


def test_only_known_answers_let_a_request_pass(before_stand_in: Gateway, deployment: ProxyDeployment) -> None:
    for status in (301, 302, 400, 404, 418, 431, 500, 502):
        reply = Reply(status, {"X-Auth-User": FORGED, "Location": "http://127.0.0.1:1/"})
        with deployment.stand_in.answering(always(reply)):
            before_stand_in.get("/things", "t")

        assert not deployment.api.arrived, status


def test_unexpected_2xx_lets_no_identity_pass(before_stand_in: Gateway, deployment: ProxyDeployment) -> None:
    """HAProxy and Envoy refuse the request. Behind the others the API sees no identity."""
    with deployment.stand_in.answering(lambda _: Reply(204)):
        before_stand_in.get("/things", "t", FORGERIES)

    for arrived in deployment.api.arrived:
        assert not any(identity_of(arrived).values())
    assert not deployment.api.arrived or before_stand_in.name in ("nginx", "caddy", "traefik")


def test_stopped_service_lets_no_request_pass(before_stand_in: Gateway, deployment: ProxyDeployment) -> None:
    before_stand_in.get("/things", "t")
    deployment.api.arrived.clear()

    with deployment.stand_in.stopped():
        answer = before_stand_in.get("/things", "t")

    assert (answer.status, answer.headers["Retry-After"]) == AWAY[before_stand_in.name]
    assert not deployment.api.arrived
    assert before_stand_in.get("/things", "t").status == 200


def test_unresponsive_service_lets_no_request_pass(deployment: ProxyDeployment) -> None:
    """Traefik waits half a minute, and is left out."""
    expected = {"nginx": (503, "1"), "haproxy": (503, "1"), "caddy": (504, "1"), "envoy": (503, "1")}
    gateways = [deployment.start(name, deployment.stand_in.port) for name in expected]
    is_over = Event()

    def hang(_: Arrived) -> Reply:
        is_over.wait()
        return Reply()

    with deployment.stand_in.answering(hang), ThreadPoolExecutor(len(gateways)) as threads:
        try:
            answers = list(threads.map(lambda gateway: gateway.get("/things", "t"), gateways))
        finally:
            is_over.set()

    told = [(answer.status, answer.headers["Retry-After"]) for answer in answers]
    assert told == list(expected.values())
    assert not deployment.api.arrived
