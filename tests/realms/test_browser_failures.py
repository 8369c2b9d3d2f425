"""Whatever goes wrong on the way to the organisation and back: what the client hears, and that nobody gets in.

Each trouble stands for a login that sets out rightly and comes to nothing. The client gets an error with its state and
our issuer, the browser no session, the log a reason, nobody a secret; and the next right login works.
"""

from __future__ import annotations

import asyncio
import gzip
import io
import json
from base64 import urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import NamedTuple, TypeAlias

import httpx2
import pytest
import redis
from joserfc.jwk import ECKey, Key, KeySet, OKPKey, RSAKey

from service.realms.provider.circuit_breaker import OPEN_SECONDS
from service.registry.cache import UNKNOWN_SECONDS
from service.store.keys import registry_key
from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.realms.conftest import Enlist
from tests.realms.journey import (
    bend,
    come_back,
    log_in_by_way_of_cep,
    log_in_there,
    query_of,
    set_out,
)
from tests.support.at_rest import read_everything
from tests.support.browser import (
    ISSUER,
    Browser,
    Page,
    answer_of,
    ask,
    assert_refused,
    assert_sent_back,
    is_consent_page,
    page_text,
    register,
)
from tests.support.fake_provider import (
    CLAIMS,
    CLIENT_ID,
    CLIENT_SECRET,
    INTROSPECT,
    KEYS,
    OPENID_METADATA,
    TOKEN,
    USERINFO,
    Answer,
    Drop,
    Endless,
    FakeProvider,
    Hang,
    Held,
    Raw,
    Reply,
    Slowly,
    published_key,
    read_wall_clock,
    running_organisation,
)
from tests.support.invalidations import heard
from tests.support.loop_time import LoopTime

STATE = "a state of the client"
ASK = ask(scope="realm:cep role:enduser", state=STATE)
OTHER_ISSUER = "https://other.example"
CONTENDERS = 20
TEN_MINUTES = 600

EXPIRED = (400, "expired")
ASTRAY = (403, "astray")
FORGED = (403, "forged")

Bend: TypeAlias = Callable[[FakeProvider], None]


@pytest.fixture(autouse=True)
def no_secret_is_told(
    organisation: FakeProvider, browser: Browser, store: redis.Redis, json_logs: io.StringIO
) -> Iterator[None]:
    """Not in Redis, and not in the log at level debug: neither ours nor what the organisation has handed out."""
    yield
    # The client of this test writes its own lines there.
    lines = [line for line in json_logs.getvalue().splitlines() if '"logger":"httpx2"' not in line]
    secrets = {CLIENT_SECRET, *organisation.handed_out, *browser.cookie_values.values()}
    for request in organisation.requests:
        secrets |= {request.query[name] for name in ("state", "nonce") if name in request.query}
        secrets |= {request.form[name] for name in ("code", "code_verifier", "token") if name in request.form}
        secrets |= {request.headers["authorization"].partition(" ")[2]} if "authorization" in request.headers else set()
    everything = "\n".join([*lines, *read_everything(store)])

    assert '"logger":"service.access"' in everything
    assert [secret for secret in secrets if secret and secret in everything] == []


