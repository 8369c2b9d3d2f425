"""A browser logs in at the organisation of realm cep: the way there, what is asked there, and who comes back."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from typing import Any
from urllib.parse import quote_plus

import httpx2
import pytest

from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.realms.conftest import Enlist
from tests.realms.journey import (
    ASK_CEP,
    CALLBACK,
    choose_cep,
    come_back,
    log_in_by_way_of_cep,
    log_in_there,
    place_of,
    query_of,
    set_out,
)
from tests.support.actors import (
    ALICE,
    AUDITOR,
    PHONE_APP,
    PHONE_CALLBACK,
    Person,
    revoke_all,
    tokens_of,
    verify,
)
from tests.support.browser import (
    CONSENT,
    ISSUER,
    SESSIONS,
    SWITCH,
    Browser,
    Page,
    answer_of,
    ask,
    assert_refused,
    assert_sent_back,
    change_user,
    is_consent_page,
    is_login_page,
    page_text,
)
from tests.support.fake_provider import (
    AUTHORIZE,
    CLAIMS,
    CLIENT_ID,
    CLIENT_SECRET,
    INTROSPECT,
    KEYS,
    OAUTH_METADATA,
    OPENID_METADATA,
    TOKEN,
    USERINFO,
    FakeProvider,
    Reply,
)

SUB = str(CLAIMS["sub"])
EMAIL = str(CLAIMS["email"])
NAME = str(CLAIMS["name"])
LABEL = "Example Energy Cooperative"
ZOE = Person(SUB, "", realm="cep")
BOTH_ROLES = ask(scope="realm:cep role:enduser role:organisation")
SCOPES = "/.well-known/oauth-authorization-server"

RANDOM = re.compile(r"[\w-]{43}", re.ASCII)
"""256 bits."""


async def describe(http: httpx2.AsyncClient, page: httpx2.Response, browser: Browser) -> dict[str, Any]:
    """What introspection says of the access token that comes of allowing what the page asks."""
    assert is_consent_page(page), page.text or page.headers
    code = answer_of(await browser.allow(page))["code"]
    access_token = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["access_token"]
    described: dict[str, Any] = (await AUDITOR.introspect(http, access_token)).json()
    return described


async def log_in(http: httpx2.AsyncClient, browser: Browser, address: str = ASK_CEP) -> dict[str, Any]:
    return await describe(http, await log_in_by_way_of_cep(browser, address), browser)


def paths_of(organisation: FakeProvider) -> list[str]:
    return [request.path for request in organisation.requests]


def answer_tokens_to_anybody(organisation: FakeProvider) -> None:
    """Whatever the client sends to prove who it is; its user is told by userinfo."""
    organisation.answer(TOKEN, Reply(200, {"access_token": "a-token", "token_type": "Bearer"}))
    organisation.answer(USERINFO, Reply(200, CLAIMS))


# The way there


@pytest.mark.clause("spec-2.2-realm-cep", "decided-realm-choice", "decided-external-at-once")
async def test_where_only_realm_cep_will_do_the_browser_is_sent_to_the_organisation_at_once(
    http: httpx2.AsyncClient, cep: None, organisation: FakeProvider
) -> None:
    response = await http.get(ASK_CEP)
    place = place_of(response)
    query = query_of(place)

    assert response.content == b""
    assert response.headers["cache-control"] == "no-store, no-cache"
    assert response.headers["referrer-policy"] == "no-referrer"
    assert place.startswith(f"{organisation.url}{AUTHORIZE}?")
    assert all(RANDOM.fullmatch(query.pop(name)) for name in ("nonce", "code_challenge"))
    assert len(query.pop("state")) > 43
    assert query == {
        "response_type": "code",
        "client_id": CLIENT_ID,
        "redirect_uri": f"{ISSUER}{CALLBACK}",
        "scope": "openid email",
        "code_challenge_method": "S256",
    }


async def test_the_browser_gets_the_cookie_that_it_comes_back_with_and_no_other(
    http: httpx2.AsyncClient, cep: None
) -> None:
    (cookie,) = (await http.get(ASK_CEP)).headers.get_list("set-cookie")

    assert cookie.startswith("ts_browser=")


async def test_every_way_there_is_another(browser: Browser, cep: None) -> None:
    queries = [query_of(await set_out(browser)) for _ in range(3)]

    for name in ("state", "nonce", "code_challenge"):
        assert len({query[name] for query in queries}) == 3
    assert len({query[name] for query in queries for name in ("state", "nonce", "code_challenge")}) == 9


@pytest.mark.parametrize("scope", ["email", None])
async def test_a_nonce_is_sent_with_the_scope_openid_alone(browser: Browser, enlist: Enlist, scope: str | None) -> None:
    await enlist(scope=scope)
    query = query_of(await set_out(browser))

    assert "nonce" not in query
    assert query.get("scope") == scope


async def test_a_query_in_the_organisations_address_is_kept(
    browser: Browser, cep: None, organisation: FakeProvider
) -> None:
    organisation.metadata = {"authorization_endpoint": f"{organisation.url}{AUTHORIZE}?tenant=7"}
    place = await set_out(browser)

    assert place.startswith(f"{organisation.url}{AUTHORIZE}?tenant=7&response_type=code&")
    assert is_consent_page(await come_back(browser, await log_in_there(place)))


async def test_below_a_path_of_the_web_url_the_way_back_leads_below_it(
    make_settings: MakeSettings, clock: Clock, registry: None, cep: None
) -> None:
    settings = make_settings(TOKEN_SERVICE_WEB_URL="https://login.example/idp")
    async with serving(settings, clock) as http:
        http.base_url = httpx2.URL("https://login.example")
        browser = Browser(http)
        place = await set_out(browser, f"/idp{ASK_CEP}")

        assert query_of(place)["redirect_uri"] == "https://login.example/idp/authorization/callback"
        assert is_consent_page(await come_back(browser, await log_in_there(place)))
        assert "__Host-ts_session" in browser.cookie_values


@pytest.mark.clause("decided-pages-hsts")
async def test_the_redirects_to_and_from_an_organisation_demand_https_where_the_web_url_is_https(
    make_settings: MakeSettings, clock: Clock, registry: None, cep: None
) -> None:
    async with serving(make_settings(TOKEN_SERVICE_WEB_URL="https://login.example"), clock) as http:
        http.base_url = httpx2.URL("https://login.example")
        browser = Browser(http)
        leaving = await browser.open(ASK_CEP)
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookie_values.items())
        path = await log_in_there(place_of(leaving))
        returning = await http.get(path, headers={"Cookie": cookies})

    assert (leaving.status_code, returning.status_code) == (303, 303)
    for answer in (leaving, returning):
        assert answer.headers.get_list("strict-transport-security") == ["max-age=31536000"]
        assert answer.headers["cross-origin-opener-policy"] == "same-origin"


# What the organisation's token endpoint is sent


async def test_the_code_is_redeemed_with_the_address_of_the_way_back_and_the_verifier_of_the_challenge(
    browser: Browser, cep: None, organisation: FakeProvider
) -> None:
    place = await set_out(browser)
    path = await log_in_there(place)
    await come_back(browser, path)
    (request,) = organisation.calls(TOKEN)
    verifier = request.form["code_verifier"]
    challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()

    assert request.form == {
        "grant_type": "authorization_code",
        "code": query_of(path)["code"],
        "redirect_uri": f"{ISSUER}{CALLBACK}",
        "code_verifier": verifier,
    }
    assert RANDOM.fullmatch(verifier)
    assert challenge == query_of(place)["code_challenge"]
    assert request.headers["content-type"] == "application/x-www-form-urlencoded"
    assert not {"cookie", "origin", "referer"} & request.headers.keys()


@pytest.mark.parametrize("secret", [CLIENT_SECRET, "a secret: with 100% + signs & =", "~-._*"])
async def test_the_service_proves_itself_by_basic_with_both_halves_encoded_as_in_a_form(
    browser: Browser, enlist: Enlist, organisation: FakeProvider, secret: str
) -> None:
    await enlist(client_id="token service:1", client_secret=secret)
    place = await set_out(browser)
    state = query_of(place)["state"]
    await come_back(browser, f"{CALLBACK}?state={state}&code=x&iss={organisation.url}")
    (request,) = organisation.calls(TOKEN)
    scheme, _, credentials = request.headers["authorization"].partition(" ")

    assert query_of(place)["client_id"] == "token service:1"
    assert scheme == "Basic"
    assert base64.b64decode(credentials).decode() == f"token+service%3A1:{quote_plus(secret)}"
    assert not {"client_id", "client_secret"} & request.form.keys()


@pytest.mark.parametrize("methods", [["client_secret_post"], ["private_key_jwt", "client_secret_post"]])
async def test_the_secret_stands_in_the_body_where_the_organisation_takes_it_nowhere_else(
    browser: Browser, enlist: Enlist, organisation: FakeProvider, methods: list[str]
) -> None:
    organisation.metadata = {"token_endpoint_auth_methods_supported": methods}
    answer_tokens_to_anybody(organisation)
    await enlist(scope="email")
    page = await log_in_by_way_of_cep(browser)
    (request,) = organisation.calls(TOKEN)

    assert is_consent_page(page)
    assert (request.form["client_id"], request.form["client_secret"]) == (CLIENT_ID, CLIENT_SECRET)
    assert "authorization" not in request.headers


@pytest.mark.parametrize("methods", [None, ["client_secret_post", "client_secret_basic"]])
async def test_the_secret_goes_by_basic_wherever_that_is_taken(
    browser: Browser, cep: None, organisation: FakeProvider, methods: list[str] | None
) -> None:
    organisation.metadata = {"token_endpoint_auth_methods_supported": methods}

    assert is_consent_page(await log_in_by_way_of_cep(browser))
    assert "client_secret" not in organisation.calls(TOKEN)[0].form


async def test_without_a_secret_the_service_only_names_itself(
    browser: Browser, enlist: Enlist, organisation: FakeProvider
) -> None:
    answer_tokens_to_anybody(organisation)
    await enlist(scope="email", client_secret=None)
    page = await log_in_by_way_of_cep(browser)
    (request,) = organisation.calls(TOKEN)

    assert is_consent_page(page)
    assert (request.form["client_id"], "client_secret" in request.form) == (CLIENT_ID, False)
    assert "authorization" not in request.headers


# Who it is


@pytest.mark.clause("spec-2.2-realm-cep", "decided-external-source", "decided-external-id-token")
async def test_the_id_token_says_who_it_is_and_nobody_else_is_asked(
    browser: Browser, http: httpx2.AsyncClient, cep: None, organisation: FakeProvider
) -> None:
    description = await log_in(http, browser)

    assert (description["realm"], description["username"]) == ("cep", SUB)
    assert description["scope"] == "realm:cep role:enduser"
    assert paths_of(organisation) == [OPENID_METADATA, AUTHORIZE, TOKEN, KEYS]


@pytest.mark.clause("spec-2.2-realm-cep", "decided-external-source")
@pytest.mark.parametrize("source", ["userinfo_endpoint", None])
async def test_userinfo_says_who_it_is_where_there_is_no_id_token(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, organisation: FakeProvider, source: str | None
) -> None:
    """Named in the seed file, or found in the metadata."""
    await enlist(scope="email", **({source: organisation.url + USERINFO} if source else {}))
    description = await log_in(http, browser)
    (request,) = organisation.calls(USERINFO)

    assert (description["realm"], description["username"]) == ("cep", SUB)
    assert request.headers["authorization"].startswith("Bearer ")
    assert not {KEYS, INTROSPECT} & set(paths_of(organisation))


@pytest.mark.clause("spec-2.2-realm-cep", "decided-external-source")
@pytest.mark.parametrize("source", ["introspection_endpoint", None])
async def test_introspection_says_who_it_is_where_nothing_else_does(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, organisation: FakeProvider, source: str | None
) -> None:
    organisation.metadata = {} if source else {"userinfo_endpoint": None, "jwks_uri": None}
    await enlist(scope="email", **({source: organisation.url + INTROSPECT} if source else {}))
    description = await log_in(http, browser)
    (request,) = organisation.calls(INTROSPECT)

    assert (description["realm"], description["username"]) == ("cep", SUB)
    assert request.form.keys() == {"token"}
    assert request.headers["authorization"] == organisation.calls(TOKEN)[0].headers["authorization"]
    assert not {KEYS, USERINFO} & set(paths_of(organisation))


@pytest.mark.clause("decided-external-source")
async def test_a_claim_that_the_id_token_lacks_is_asked_for_at_userinfo(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, organisation: FakeProvider
) -> None:
    await enlist(username_claim="email")
    organisation.id_token_claims = {"email": None, "email_verified": None}

    assert (await log_in(http, browser))["username"] == EMAIL
    assert len(organisation.calls(USERINFO)) == 1


async def test_a_claim_that_the_id_token_has_is_not_asked_for_again(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, organisation: FakeProvider
) -> None:
    await enlist(username_claim="email")
    organisation.userinfo = {"email": "somebody@else.example"}

    assert (await log_in(http, browser))["username"] == EMAIL
    assert not organisation.calls(USERINFO)


@pytest.mark.clause("decided-external-username")
@pytest.mark.parametrize("number", [4711, 0, 2**63, 10**30])
@pytest.mark.parametrize("source", ["openid email", "email"])
async def test_the_digits_of_a_number_are_a_name(
    browser: Browser,
    http: httpx2.AsyncClient,
    enlist: Enlist,
    organisation: FakeProvider,
    source: str,
    number: int,
) -> None:
    organisation.claims["employee"] = number
    await enlist(username_claim="employee", scope=source)

    assert (await log_in(http, browser))["username"] == str(number)


async def test_names_of_the_organisation_differ_by_their_capitals(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, organisation: FakeProvider
) -> None:
    """Only e-mail addresses may have been capitalised by a phone."""
    await enlist(username_claim="nickname")
    organisation.claims["nickname"] = "zoe"
    small = await log_in(http, browser)
    organisation.claims["nickname"] = "Zoe"
    large = await log_in(http, Browser(http))

    assert (small["username"], large["username"]) == ("zoe", "Zoe")
    assert small["sub"] != large["sub"]


@pytest.mark.clause("decided-external-email-folded")
async def test_an_email_address_is_one_user_whatever_its_capitals(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, organisation: FakeProvider
) -> None:
    await enlist(username_claim="email")
    small = await log_in(http, browser)
    organisation.claims["email"] = EMAIL.upper()
    large = await log_in(http, Browser(http))

    assert (small["username"], large["username"]) == (EMAIL, EMAIL)
    assert small["sub"] == large["sub"]


@pytest.mark.clause("decided-external-username")
async def test_a_realm_may_trust_addresses_that_nobody_verified(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, organisation: FakeProvider
) -> None:
    await enlist(username_claim="email", trust_email=True)
    organisation.claims["email_verified"] = None

    assert (await log_in(http, browser))["username"] == EMAIL


@pytest.mark.clause("decided-external-source", "decided-external-username")
async def test_an_id_token_that_does_not_say_verified_leaves_the_address_to_userinfo(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, organisation: FakeProvider
) -> None:
    """Address and verification are of one document: an address of the ID token is not vouched for by userinfo's."""
    await enlist(username_claim="email")
    organisation.id_token_claims = {"email": "victim@org.example", "email_verified": None}
    organisation.userinfo = {"email": "Zoe@home.example", "email_verified": True}

    assert (await log_in(http, browser))["username"] == "zoe@home.example"


