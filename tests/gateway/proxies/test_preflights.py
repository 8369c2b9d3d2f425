"""All gateways of examples/gateways answer CORS preflights, and let known origins read answers and refusals."""

import pytest

from tests.gateway.proxies.conftest import ProxyDeployment
from tests.gateway.proxies.gateways import Answer, Gateway, Headers
from tests.gateway.proxies.recorder import Reply

pytestmark = pytest.mark.clause("decided-gateway-preflights")

STRANGER = "https://stranger.example"


@pytest.fixture(params=["http://127.0.0.1:9000", "https://app.example"])
def origin(request: pytest.FixtureRequest) -> str:
    """Each of the two origins that the gateways know."""
    return str(request.param)


def preflight(origin: str, method: str = "POST") -> Headers:
    return [
        ("Origin", origin),
        ("Access-Control-Request-Method", method),
        ("Access-Control-Request-Headers", "authorization,content-type"),
    ]


def words_of(answer: Answer, name: str) -> set[str]:
    """Return the items of a header, in lower case."""
    return {word.strip().lower() for value in answer.headers.get_all(name, []) for word in value.split(",")}


@pytest.mark.parametrize("target", ["/things", "/reports/x", "/public/x"])
def test_a_preflight_is_answered_without_the_service_and_the_api(
    before_stand_in: Gateway, deployment: ProxyDeployment, origin: str, target: str
) -> None:
    for method in ("GET", "POST", "PUT", "PATCH", "DELETE"):
        answer = before_stand_in.ask("OPTIONS", target, preflight(origin, method))

        assert answer.status in (200, 204)
        assert answer.headers.get_all("Access-Control-Allow-Origin") == [origin]
        assert method.lower() in words_of(answer, "Access-Control-Allow-Methods")
        assert {"authorization", "content-type"} <= words_of(answer, "Access-Control-Allow-Headers")
        assert answer.headers["Access-Control-Max-Age"] == "600"
        assert answer.headers["Access-Control-Allow-Credentials"] is None
    assert not deployment.stand_in.arrived
    assert not deployment.api.arrived


def test_a_preflight_of_another_origin_gets_no_permission(
    gateway: Gateway, deployment: ProxyDeployment, origin: str
) -> None:
    for form in ("https://stranger.example", "null", "*", "{}0", "{}.example", "{}/", "{}, null", ""):
        answer = gateway.ask("OPTIONS", "/things", preflight(form.format(origin)))

        assert answer.headers["Access-Control-Allow-Origin"] is None, form
    assert not deployment.api.arrived


def test_known_origin_can_read_answers_and_refusals(
    gateway: Gateway, deployment: ProxyDeployment, origin: str, enduser: str
) -> None:
    answers = [
        gateway.get("/things", enduser, [("Origin", origin)]),
        gateway.get("/public/x", None, [("Origin", origin)]),
        gateway.get("/things", None, [("Origin", origin)]),
        gateway.get("/things", "nonsense", [("Origin", origin)]),
        gateway.get("/reports/x", enduser, [("Origin", origin)]),
    ]

    assert [answer.status for answer in answers] == [200, 200, 401, 401, 403]
    for answer in answers:
        assert answer.headers.get_all("Access-Control-Allow-Origin") == [origin]
        assert {"www-authenticate", "retry-after"} <= words_of(answer, "Access-Control-Expose-Headers")
        assert answer.headers["Access-Control-Allow-Credentials"] is None


def test_an_application_of_a_known_origin_can_read_an_outage(
    before_stand_in: Gateway, deployment: ProxyDeployment, origin: str
) -> None:
    with deployment.stand_in.answering(lambda _: Reply(503, {"Retry-After": "7"})):
        answer = before_stand_in.get("/things", "t", [("Origin", origin)])

    assert answer.status == 503
    assert answer.headers["Retry-After"] in ("1", "7")
    assert not deployment.api.arrived
    assert answer.headers.get_all("Access-Control-Allow-Origin") == [origin]
    assert "retry-after" in words_of(answer, "Access-Control-Expose-Headers")


def test_no_cache_gives_one_origin_the_answer_to_another(
    gateway: Gateway, deployment: ProxyDeployment, origin: str, enduser: str
) -> None:
    for each in (origin, STRANGER):
        assert "origin" in words_of(gateway.get("/things", enduser, [("Origin", each)]), "Vary")