async def assert_healthy(
    enlist: Enlist, organisation: FakeProvider, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As soon as the organisation is right again, the same browser gets in."""
    monkeypatch.undo()
    organisation.claims = dict(CLAIMS)
    organisation.id_token_claims, organisation.id_token_header = {}, {}
    organisation.userinfo, organisation.introspection = {}, {}
    organisation.token_response, organisation.metadata, organisation.redirect = {}, {}, {}
    organisation.sign_with(published_key())
    for path in (OPENID_METADATA, TOKEN, KEYS, USERINFO, INTROSPECT):
        organisation.answer(path, None)
    await enlist()
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


async def try_to_log_in(browser: Browser, organisation: FakeProvider) -> httpx2.Response:
    """As far as it goes: the organisation may not even be found."""
    response = await browser.open(ASK)
    if not response.headers["location"].startswith(organisation.url):
        return response
    return await come_back(browser, await log_in_there(response.headers["location"]))


def assert_came_to_nothing(response: httpx2.Response, browser: Browser, error: str) -> None:
    answer = assert_sent_back(response, error)

    assert answer.keys() == {"error", "error_description", "state", "iss"}
    assert (answer["state"], answer["iss"]) == (STATE, ISSUER)
    assert "ts_session" not in browser.cookie_values
    assert "ts_session" not in response.headers.get("set-cookie", "")


def troubles_of(json_logs: io.StringIO) -> str:
    """What the log says of the organisation."""
    events = [json.loads(line) for line in json_logs.getvalue().splitlines()]
    return "\n".join(event["event"] for event in events if event["logger"] == "service.realms")


class Trouble(NamedTuple):
    """`told` is what the log must say, so that no test passes for another reason than its own."""

    bend: Bend
    told: str
    error: str = "temporarily_unavailable"
    entry: Mapping[str, object] = {}


def told(
    name: str,
    bend: Bend,
    told: str,
    error: str = "temporarily_unavailable",
    *,
    entry: Mapping[str, object] | None = None,
) -> object:
    return pytest.param(Trouble(bend, told, error, entry or {}), id=name)


AssertTrouble: TypeAlias = Callable[[Trouble], Awaitable[None]]


@pytest.fixture
def assert_trouble(
    organisation: FakeProvider,
    browser: Browser,
    enlist: Enlist,
    json_logs: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> AssertTrouble:
    """A login with this trouble comes to nothing, for the reason that is told, and the next one is right."""

    async def assert_trouble(trouble: Trouble) -> None:
        places = {"userinfo_endpoint": USERINFO, "introspection_endpoint": INTROSPECT}
        entry = {
            key: organisation.url + places[key] if key in places else value for key, value in trouble.entry.items()
        }
        await enlist(**entry)
        trouble.bend(organisation)
        assert_came_to_nothing(await try_to_log_in(browser, organisation), browser, trouble.error)

        assert trouble.told in troubles_of(json_logs)
        assert bool(troubles_of(json_logs)) is (trouble.error == "temporarily_unavailable")
        await organisation.left_alone()
        await assert_healthy(enlist, organisation, browser, monkeypatch)

    return assert_trouble


def redirects(**changes: object) -> Bend:
    def bend(organisation: FakeProvider) -> None:
        organisation.redirect = changes

    return bend


def id_token_says(**changes: object) -> Bend:
    def bend(organisation: FakeProvider) -> None:
        organisation.id_token_claims = changes

    return bend


def claims(**changes: object) -> Bend:
    def bend(organisation: FakeProvider) -> None:
        organisation.claims |= changes

    return bend


def metadata_say(**changes: object) -> Bend:
    def bend(organisation: FakeProvider) -> None:
        organisation.metadata = changes

    return bend


def tokens_are(**changes: object) -> Bend:
    def bend(organisation: FakeProvider) -> None:
        organisation.token_response = changes

    return bend


def answers(path: str, answer: Answer) -> Bend:
    return lambda organisation: organisation.answer(path, answer)


# What the browser brings back


@pytest.mark.clause(
    "6749-4.1.2.1-error",
    "6749-4.1.2.1-state-returned",
    "9207-2-iss-in-error-redirect",
    "9207-2.4-iss-checked",
    "decided-external-denial",
)
@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize(
    "trouble",
    [
        told("the organisation denies", redirects(code=None, error="access_denied"), "", "access_denied"),
        told(
            "it is not available",
            redirects(code=None, error="temporarily_unavailable"),
            "with the error temporarily_unavailable",
        ),
        told("it has an error", redirects(code=None, error="server_error"), "with the error server_error"),
        told("it wants another scope", redirects(code=None, error="invalid_scope"), "with the error invalid_scope"),
        told(
            "an error that is no code",
            redirects(code=None, error=f"x\nerror {CLIENT_SECRET}"),
            "with the error (not a code)",
        ),
        told("another issuer", redirects(iss=OTHER_ISSUER), "from another issuer"),
        told("an issuer with a slash more", lambda it: redirects(iss=f"{it.url}/")(it), "from another issuer"),
        told(
            "a denial of another issuer",
            redirects(code=None, error="access_denied", iss=OTHER_ISSUER),
            "from another issuer",
        ),
        told("no issuer where one is promised", redirects(iss=None), "does not say who it comes from"),
        told(
            "a denial without an issuer where one is promised",
            redirects(code=None, error="access_denied", iss=None),
            "does not say who it comes from",
        ),
        told("a code and an error", redirects(error="server_error"), "with the error server_error"),
        told("a code and a denial", redirects(error="access_denied"), "with the error access_denied"),
        told("neither a code nor an error", redirects(code=None), "neither a code nor an error"),
        told("an empty code", redirects(code=""), "neither a code nor an error"),
        told("a code with a line end", redirects(code="a\nb"), "neither a code nor an error"),
        told("a code that is not ASCII", redirects(code="ä"), "neither a code nor an error"),
    ],
)
async def test_a_redirect_that_brings_no_login(
    trouble: Trouble,
    organisation: FakeProvider,
    browser: Browser,
    enlist: Enlist,
    json_logs: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await enlist()
    trouble.bend(organisation)
    assert_came_to_nothing(await try_to_log_in(browser, organisation), browser, trouble.error)

    assert organisation.calls(TOKEN) == []
    assert trouble.told in troubles_of(json_logs)
    await assert_healthy(enlist, organisation, browser, monkeypatch)


@pytest.mark.parametrize(
    "more", ["code=x", "code=", "error=server_error&error=access_denied", "code=%ff", "iss=x", "iss=%"]
)
async def test_a_parameter_that_stands_twice_or_cannot_be_read(
    organisation: FakeProvider,
    browser: Browser,
    enlist: Enlist,
    json_logs: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
    more: str,
) -> None:
    await enlist()
    path = await log_in_there(await set_out(browser, ASK))
    assert_came_to_nothing(await come_back(browser, f"{path}&{more}"), browser, "temporarily_unavailable")

    assert organisation.calls(TOKEN) == []
    assert "stands twice or cannot be read" in troubles_of(json_logs)
    await assert_healthy(enlist, organisation, browser, monkeypatch)


async def test_no_issuer_where_none_is_promised_is_no_trouble(
    organisation: FakeProvider, browser: Browser, cep: None
) -> None:
    organisation.metadata = {"authorization_response_iss_parameter_supported": None}
    organisation.redirect = {"iss": None}
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))

    organisation.redirect = {"iss": OTHER_ISSUER}
    other = Browser(browser.http)
    assert_came_to_nothing(await log_in_by_way_of_cep(other, ASK), other, "temporarily_unavailable")


# States


@pytest.mark.clause("6749-4.1.2.1-no-redirect", "6749-10.12-csrf-as-a-client")
@pytest.mark.parametrize(
    "state",
    [None, "", "x", "A" * 400, "tspl1_000" + "A" * 44, "\x00", "ä", "x" * 2000],
    ids=["none", "empty", "x", "unknown", "of another kind", "a control character", "not ASCII", "long"],
)
async def test_a_state_that_is_not_known_leads_nowhere(
    organisation: FakeProvider, browser: Browser, cep: None, state: str | None
) -> None:
    path = await log_in_there(await set_out(browser, ASK))
    assert_refused(await come_back(browser, bend(path, state=state)), *EXPIRED)

    assert organisation.calls(TOKEN) == []
    assert is_consent_page(await come_back(browser, path))


@pytest.mark.parametrize("more", ["state=x", "state=", "state=%ff"])
async def test_a_state_that_stands_twice_is_none(
    organisation: FakeProvider, browser: Browser, cep: None, more: str
) -> None:
    path = await log_in_there(await set_out(browser, ASK))
    assert_refused(await come_back(browser, f"{path}&{more}"), *EXPIRED)

    assert organisation.calls(TOKEN) == []
    assert is_consent_page(await come_back(browser, path))


@pytest.mark.clause("6749-10.12-csrf", "6749-10.12-csrf-as-a-client", "decided-external-state")
@pytest.mark.parametrize("has_cookie", [True, False])
async def test_a_state_of_another_browser_is_refused_and_still_good_in_its_own(
    organisation: FakeProvider, browser: Browser, cep: None, has_cookie: bool
) -> None:
    other = Browser(browser.http)
    if has_cookie:
        await set_out(other, ASK)
    path = await log_in_there(await set_out(browser, ASK))
    assert_refused(await come_back(other, path), *ASTRAY)

    assert organisation.calls(TOKEN) == []
    assert "ts_session" not in other.cookie_values
    assert is_consent_page(await come_back(browser, path))


@pytest.mark.clause("6749-10.12-csrf")
async def test_a_state_of_one_login_with_the_code_of_another_is_worth_nothing(
    organisation: FakeProvider, browser: Browser, cep: None
) -> None:
    """What a stranger can do who makes somebody's browser open an address: their own code, in that browser's login."""
    stranger = Browser(browser.http)
    code = query_of(await log_in_there(await set_out(stranger, ASK)))["code"]
    path = await log_in_there(await set_out(browser, ASK))

    assert_came_to_nothing(await come_back(browser, bend(path, code=code)), browser, "access_denied")


@pytest.mark.parametrize("destination", ["image", "iframe", "script", "empty"])
async def test_a_callback_that_is_no_page_uses_nothing_up(
    organisation: FakeProvider, browser: Browser, cep: None, destination: str
) -> None:
    path = await log_in_there(await set_out(browser, ASK))
    assert_refused(await browser.open(path, **{"Sec-Fetch-Dest": destination}), *FORGED)

    assert organisation.calls(TOKEN) == []
    assert is_consent_page(await browser.open(path, **{"Sec-Fetch-Dest": "document"}))


async def test_a_look_at_the_head_of_a_callback_uses_nothing_up(browser: Browser, cep: None) -> None:
    path = await log_in_there(await set_out(browser, ASK))
    assert (await browser.open(path, method="HEAD")).status_code == 403

    assert is_consent_page(await come_back(browser, path))


@pytest.mark.clause("decided-external-limits")
async def test_codes_that_somebody_made_up_are_not_asked_for_without_end(
    make_settings: MakeSettings, clock: Clock, organisation: FakeProvider, cep: None
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="3/minute"), clock) as http:
        browser = Browser(http)
        errors = []
        for _ in range(5):
            path = bend(await log_in_there(await set_out(browser, ASK)), code="made-up")
            errors.append(answer_of(await come_back(browser, path))["error"])

        assert errors == 3 * ["access_denied"] + 2 * ["temporarily_unavailable"]
        assert len(organisation.calls(TOKEN)) == 3
        clock.advance(60)
        assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


@pytest.mark.clause("decided-external-isolated")
async def test_people_who_change_their_mind_keep_nobody_out(
    make_settings: MakeSettings, clock: Clock, organisation: FakeProvider, cep: None
) -> None:
    """Of all who share an address."""
    async with serving(make_settings(TOKEN_SERVICE_LOGIN_ATTEMPTS_PER_ADDRESS="1/minute"), clock) as http:
        organisation.redirect = {"code": None, "error": "access_denied"}
        for _ in range(3):
            assert_sent_back(await log_in_by_way_of_cep(Browser(http), ASK), "access_denied")
        organisation.redirect = {}

        assert is_consent_page(await log_in_by_way_of_cep(Browser(http), ASK))


@pytest.mark.clause("decided-external-limits")
async def test_of_many_who_need_what_the_organisation_publishes_one_asks(
    organisation: FakeProvider, browser: Browser, cep: None
) -> None:
    metadata = asyncio.Event()
    organisation.answer(OPENID_METADATA, Held(Reply(200, dict(organisation.describe())), metadata))
    setting_out = [asyncio.create_task(set_out(Browser(browser.http), ASK)) for _ in range(20)]
    await organisation.reached(OPENID_METADATA)
    metadata.set()
    await asyncio.gather(*setting_out)

    assert len(organisation.calls(OPENID_METADATA)) == 1


@pytest.mark.clause("decided-external-state")
@pytest.mark.parametrize("is_right", [True, False])
async def test_a_callback_works_once(organisation: FakeProvider, browser: Browser, cep: None, is_right: bool) -> None:
    """After a failure, too: nobody tries codes with one state."""
    organisation.token_response = {} if is_right else {"token_type": "mac"}
    path = await log_in_there(await set_out(browser, ASK))
    response = await come_back(browser, path)

    assert is_consent_page(response) is is_right
    for again in (path, bend(path, code="another"), bend(path, code=None, error="access_denied")):
        assert_refused(await come_back(browser, again), *EXPIRED)
    assert len(organisation.calls(TOKEN)) == 1


@pytest.mark.clause("decided-external-state")
async def test_of_many_callbacks_with_one_state_one_gets_through(
    organisation: FakeProvider, browser: Browser, cep: None
) -> None:
    path = await log_in_there(await set_out(browser, ASK))
    responses = await asyncio.gather(*(come_back(browser, path) for _ in range(CONTENDERS)))

    assert sorted(response.status_code for response in responses) == [200] + [400] * (CONTENDERS - 1)
    assert [is_consent_page(response) for response in responses].count(True) == 1
    for response in responses:
        if response.status_code == 400:
            assert_refused(response, *EXPIRED)
    assert len(organisation.calls(TOKEN)) == 1
    assert is_consent_page(await browser.open(ASK))


async def test_many_logins_of_one_browser_at_once_are_each_their_own(
    organisation: FakeProvider, browser: Browser, cep: None
) -> None:
    """Tabs that a browser restores: each has its state, its nonce and its verifier."""
    await set_out(browser, ASK)
    places = await asyncio.gather(*(set_out(browser, ASK) for _ in range(CONTENDERS // 2)))
    paths = [await log_in_there(place) for place in places]
    responses = await asyncio.gather(*(come_back(browser, path) for path in paths))

    assert len({request.form["code_verifier"] for request in organisation.calls(TOKEN)}) == len(paths)
    assert all(is_consent_page(response) for response in responses)


@pytest.mark.clause("decided-i6-pending-login-expires", "decided-external-state")
async def test_a_login_that_takes_longer_than_ten_minutes_starts_again(
    organisation: FakeProvider, browser: Browser, cep: None, clock: Clock, store: redis.Redis
) -> None:
    path = await log_in_there(await set_out(browser, ASK))
    late = await log_in_there(await set_out(browser, ASK))
    clock.advance(TEN_MINUTES - 10)
    assert is_consent_page(await come_back(browser, path))
    assert [int(store.pttl(key)) <= 10_000 for key in store.scan_iter("external:*")] == [True]
    asked = len(organisation.calls(TOKEN))
    clock.advance(11)

    assert list(store.scan_iter("external:*")) == []
    for gone in (path, late):
        assert_refused(await come_back(browser, gone), *EXPIRED)
    assert len(organisation.calls(TOKEN)) == asked


async def test_a_login_at_an_organisation_leaves_nothing_in_redis_before_it_comes_back(
    browser: Browser, cep: None, store: redis.Redis
) -> None:
    before = set(store.scan_iter())
    for _ in range(5):
        await set_out(browser, ASK)
    left = {key.split(":")[0] for key in set(store.scan_iter()) - before}

    assert left <= {"address"}


# ID tokens


def id_token_times(**seconds_from_now: int) -> Bend:
    """Counted from when the test runs, not from when it was collected."""

    def bend(organisation: FakeProvider) -> None:
        now = read_wall_clock()
        organisation.id_token_claims = {name: now + seconds for name, seconds in seconds_from_now.items()}

    return bend


def signs_with(make_key: Callable[[], RSAKey | bytes | None], **header: object) -> Bend:
    def bend(organisation: FakeProvider) -> None:
        organisation.sign_with(make_key())
        organisation.id_token_header = header

    return bend


def other_key(**parameters: bool) -> RSAKey:
    return RSAKey.generate_key(2048, {"use": "sig"}, **parameters)


def forge_id_token(text: str) -> Bend:
    return tokens_are(id_token=text)


@pytest.mark.clause("decided-external-realm-down", "decided-external-id-token")
@pytest.mark.parametrize(
    "trouble",
    [
        told("another nonce", id_token_says(nonce="another"), "another nonce"),
        told("no nonce", id_token_says(nonce=None), "another nonce"),
        told("a nonce that is a number", id_token_says(nonce=7), "another nonce"),
        told("a nonce that is not ASCII", id_token_says(nonce="ä"), "another nonce"),
        told("no ID token", tokens_are(id_token=None), "no ID token"),
        told("an empty ID token", forge_id_token(""), "no ID token"),
        told("an ID token that is none", forge_id_token("a.b.c"), "not to be believed"),
        told("an ID token in five parts", forge_id_token("e30.e30.e30.e30.e30"), "not to be believed"),
        told("an ID token that is not ASCII", forge_id_token("ä.ö.ü"), "not to be believed"),
        told("a number for an ID token", tokens_are(id_token=7), "not JSON of the form"),
        told("a bad signature", signs_with(other_key), "bad_signature"),
        told("an unknown key", signs_with(lambda: other_key(auto_kid=True)), "a key that it does not publish"),
        told("a key named by a number", signs_with(published_key, kid=7), "not to be believed"),
        told("no signature", signs_with(lambda: None), "not to be believed"),
        told("no signature and no key", signs_with(lambda: None, kid=None), "not to be believed"),
        told("no signature in other letters", signs_with(lambda: None, alg="None"), "not to be believed"),
        told("a signature by our secret", signs_with(CLIENT_SECRET.encode), "not to be believed"),
        told(
            "a signature by the public key as a secret",
            signs_with(lambda: published_key().as_pem(private=False)),
            "not to be believed",
        ),
        told("a signature of no kind", signs_with(published_key, alg=None), "not to be believed"),
        told("a signature of a kind that is a number", signs_with(published_key, alg=7), "not to be believed"),
        told("a header that must be understood and is not", signs_with(published_key, crit=["x"], x=1), "not to be"),
        told("another audience", id_token_says(aud="another client"), "invalid_claim"),
        told("no audience", id_token_says(aud=None), "missing_claim"),
        told("an audience that is a number", id_token_says(aud=7), "invalid_claim"),
        told("an audience that holds no text", id_token_says(aud=[CLIENT_ID, [7]]), "invalid_claim"),
        told("two audiences and nobody named", id_token_says(aud=[CLIENT_ID, "other"]), "to another client"),
        told(
            "two audiences and the other one named",
            id_token_says(aud=[CLIENT_ID, "other"], azp="other"),
            "to another client",
        ),
        told("handed to another client", id_token_says(azp="other"), "to another client"),
        told("it is over", id_token_times(exp=-120), "expired_token"),
        told("it has no end", id_token_says(exp=None), "missing_claim"),
        told("an end that is text", id_token_says(exp="2999-01-01"), "invalid_claim"),
        told("from the future", id_token_times(iat=3600), "not to be believed"),
        told("not valid yet", id_token_times(nbf=3600), "not to be believed"),
        told("from no time", id_token_says(iat=None), "missing_claim"),
        told("of another issuer", id_token_says(iss=OTHER_ISSUER), "invalid_claim"),
        told("of no issuer", id_token_says(iss=None), "missing_claim"),
        told("of nobody", id_token_says(sub=None), "missing_claim"),
        told("of a number", id_token_says(sub=7), "invalid_claim"),
    ],
)
async def test_an_id_token_that_is_not_to_be_believed(assert_trouble: AssertTrouble, trouble: Trouble) -> None:
    await assert_trouble(trouble)


@pytest.mark.parametrize("name", ["nonce", "sub", "aud", "iss", "azp"])
async def test_a_claim_of_the_protocol_that_is_no_text_of_unicode(assert_trouble: AssertTrouble, name: str) -> None:
    """JSON can spell half of a character, which UTF-8 cannot."""
    await assert_trouble(Trouble(id_token_says(**{name: "\ud800"}), ""))


@pytest.mark.parametrize(
    "bend",
    [
        pytest.param(id_token_says(aud=[CLIENT_ID]), id="a list of one audience"),
        pytest.param(id_token_says(aud=[CLIENT_ID, "other"], azp=CLIENT_ID), id="for others too, and handed to us"),
        pytest.param(id_token_says(azp=CLIENT_ID), id="handed to us"),
        pytest.param(id_token_times(exp=0), id="a clock that is late"),
        pytest.param(id_token_times(iat=30), id="a clock that goes ahead"),
    ],
)
async def test_an_id_token_that_is_unusual_and_right(
    organisation: FakeProvider, browser: Browser, cep: None, bend: Bend
) -> None:
    bend(organisation)

    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


@pytest.mark.parametrize(
    "header", [{"alg": "RS256\n2026-11-21 [error] made up\x1b[2J"}, {"alg": "R" * 5000}], ids=["lines", "length"]
)
async def test_a_header_writes_nothing_of_its_own_into_the_log(
    organisation: FakeProvider,
    browser: Browser,
    cep: None,
    json_logs: io.StringIO,
    header: dict[str, object],
) -> None:
    """The console's form of the log has no other way to tell where an event ends."""
    organisation.id_token_header = header
    assert_came_to_nothing(await log_in_by_way_of_cep(browser, ASK), browser, "temporarily_unavailable")

    trouble = troubles_of(json_logs)
    assert "not to be believed" in trouble
    assert trouble.isprintable()
    assert len(trouble) < 500


# Keys


@pytest.mark.parametrize(
    ("algorithm", "make_key"),
    [
        ("RS384", lambda: other_key(auto_kid=True)),
        ("PS256", lambda: other_key(auto_kid=True)),
        ("ES256", lambda: ECKey.generate_key("P-256", auto_kid=True)),
        ("EdDSA", lambda: OKPKey.generate_key("Ed25519", auto_kid=True)),
        ("Ed25519", lambda: OKPKey.generate_key("Ed25519", auto_kid=True)),
    ],
)
async def test_keys_of_every_usual_kind_are_known(
    organisation: FakeProvider, browser: Browser, cep: None, algorithm: str, make_key: Callable[[], Key]
) -> None:
    key = make_key()
    organisation.keys = [published_key(), key]
    organisation.sign_with(key, algorithm)
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))

    organisation.id_token_header = {"kid": published_key().kid}
    other = Browser(browser.http)
    assert_came_to_nothing(await log_in_by_way_of_cep(other, ASK), other, "temporarily_unavailable")