# Where the organisation is found


@pytest.mark.parametrize(
    ("scope", "source"), [("openid", "jwks_uri"), ("email", "userinfo_endpoint"), ("email", "introspection_endpoint")]
)
async def test_where_the_seed_file_names_every_address_no_metadata_is_asked_for(
    browser: Browser,
    http: httpx2.AsyncClient,
    enlist: Enlist,
    organisation: FakeProvider,
    scope: str,
    source: str,
) -> None:
    places = {"jwks_uri": KEYS, "userinfo_endpoint": USERINFO, "introspection_endpoint": INTROSPECT}
    await enlist(
        issuer=organisation.url if source == "jwks_uri" else None,
        authorization_endpoint=organisation.url + AUTHORIZE,
        token_endpoint=organisation.url + TOKEN,
        scope=scope,
        **{source: organisation.url + places[source]},
    )

    assert (await log_in(http, browser))["username"] == SUB
    assert paths_of(organisation) == [AUTHORIZE, TOKEN, places[source]]


PLACES = [
    pytest.param("openid email", OPENID_METADATA, OAUTH_METADATA, id="with openid"),
    pytest.param("email", OAUTH_METADATA, OPENID_METADATA, id="without openid"),
]


@pytest.mark.parametrize(("scope", "first", "second"), PLACES)
async def test_the_metadata_are_looked_for_at_the_likelier_place(
    browser: Browser, enlist: Enlist, organisation: FakeProvider, scope: str, first: str, second: str
) -> None:
    await enlist(scope=scope)
    organisation.answer(first, Reply(200, organisation.describe()))

    assert (await set_out(browser)).startswith(organisation.url + AUTHORIZE)
    assert paths_of(organisation) == [first]