@pytest.mark.clause("decided-external-id-token")
async def test_a_new_key_is_found_by_asking_once_more(
    organisation: FakeProvider, browser: Browser, cep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))
    monkeypatch.setattr("service.realms.provider.client.NEW_KEYS_SECONDS", 0.0)
    key = other_key(auto_kid=True)
    organisation.keys = [key, published_key()]
    organisation.sign_with(key)

    for _ in range(2):
        assert is_consent_page(await log_in_by_way_of_cep(Browser(browser.http), ASK))
    assert len(organisation.calls(KEYS)) == 2


async def test_a_key_that_is_nowhere_is_asked_for_once_more_and_then_not_for_a_while(
    organisation: FakeProvider, browser: Browser, cep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))
    organisation.sign_with(other_key(auto_kid=True))
    with monkeypatch.context() as patch:
        patch.setattr("service.realms.provider.client.NEW_KEYS_SECONDS", 0.0)
        other = Browser(browser.http)
        assert_came_to_nothing(await log_in_by_way_of_cep(other, ASK), other, "temporarily_unavailable")
        assert len(organisation.calls(KEYS)) == 2

    patch.setattr("service.realms.provider.client.NEW_KEYS_SECONDS", 3600.0)
    for _ in range(3):
        assert_came_to_nothing(await log_in_by_way_of_cep(other, ASK), other, "temporarily_unavailable")
    assert len(organisation.calls(KEYS)) == 2