@pytest.mark.parametrize(("scope", "first", "second"), PLACES)
async def test_metadata_that_are_not_there_are_looked_for_at_the_other_place(
    browser: Browser, enlist: Enlist, organisation: FakeProvider, scope: str, first: str, second: str
) -> None:
    await enlist(scope=scope)
    organisation.answer(first, Reply(404))
    organisation.answer(second, Reply(200, organisation.describe()))

    assert (await set_out(browser)).startswith(organisation.url + AUTHORIZE)
    assert paths_of(organisation) == [first, second]


@pytest.mark.parametrize(
    ("scope", "path"),
    [
        pytest.param("openid email", f"/tenant{OPENID_METADATA}", id="with openid"),
        pytest.param("email", f"{OAUTH_METADATA}/tenant", id="without openid"),
    ],
)
async def test_an_issuer_may_have_a_path(
    browser: Browser,
    http: httpx2.AsyncClient,
    enlist: Enlist,
    organisation: FakeProvider,
    scope: str,
    path: str,
) -> None:
    issuer = f"{organisation.url}/tenant"
    organisation.redirect = organisation.id_token_claims = {"iss": issuer}
    organisation.metadata = {"issuer": issuer}
    organisation.answer(path, Reply(200, organisation.describe()))
    await enlist(issuer=issuer, scope=scope)

    assert (await log_in(http, browser))["username"] == SUB
    assert paths_of(organisation)[0] == path


async def test_metadata_and_keys_are_remembered(
    http: httpx2.AsyncClient, cep: None, organisation: FakeProvider
) -> None:
    for _ in range(3):
        assert is_consent_page(await log_in_by_way_of_cep(Browser(http)))

    assert (len(organisation.calls(OPENID_METADATA)), len(organisation.calls(KEYS))) == (1, 1)


# What they may do


@pytest.mark.clause("spec-2.2-realm-cep", "decided-external-roles")
@pytest.mark.parametrize(
    ("default_roles", "granted"),
    [(["enduser"], "role:enduser"), (["organisation", "enduser"], "role:enduser role:organisation")],
)
async def test_who_is_not_listed_has_the_roles_of_the_realm(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist, default_roles: list[str], granted: str
) -> None:
    await enlist(default_roles=default_roles)

    assert (await log_in(http, browser, BOTH_ROLES))["scope"] == f"realm:cep {granted}"


@pytest.mark.clause("decided-external-roles")
async def test_who_is_listed_has_the_listed_roles_and_not_those_of_the_realm(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist
) -> None:
    await enlist({"username": SUB, "realm": "cep", "roles": ["organisation"]})

    assert (await log_in(http, browser, BOTH_ROLES))["scope"] == "realm:cep role:organisation"


@pytest.mark.clause("decided-external-roles", "decided-external-afresh")
@pytest.mark.parametrize(
    ("users", "default_roles"),
    [
        pytest.param([{"username": SUB, "realm": "cep", "roles": []}], ["enduser"], id="listed with none"),
        pytest.param([{"username": SUB, "realm": "cep", "roles": ["admin"]}], ["enduser"], id="listed with another"),
        pytest.param([], [], id="not listed, and the realm gives none"),
        pytest.param([{"username": SUB, "roles": ["enduser"], "password": "x" * 8}], [], id="listed in another realm"),
    ],
)
async def test_who_has_none_of_the_roles_is_denied(
    browser: Browser, enlist: Enlist, users: list[dict[str, object]], default_roles: list[str]
) -> None:
    await enlist(*users, default_roles=default_roles)
    answer = assert_sent_back(await log_in_by_way_of_cep(browser, f"{ASK_CEP}&state=a%20state"), "access_denied")

    assert answer["state"] == "a state"
    assert query_of(await set_out(browser))["prompt"] == "login"  # or they would be sent back as who they are