async def test_keys_that_are_not_for_us_are_passed_over(
    organisation: FakeProvider, browser: Browser, cep: None
) -> None:
    good = KeySet(organisation.keys).as_dict(private=False)["keys"]
    others: list[object] = [
        7,
        "key",
        {},
        {"kty": "XYZ"},
        {"kty": "RSA", "n": 5},
        {"kty": "EC", "crv": "P-256", "x": "A", "y": "A"},
    ]
    organisation.answer(KEYS, Reply(200, {"keys": [*others, *good]}))

    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


async def test_private_keys_are_passed_over(
    organisation: FakeProvider, browser: Browser, cep: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A library would look for the factors of each, which takes seconds for these, and forever for longer ones."""
    good = KeySet(organisation.keys).as_dict(private=False)["keys"]
    number = urlsafe_b64encode(b"\xff" * 2048).decode().rstrip("=")
    private = {"kty": "RSA", "n": number, "e": "AQAB", "d": number}
    organisation.answer(KEYS, Reply(200, {"keys": [private, private, *good]}))

    searched: list[int] = []
    factors = "joserfc._rfc7518.rsa_key.rsa_recover_prime_factors"
    monkeypatch.setattr(factors, lambda *numbers: searched.append(numbers[0]))

    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))
    assert searched == []


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"keys": []},
        {"keys": {}},
        {"keys": [{"kty": "XYZ"}]},
        {"keys": [None]},
        {"keys": [published_key().as_dict(private=True)]},
    ],
    ids=["nothing", "none", "no list", "unheard-of", "null", "private"],
)
async def test_a_key_set_without_a_key(assert_trouble: AssertTrouble, keys: dict[str, object]) -> None:
    await assert_trouble(Trouble(answers(KEYS, Reply(200, keys)), "no key that can be used"))


# Answers that are none

BY_USERINFO = {"scope": "email", "userinfo_endpoint": True}
BY_INTROSPECTION = {"scope": "email", "introspection_endpoint": True}
ASKED: Mapping[str, Mapping[str, object]] = {
    OPENID_METADATA: {},
    TOKEN: {},
    KEYS: {},
    USERINFO: BY_USERINFO,
    INTROSPECT: BY_INTROSPECTION,
}
"""The organisation's addresses, each with the entry that leads there."""

NO_ANSWERS: Mapping[str, tuple[Answer, str]] = {
    "500": (Reply(500, b"an error"), "status 500"),
    "500 with what would be right": (Reply(500, {"sub": "x", "active": True, "access_token": "x"}), "status 500"),
    "201": (Reply(201, {"sub": "x", "active": True, "access_token": "x"}), "status 201"),
    "204": (Reply(204), "status 204"),
    "a page": (Reply(200, b"<!doctype html><title>Sign in</title>"), "not JSON"),
    "nothing": (Reply(200), "not JSON"),
    "null": (Reply(200, b"null"), "not JSON"),
    "a list": (Reply(200, b"[{}]"), "not JSON"),
    "brackets without end": (Reply(200, b"[" * 200_000), "not JSON"),
    "not UTF-8": (Reply(200, b'{"sub":"\xff","access_token":"x"}'), "not JSON"),
    "two answers in one": (Reply(200, b"{}{}"), "not JSON"),
    "half an answer": (Raw(b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{}"), "broke off"),
    "no HTTP": (Raw(b"SSH-2.0-OpenSSH\r\n"), "broke off"),
    "bad chunks": (Raw(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n{}"), "broke off"),
    "a connection that ends": (Drop(), "broke off"),
    "more than anybody would read": (Endless(), "longer than"),
    "a head without end": (Endless(b"HTTP/1.1 200 OK\r\n", b"x: y\r\n" * 100), "broke off"),
    "packed": (Reply(200, gzip.compress(json.dumps(CLAIMS).encode()), {"content-encoding": "gzip"}), "it packs"),
    "our secret as an error": (Raw(f"HTTP/1.1 200 OK\r\n{CLIENT_SECRET}\r\n\r\n".encode()), "broke off"),
    "our secret as an answer": (Reply(200, CLIENT_SECRET.encode()), "not JSON"),
}


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("name", NO_ANSWERS)
async def test_an_answer_that_is_none(
    assert_trouble: AssertTrouble, organisation: FakeProvider, path: str, name: str
) -> None:
    answer, said = NO_ANSWERS[name]
    await assert_trouble(Trouble(answers(path, answer), said, entry=ASKED[path]))
    assert organisation.calls(path)


@pytest.mark.clause("decided-external-realm-down")
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(Hang(), id="never"),
        pytest.param(Slowly(Reply(200, b"{}"), pause_seconds=0.1), id="letter by letter"),
        pytest.param(Endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"), id="always about to"),
    ],
)
async def test_an_answer_that_does_not_come_in_time(
    assert_trouble: AssertTrouble, giving_up: None, path: str, answer: Answer
) -> None:
    await assert_trouble(Trouble(answers(path, answer), "no answer within 5 s", entry=ASKED[path]))


@pytest.mark.clause("decided-external-realm-down", "decided-external-answer-checked")
@pytest.mark.parametrize("path", ASKED)
@pytest.mark.parametrize("status", [302, 307])
async def test_no_redirect_is_followed(assert_trouble: AssertTrouble, path: str, status: int) -> None:
    """It would take the code, the token or the secret elsewhere."""
    async with running_organisation() as elsewhere:
        moved = Reply(status, headers={"location": elsewhere.url + path})
        await assert_trouble(Trouble(answers(path, moved), f"status {status}", entry=ASKED[path]))
        assert elsewhere.requests == []


@pytest.mark.clause("decided-external-realm-down")
async def test_an_organisation_that_is_away_when_a_browser_sets_out(
    organisation: FakeProvider,
    browser: Browser,
    enlist: Enlist,
    json_logs: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await enlist()
    async with organisation.away():
        assert_came_to_nothing(await browser.open(ASK), browser, "temporarily_unavailable")

    assert "it cannot be reached" in troubles_of(json_logs)
    await assert_healthy(enlist, organisation, browser, monkeypatch)


@pytest.mark.clause("decided-external-realm-down")
async def test_an_organisation_that_is_away_when_a_browser_comes_back(
    organisation: FakeProvider,
    browser: Browser,
    enlist: Enlist,
    json_logs: io.StringIO,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    await enlist()
    path = await log_in_there(await set_out(browser, ASK))
    async with organisation.away():
        assert_came_to_nothing(await come_back(browser, path), browser, "temporarily_unavailable")

    assert "it cannot be reached" in troubles_of(json_logs)
    await assert_healthy(enlist, organisation, browser, monkeypatch)


# Metadata, tokens, codes and claims that are not right


def publishes_no_source(organisation: FakeProvider) -> None:
    organisation.metadata = {"userinfo_endpoint": None, "introspection_endpoint": None, "jwks_uri": None}


def refuses(path: str, status: int, body: Mapping[str, object]) -> Bend:
    return answers(path, Reply(status, body))


@pytest.mark.clause(
    "decided-external-realm-down", "8414-3.3-issuer-checked", "7662-2.2-active-believed", "decided-external-denial"
)
@pytest.mark.parametrize(
    "trouble",
    [
        told("metadata of another issuer", metadata_say(issuer=OTHER_ISSUER), "that of the issuer"),
        told("metadata of nobody", metadata_say(issuer=None), "not JSON of the form"),
        told("metadata of a number", metadata_say(issuer=7), "not JSON of the form"),
        told("metadata without an authorization endpoint", metadata_say(authorization_endpoint=None), "names no auth"),
        told("metadata without a token endpoint", metadata_say(token_endpoint=None), "names no auth"),
        told("metadata without a source of who it is", publishes_no_source, "no way to learn who"),
        told("a token endpoint without TLS", metadata_say(token_endpoint="http://org.example/"), "not one to speak to"),
        told("a login page that is a script", metadata_say(authorization_endpoint="javascript:x"), "not one to speak"),
        told("no metadata anywhere", answers(OPENID_METADATA, Reply(404)), "publishes no metadata"),
        told("a token of another type", tokens_are(token_type="mac"), "no bearer token"),
        told("a token bound to a key", tokens_are(token_type="DPoP"), "no bearer token"),
        told("a token of no type", tokens_are(token_type=None), "not JSON of the form"),
        told("no access token", tokens_are(access_token=None), "not JSON of the form"),
        told("an empty access token", tokens_are(access_token=""), "no bearer token"),
        told("an access token with a line end", tokens_are(access_token="a\r\nx: y"), "no bearer token"),
        told("an access token that is a number", tokens_are(access_token=7), "not JSON of the form"),
        told("the code is refused", refuses(TOKEN, 400, {"error": "invalid_grant"}), "", "access_denied"),
        told("the request is refused", refuses(TOKEN, 400, {"error": "invalid_request"}), "error invalid_request"),
        told(
            "our secret is refused",
            lambda _: None,
            "the error invalid_client",
            entry={"client_secret": "another secret"},
        ),
        told("too many requests", refuses(TOKEN, 429, {"error": "slow down"}), "error too_many_requests"),
        told("a refusal that is no code", refuses(TOKEN, 400, {"error": CLIENT_SECRET}), "error (not a code)"),
        told("a refusal without a code", refuses(TOKEN, 400, {}), "not JSON of the form"),
        told("a refusal with status 200", refuses(TOKEN, 200, {"error": "invalid_grant"}), "not JSON of the form"),
        told(
            "userinfo of somebody else",
            lambda it: (it.id_token_claims.update(email=None), it.userinfo.update(sub="another"))[0],
            "somebody else",
            entry={"username_claim": "email"},
        ),
        told(
            "userinfo of nobody",
            lambda it: (it.id_token_claims.update(email=None), it.userinfo.update(sub=None))[0],
            "somebody else",
            entry={"username_claim": "email"},
        ),
        told("a token that userinfo does not know", refuses(USERINFO, 401, {}), "status 401", entry=BY_USERINFO),
        told(
            "a token that is not active",
            lambda it: it.introspection.update(active=False),
            "not active",
            entry=BY_INTROSPECTION,
        ),
        told(
            "a token of which that is not said",
            lambda it: it.introspection.update(active=None),
            "not active",
            entry=BY_INTROSPECTION,
        ),
        told(
            "a token of which it is said in words",
            lambda it: it.introspection.update(active="true"),
            "not active",
            entry=BY_INTROSPECTION,
        ),
        told(
            "our secret is refused at introspection",
            refuses(INTROSPECT, 401, {"error": "invalid_client"}),
            "status 401",
            entry=BY_INTROSPECTION,
        ),
    ],
)
async def test_an_organisation_that_is_not_in_order(assert_trouble: AssertTrouble, trouble: Trouble) -> None:
    await assert_trouble(trouble)


NO_NAMES = {
    "missing": None,
    "empty": "",
    "too long": "z" * 256,
    "with a line end": "zoe\n",
    "with a line end inside": "zoe\r\nX: y",
    "with a control character": "zoe\x00",
    "true": True,
    "false": False,
    "a list": ["zoe"],
    "an object": {"name": "zoe"},
    "not whole": 1.5,
    "a number that is too long": 10**300,
}


@pytest.mark.clause("decided-external-realm-down", "6749-10.14-input-validated", "decided-external-username")
@pytest.mark.parametrize("entry", [{}, BY_USERINFO, BY_INTROSPECTION], ids=["ID token", "userinfo", "introspection"])
@pytest.mark.parametrize("name", NO_NAMES)
async def test_a_claim_that_is_no_name(assert_trouble: AssertTrouble, entry: Mapping[str, object], name: str) -> None:
    await assert_trouble(
        Trouble(claims(employee=NO_NAMES[name]), "the claim employee", entry={**entry, "username_claim": "employee"})
    )


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize("name", ["z", "z" * 255, "zoe:zoe", "zoe zoe", "Zoë \U0001d4b5", "-", "*"])
async def test_a_claim_that_is_an_unusual_name(
    organisation: FakeProvider, browser: Browser, cep: None, name: str
) -> None:
    organisation.claims["sub"] = name
    page = await log_in_by_way_of_cep(browser, ASK)

    assert is_consent_page(page)
    assert name in Page(page).text


@pytest.mark.clause("6749-4.1.2.1-error", "decided-external-username")
@pytest.mark.parametrize("verified", [False, "false", "", 0, None], ids=repr)
@pytest.mark.parametrize("entry", [{}, BY_USERINFO, BY_INTROSPECTION], ids=["ID token", "userinfo", "introspection"])
async def test_an_address_that_the_organisation_does_not_call_verified(
    assert_trouble: AssertTrouble, entry: Mapping[str, object], verified: object
) -> None:
    await assert_trouble(
        Trouble(claims(email_verified=verified), "", "access_denied", {**entry, "username_claim": "email"})
    )


@pytest.mark.clause("decided-external-username")
async def test_a_doubt_counts_where_the_address_stands(
    organisation: FakeProvider, browser: Browser, enlist: Enlist
) -> None:
    """What the ID token vouches for is the address of the ID token, which here has none."""
    await enlist(username_claim="email")
    organisation.id_token_claims = {"email": None, "email_verified": True}
    organisation.userinfo = {"email": "somebody@else.example", "email_verified": False}
    assert_came_to_nothing(await log_in_by_way_of_cep(browser, ASK), browser, "access_denied")

    organisation.id_token_claims = {"email": None, "email_verified": False}
    organisation.userinfo = {}
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


# The registry changes while the user is away


@pytest.mark.clause("decided-external-follows-the-record")
@pytest.mark.parametrize("names_itself", [True, False])
async def test_a_realm_that_another_organisation_has_now(
    organisation: FakeProvider,
    browser: Browser,
    enlist: Enlist,
    monkeypatch: pytest.MonkeyPatch,
    names_itself: bool,
) -> None:
    """Its code goes to nobody else, whether or not its redirect says whose it is."""
    if not names_itself:
        organisation.redirect = {"iss": None}
    await enlist()
    path = await log_in_there(await set_out(browser, ASK))
    async with running_organisation() as elsewhere:
        elsewhere.metadata = {"authorization_response_iss_parameter_supported": names_itself}
        await enlist(issuer=elsewhere.url)
        assert_came_to_nothing(await come_back(browser, path), browser, "temporarily_unavailable")
        assert elsewhere.calls(TOKEN) == []

    organisation.redirect = {}
    await assert_healthy(enlist, organisation, browser, monkeypatch)


@pytest.mark.clause("decided-external-follows-the-record")
async def test_a_realm_that_changes_while_the_organisation_is_asked(
    organisation: FakeProvider, browser: Browser, enlist: Enlist, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says then was said under a configuration that is no more."""
    await enlist()
    path = await log_in_there(await set_out(browser, ASK))
    changed = asyncio.Event()
    organisation.answer(KEYS, Held(Reply(200, dict(KeySet(organisation.keys).as_dict(private=False))), changed))
    coming_back = asyncio.create_task(come_back(browser, path))
    await organisation.reached(KEYS)
    await enlist(username_claim="email")
    changed.set()

    assert_came_to_nothing(await coming_back, browser, "temporarily_unavailable")
    await assert_healthy(enlist, organisation, browser, monkeypatch)


async def test_a_realm_that_gives_no_roles_any_more(
    browser: Browser, enlist: Enlist, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.registry.pending_revocations.SCAN_DELAY_SECONDS", 0)
    await enlist()
    path = await log_in_there(await set_out(browser, ASK))
    await enlist(default_roles=["partner", "enduser"])
    assert is_consent_page(await come_back(browser, path))

    other = Browser(browser.http)
    path = await log_in_there(await set_out(other, ASK))
    await enlist(default_roles=[])
    assert_sent_back(await come_back(other, path), "access_denied")


@pytest.mark.clause("6749-4.1.2.1-error")
async def test_a_realm_that_was_removed(
    organisation: FakeProvider,
    browser: Browser,
    cep: None,
    parts: Worker,
    store: redis.Redis,
    loop_time: LoopTime,
) -> None:
    path = await log_in_there(await set_out(browser, ASK))
    store.rename(registry_key("realm", "cep"), registry_key("realm", "away"))
    await heard(parts)
    assert_came_to_nothing(await come_back(browser, path), browser, "invalid_scope")
    assert organisation.calls(TOKEN) == []
    assert_came_to_nothing(await browser.open(ASK), browser, "invalid_scope")

    store.rename(registry_key("realm", "away"), registry_key("realm", "cep"))
    loop_time.advance(UNKNOWN_SECONDS)
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


async def test_a_login_of_a_realm_that_was_removed_serves_nobody(
    browser: Browser, cep: None, parts: Worker, store: redis.Redis
) -> None:
    page = await log_in_by_way_of_cep(browser, ASK)
    store.delete(registry_key("realm", "cep"))
    await heard(parts)

    assert_refused(await browser.allow(page), 403, "signed_out")
    assert page_text("sessions.sign_out_heading") not in Page(await browser.open("/sessions/")).text


@pytest.mark.clause("6749-4.1.2.1-no-redirect")
async def test_a_client_whose_address_was_taken_away(
    organisation: FakeProvider, browser: Browser, cep: None, parts: Worker
) -> None:
    scope = "realm:cep role:enduser"
    app = await register(parts, "cep-only", scope=scope, default_scope=scope)
    path = await log_in_there(await set_out(browser, ask(app)))
    await register(parts, "cep-only", "https://elsewhere.example/callback", scope=scope, default_scope=scope)
    assert_refused_without_redirect(await come_back(browser, path))

    assert organisation.calls(TOKEN) == []
    assert "ts_session" not in browser.cookie_values


def assert_refused_without_redirect(response: httpx2.Response) -> None:
    assert (response.status_code, "location" in response.headers) == (400, False)
    assert page_text("refused.unverified_heading") in Page(response).text


# Many troubles


@pytest.mark.clause("decided-external-realm-down", "decided-external-limits")
async def test_an_organisation_that_keeps_failing_is_asked_no_more_and_then_once_again(
    organisation: FakeProvider, browser: Browser, cep: None, held_time: LoopTime
) -> None:
    """Twenty in a row: who comes then hears at once that it is away, and after a second somebody tries."""
    organisation.answer(TOKEN, Reply(500))
    paths = [await log_in_there(await set_out(browser, ASK)) for _ in range(CONTENDERS + 5)]
    last = paths.pop()
    for path in paths:
        assert_came_to_nothing(await come_back(browser, path), browser, "temporarily_unavailable")
    assert len(organisation.calls(TOKEN)) == CONTENDERS

    organisation.answer(TOKEN, None)
    assert_came_to_nothing(await come_back(browser, last), browser, "temporarily_unavailable")
    held_time.advance(OPEN_SECONDS)
    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


@pytest.mark.clause("decided-external-limits")
async def test_denials_are_no_reason_not_to_ask(organisation: FakeProvider, browser: Browser, cep: None) -> None:
    """Nor are addresses that somebody made up: else anybody could shut the organisation out."""
    organisation.redirect = {"iss": OTHER_ISSUER}
    for _ in range(CONTENDERS + 5):
        assert_came_to_nothing(await log_in_by_way_of_cep(browser, ASK), browser, "temporarily_unavailable")
    organisation.redirect = {}
    organisation.answer(TOKEN, Reply(400, {"error": "invalid_grant"}))
    for _ in range(CONTENDERS + 5):
        assert_came_to_nothing(await log_in_by_way_of_cep(browser, ASK), browser, "access_denied")
    organisation.answer(TOKEN, None)

    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))


@pytest.mark.clause("decided-external-limits")
@pytest.mark.parametrize(
    "bend",
    [claims(sub="z" * 256), answers(TOKEN, Reply(403, b"<html>"))],
    ids=["a name that is too long", "refused by a firewall"],
)
async def test_one_person_cannot_shut_the_organisation_out_for_all(
    organisation: FakeProvider, browser: Browser, enlist: Enlist, bend: Bend
) -> None:
    """Neither by the name that they have there, nor by what they send it."""
    await enlist()
    bend(organisation)
    for _ in range(CONTENDERS + 5):
        assert_came_to_nothing(await log_in_by_way_of_cep(browser, ASK), browser, "temporarily_unavailable")
    organisation.claims = dict(CLAIMS)
    organisation.answer(TOKEN, None)

    assert is_consent_page(await log_in_by_way_of_cep(browser, ASK))