async def test_who_is_listed_gets_in_where_nobody_else_does(
    browser: Browser, http: httpx2.AsyncClient, enlist: Enlist
) -> None:
    await enlist({"username": SUB, "realm": "cep", "roles": ["enduser"]}, default_roles=[])

    assert (await log_in(http, browser))["username"] == SUB


@pytest.mark.clause("decided-disabled-user")
@pytest.mark.parametrize("is_listed", [True, False])
async def test_a_disabled_user_is_denied_though_the_organisation_lets_them_in(
    browser: Browser, enlist: Enlist, parts: Worker, is_listed: bool
) -> None:
    await enlist(*([{"username": SUB, "realm": "cep", "roles": ["enduser"]}] if is_listed else []))
    await change_user(parts, ZOE, disabled=True)
    assert_sent_back(await log_in_by_way_of_cep(browser), "access_denied")

    assert "ts_session" not in browser.cookie_values


@pytest.mark.clause("decided-disabled-user")
async def test_a_login_of_a_user_who_was_disabled_since_is_worth_nothing(
    browser: Browser, cep: None, parts: Worker
) -> None:
    page = await log_in_by_way_of_cep(browser)
    await change_user(parts, ZOE, disabled=True)

    assert_refused(await browser.allow(page), 403, "signed_out")
    assert query_of(await set_out(browser))["prompt"] == "login"  # or single sign-on would send them back


@pytest.mark.clause("decided-same-name-in-two-realms")
async def test_a_user_of_one_name_in_both_realms_is_two_users(
    http: httpx2.AsyncClient, cep: None, organisation: FakeProvider
) -> None:
    organisation.claims["sub"] = ALICE.username
    browsers = Browser(http), Browser(http)
    pages = await log_in_by_way_of_cep(browsers[0]), await browsers[1].reach_consent(ask())
    codes = [answer_of(await browser.allow(page))["code"] for browser, page in zip(browsers, pages, strict=True)]
    theirs, ours = [tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK)) for code in codes]
    there, here = [(await AUDITOR.introspect(http, it["access_token"])).json() for it in (theirs, ours)]

    assert there["username"] == here["username"] == ALICE.username
    assert (there["realm"], here["realm"]) == ("cep", "main")
    assert there["sub"] != here["sub"]

    await revoke_all(http, theirs["access_token"])
    assert (await verify(http, theirs["access_token"])).status_code == 401
    assert (await PHONE_APP.refresh(http, theirs["refresh_token"])).status_code == 400
    assert (await verify(http, ours["access_token"])).status_code == 200
    assert is_consent_page(await browsers[1].open(ask()))
    assert (await set_out(browsers[0])).startswith(organisation.url)


# What they see


@pytest.mark.clause("6749-10.2-owner-told")
async def test_the_consent_page_says_who_is_signed_in_and_where(browser: Browser, cep: None) -> None:
    page = Page(await log_in_by_way_of_cep(browser))

    assert NAME in page.text
    assert SUB in page.text
    assert LABEL in page.text
    assert page_text("consent.realm_main") not in page.text


async def test_a_realm_without_a_name_is_called_by_its_own(browser: Browser, enlist: Enlist) -> None:
    await enlist(name=None)

    assert " cep " in Page(await log_in_by_way_of_cep(browser)).text


async def test_the_name_in_the_registry_goes_before_the_organisations(browser: Browser, enlist: Enlist) -> None:
    await enlist({"username": SUB, "realm": "cep", "roles": ["enduser"], "name": "Zoë of ours"})
    page = Page(await log_in_by_way_of_cep(browser))

    assert ("Zoë of ours" in page.text, NAME in page.text) == (True, False)


@pytest.mark.parametrize("name", [None, "", 7, True, ["Zoë"], "Zoë\nExample", "Zoë\r", "\x00", "z" * 256])
async def test_a_name_that_cannot_be_shown_is_left_out(
    browser: Browser, cep: None, organisation: FakeProvider, name: object
) -> None:
    organisation.claims["name"] = name
    page = Page(await log_in_by_way_of_cep(browser))

    assert f"{page_text('consent.signed_in_as')} {SUB}" in page.text


@pytest.mark.clause("6749-10.14-input-validated")
@pytest.mark.parametrize("claim", ["name", "sub"])
async def test_markup_in_what_the_organisation_says_is_text(
    browser: Browser, cep: None, organisation: FakeProvider, claim: str
) -> None:
    hostile = "<script>alert(1)</script>\"'&amp;{{7*7}}"
    organisation.claims[claim] = hostile
    page = await log_in_by_way_of_cep(browser)

    assert is_consent_page(page)
    assert "<script" not in page.text
    assert hostile in Page(page).text


@pytest.mark.clause("decided-external-afresh")
async def test_not_you_leads_back_to_the_organisation_which_is_to_ask_for_a_login(
    browser: Browser, http: httpx2.AsyncClient, cep: None, organisation: FakeProvider
) -> None:
    place = await set_out(browser)
    page = await come_back(browser, await log_in_there(place))
    session = browser.cookie_values["ts_session"]
    again = place_of(await browser.submit(page, SWITCH, {}))

    assert "prompt" not in query_of(place)
    assert query_of(again)["prompt"] == "login"
    assert "ts_session" not in browser.cookie_values
    browser.plant("ts_session", session)
    assert_refused(await browser.allow(page), 403, "signed_out")

    organisation.claims["sub"] = "somebody else"
    page = await come_back(browser, await log_in_there(again))
    assert (await describe(http, page, browser))["username"] == "somebody else"


# Logins that last


async def test_a_live_login_spares_the_next_way_there(browser: Browser, cep: None, organisation: FakeProvider) -> None:
    await log_in_by_way_of_cep(browser)
    organisation.requests.clear()

    assert is_consent_page(await browser.open(ASK_CEP))
    assert organisation.requests == []


async def test_who_does_not_stay_has_a_cookie_that_ends_with_the_browser(browser: Browser, cep: None) -> None:
    path = await log_in_there(await set_out(browser))
    cookies = "; ".join(f"{name}={value}" for name, value in browser.cookie_values.items())
    response = await browser.http.get(path, headers={"cookie": cookies})
    (cookie,) = response.headers.get_list("set-cookie")

    assert (response.status_code, response.content) == (303, b"")
    assert response.headers["location"].startswith(f"{CONSENT}?request=")
    assert cookie.startswith("ts_session=")
    assert {"httponly", "samesite=lax"} <= set(cookie.lower().split("; "))
    assert not re.search("max-age|expires", cookie.lower())


@pytest.mark.clause("decided-realm-choice")
async def test_a_login_of_one_realm_does_not_serve_the_other(
    browser: Browser, http: httpx2.AsyncClient, cep: None
) -> None:
    await log_in_by_way_of_cep(browser)
    assert is_login_page(await browser.open(ask(scope="realm:main role:enduser")))

    other = Browser(http)
    await other.reach_consent(ask(scope="realm:main role:enduser"))
    assert (await set_out(other)).startswith("http")


@pytest.mark.clause("decided-realm-choice")
async def test_a_login_of_either_realm_serves_who_named_none(
    browser: Browser, http: httpx2.AsyncClient, cep: None
) -> None:
    await log_in_by_way_of_cep(browser)
    page = await browser.open(ask(scope="role:enduser"))

    assert (await describe(http, page, browser))["scope"] == "realm:cep role:enduser"


@pytest.mark.clause("spec-3-revoke-all")
async def test_logging_out_everywhere_ends_the_login_of_the_organisations_user_too(
    browser: Browser, http: httpx2.AsyncClient, cep: None, organisation: FakeProvider
) -> None:
    code = answer_of(await browser.allow(await log_in_by_way_of_cep(browser)))["code"]
    access_token = tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["access_token"]
    await revoke_all(http, access_token)

    assert (await set_out(browser)).startswith(organisation.url)


# The page of one's own sessions


async def test_the_organisations_button_leads_to_ones_own_sessions(
    browser: Browser, cep: None, organisation: FakeProvider
) -> None:
    page = await browser.open(SESSIONS)
    policy = page.headers["content-security-policy"]
    form_action = next(part for part in policy.split("; ") if part.startswith("form-action "))
    place = await choose_cep(browser, page)
    page = await come_back(browser, await log_in_there(place))

    assert "https:" in form_action.split()
    assert place.startswith(organisation.url)
    assert page.url.path == SESSIONS
    assert page_text("sessions.sign_out_heading") in Page(page).text
    assert NAME in Page(page).text


@pytest.mark.parametrize(
    ("error", "notice"),
    [("access_denied", "notice_login_denied"), ("server_error", "notice_login_failed")],
)
async def test_a_login_that_came_to_nothing_is_told_on_the_page(
    browser: Browser, cep: None, organisation: FakeProvider, error: str, notice: str
) -> None:
    organisation.redirect = {"code": None, "error": error}
    page = await come_back(browser, await log_in_there(await choose_cep(browser, await browser.open(SESSIONS))))

    assert (page.status_code, page.url.path) == (200, SESSIONS)
    assert page_text(f"login.{notice}") in Page(page).text
    assert is_login_page(page)
    assert "ts_session" not in browser.cookie_values

    organisation.redirect = {}
    page = await come_back(browser, await log_in_there(await choose_cep(browser, page)))
    assert page_text("sessions.sign_out_heading") in Page(page).text


@pytest.mark.clause("decided-external-afresh")
@pytest.mark.parametrize("leave", ["/sessions/sign-out", "/sessions/end-all"])
async def test_who_signs_out_is_not_let_in_again_by_the_next_click_of_somebody_else(
    browser: Browser, cep: None, leave: str
) -> None:
    page = await come_back(browser, await log_in_there(await choose_cep(browser, await browser.open(SESSIONS))))
    page = await browser.submit(page, leave, {})

    assert is_login_page(page)
    assert query_of(await choose_cep(browser, page))["prompt"] == "login"
    assert "prompt" not in query_of(await choose_cep(browser, await browser.open(SESSIONS)))


async def test_who_is_not_admitted_here_is_told_so(browser: Browser, cep: None, parts: Worker) -> None:
    await change_user(parts, ZOE, disabled=True)
    page = await come_back(browser, await log_in_there(await choose_cep(browser, await browser.open(SESSIONS))))

    assert page_text("login.notice_login_not_admitted") in Page(page).text
    assert query_of(await choose_cep(browser, page))["prompt"] == "login"


async def test_an_id_token_may_carry_the_certificates_of_its_key(
    browser: Browser, cep: None, organisation: FakeProvider
) -> None:
    organisation.id_token_header = {"x5c": ["A" * 4000]}

    assert is_consent_page(await log_in_by_way_of_cep(browser))


async def test_an_organisation_that_is_away_is_told_on_the_page_with_the_form(
    browser: Browser, cep: None, organisation: FakeProvider
) -> None:
    page = await browser.open(SESSIONS)
    async with organisation.away():
        page = await browser.submit(page, "/authorization/login", {"realm": "cep"})

    assert page.status_code == 503
    assert int(page.headers["retry-after"]) >= 1
    assert "Signing in with Example Energy Cooperative is not possible right now." in Page(page).text
    assert (await choose_cep(browser, page)).startswith(organisation.url)


# The metadata document of the service


async def scopes_of(http: httpx2.AsyncClient) -> list[str]:
    document: dict[str, list[str]] = json.loads((await http.get(SCOPES)).content)
    return document["scopes_supported"]


@pytest.mark.clause("8414-2-scopes")
async def test_the_metadata_document_names_the_realm_where_it_is_configured(
    http: httpx2.AsyncClient, cep: None
) -> None:
    assert (await scopes_of(http))[:2] == ["realm:main", "realm:cep"]


@pytest.mark.clause("8414-2-scopes")
async def test_the_metadata_document_does_not_name_a_realm_that_is_not_configured(http: httpx2.AsyncClient) -> None:
    scopes = await scopes_of(http)

    assert ("realm:main" in scopes, "realm:cep" in scopes) == (True, False)
