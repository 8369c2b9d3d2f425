"""GET /authorization/ over HTTP: redirects of valid requests, and the responses to invalid ones.

The client and its redirect URI are checked first. If one is wrong, the user gets an error page and no redirect.
"""

from urllib.parse import quote, urlencode

import httpx2
import pytest
import redis

from service.worker import Worker
from tests.conftest import Clock, MakeSettings, serving
from tests.support.browser import (
    AUTHORIZATION,
    CHALLENGE,
    CONSENT,
    ISSUER,
    VERIFIER,
    Browser,
    Page,
    assert_refused,
    assert_sent_back,
    authorization_response,
    authorization_url,
    is_consent_page,
    is_login_page,
    page_text,
    register,
)
from tests.support.clients_and_users import (
    ALICE,
    BOB,
    METER,
    PHONE_APP,
    PHONE_CALLBACK,
    SHOP_CALLBACK,
    WEB_SHOP,
    UserCredentials,
    tokens_of,
)

OTHER_SHOP_CALLBACK = "https://shop.example:8443/other?keep=this"


# Valid requests


@pytest.mark.clause("6749-3.1-get", "6749-3.1-owner-verified-first", "spec-4.1-login-and-consent")
async def test_a_right_request_shows_the_login_page(browser: Browser) -> None:
    page = await browser.open(authorization_url(state="x"))

    assert page.status_code == 200
    assert is_login_page(page)


@pytest.mark.clause("6749-3.1-unknown-parameter-ignored")
async def test_unknown_parameters_are_ignored_even_twice_or_unreadable(browser: Browser) -> None:
    page = await browser.open(authorization_url() + "&nonce=a&nonce=b&ui=%ff&%ff=1&Client_Id=other&nonce")

    assert is_login_page(page)


@pytest.mark.clause("6749-3.1-empty-parameter-omitted")
async def test_empty_parameters_count_as_left_out(browser: Browser) -> None:
    page = await browser.open_consent_page(
        authorization_url(state="", scope="", code_challenge="", code_challenge_method="")
    )
    answer = authorization_response(await browser.allow(page))

    assert answer.keys() == {"code", "iss"}


@pytest.mark.clause("spec-0-web-address")
@pytest.mark.parametrize("prefix", ["", "/people"])
async def test_the_pages_live_under_the_path_of_the_web_url(
    make_settings: MakeSettings, clock: Clock, registry: None, prefix: str
) -> None:
    """The pages answer under the path of the web URL, and also without it, for a proxy that strips the path."""
    async with serving(make_settings(TOKEN_SERVICE_WEB_URL="http://127.0.0.1:8000/people"), clock) as http:
        browser = Browser(http)
        page = await browser.open(prefix + authorization_url())
        consent = await browser.log_in(page)

        assert Page(page).forms[0].action == "/people/authorization/login"
        assert consent.url.path == "/people/authorization/consent"
        assert authorization_response(await browser.allow(consent))["iss"] == ISSUER


# Client and redirect URI: no redirect


@pytest.mark.clause("6749-4.1.1-client-id", "spec-4.1-client-id", "6749-4.1.2.1-no-redirect")
@pytest.mark.clause("6749-4.1.2.1-owner-informed", "6749-3.1-parameter-once")
@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param("", "client_id is missing", id="missing"),
        pytest.param("client_id=nobody", "No client is registered", id="unknown"),
        pytest.param(
            "client_id=phone-app&client_id=phone-app", "client_id was sent more than once", id="twice the same"
        ),
        pytest.param("client_id=phone-app%ff", "client_id contains characters", id="not UTF-8"),
        pytest.param(
            "client_id=" + quote("x\r\nLocation: https://evil.example/"), "No client is registered", id="a header"
        ),
    ],
)
async def test_bad_client_id_is_shown_on_a_page_without_redirect(browser: Browser, query: str, message: str) -> None:
    rest = urlencode({"response_type": "code", "redirect_uri": PHONE_CALLBACK, "state": "x"})
    response = await browser.open(f"{AUTHORIZATION}?{query}&{rest}")

    assert_refused(response, 400, "unverified")
    assert message in Page(response).text


@pytest.mark.clause(
    "6749-3.1.2.3-uri-in-request",
    "6749-3.1.2.3-matched",
    "6749-3.1.2.3-simple-comparison",
    "6819-4.1.5-client-as-open-redirector",
    "6819-4.2.4-open-redirector",
)
@pytest.mark.clause("6749-3.1.2.4-no-redirect", "6749-3.1.2.4-owner-informed", "6749-4.1.2.1-no-redirect")
@pytest.mark.clause("6749-10.6-redirect-uri-validated", "6749-10.15-no-open-redirect", "6819-5.2.3.5-mismatch-refused")
@pytest.mark.clause("spec-4.1-redirect-uri", "spec-4.1-unverified-redirect", "spec-7.4-unverified-redirect")
@pytest.mark.parametrize(
    ("query", "message"),
    [
        pytest.param("", "redirect_uri is missing", id="missing"),
        pytest.param(f"redirect_uri={SHOP_CALLBACK}/", "not registered", id="a slash more"),
        pytest.param("redirect_uri=https://shop.example:8443/other", "not registered", id="without its query"),
        pytest.param(
            f"redirect_uri={SHOP_CALLBACK.replace('/callback', '@evil.example/')}", "not registered", id="userinfo"
        ),
        pytest.param(f"redirect_uri={SHOP_CALLBACK.replace('https', 'http')}", "not registered", id="without TLS"),
        pytest.param(
            f"redirect_uri={SHOP_CALLBACK}&redirect_uri={SHOP_CALLBACK}", "more than once", id="twice the same"
        ),
        pytest.param(
            f"redirect_uri={SHOP_CALLBACK}&redirect_uri=https://evil.example/", "more than once", id="and evil"
        ),
        pytest.param(f"redirect_uri={SHOP_CALLBACK}%ff", "contains characters", id="not UTF-8"),
    ],
)
async def test_bad_redirect_uri_is_shown_on_a_page_without_redirect(browser: Browser, query: str, message: str) -> None:
    response = await browser.open(f"{AUTHORIZATION}?response_type=code&client_id=web-shop&state=x&{query}")

    assert_refused(response, 400, "unverified")
    assert message in Page(response).text


@pytest.mark.clause("6749-4.1.2.1-no-redirect", "decided-redis-away")
async def test_unknown_client_gets_a_retry_page_without_redis(
    make_settings: MakeSettings, clock: Clock, store: redis.Redis
) -> None:
    async with serving(make_settings(REDIS_URL="redis://127.0.0.1:1/0", TOKEN_SERVICE_SEED_FILE=""), clock) as http:
        response = await Browser(http).open(authorization_url())

        assert_refused(response, 503, "busy")
        assert int(response.headers["retry-after"]) >= 1


# Errors by redirect


@pytest.mark.clause(
    "6749-4.1.2.1-error", "6749-4.1.2.1-state-returned", "9207-2-iss-in-error-redirect", "6819-4.4.2-implicit-grant"
)
@pytest.mark.clause("spec-7.3-redirect-errors", "6749-3.1.1-response-type", "6749-4.1.1-response-type-code")
@pytest.mark.clause("spec-4.1-response-type", "7636-4.2-no-plain", "7636-4.4.1-method-unsupported")
@pytest.mark.clause("7636-4.4.1-error-explained", "7636-7.2-no-downgrade", "6749-3.1-empty-parameter-omitted")
@pytest.mark.parametrize(
    ("changed", "error", "message"),
    [
        pytest.param({"response_type": None}, "invalid_request", "response_type", id="no response_type"),
        pytest.param({"response_type": "token"}, "unsupported_response_type", "use code", id="token"),
        pytest.param({"scope": "role:god"}, "invalid_scope", "role:god is unknown", id="an unknown role"),
        pytest.param({"scope": "realm:main realm:cep role:enduser"}, "invalid_scope", "one realm", id="two realms"),
        pytest.param({"scope": "realm:main"}, "invalid_scope", "must contain a role", id="no role"),
        pytest.param({"scope": "role:admin"}, "invalid_scope", "not request role:admin", id="beyond the client"),
        pytest.param(
            {"scope": "realm:cep role:enduser"},
            "invalid_scope",
            "No login is configured for realm:cep",
            id="a realm without a login",
        ),
        pytest.param({"code_challenge": CHALLENGE}, "invalid_request", "method", id="a challenge without method"),
        pytest.param(
            {"code_challenge": CHALLENGE, "code_challenge_method": "plain"}, "invalid_request", "S256", id="plain"
        ),
        pytest.param({"code_challenge_method": "S256"}, "invalid_request", "43", id="S256 without a challenge"),
        pytest.param(
            {"code_challenge": CHALLENGE + "=", "code_challenge_method": "S256"}, "invalid_request", "43", id="padding"
        ),
    ],
)
async def test_client_errors_are_redirected_with_the_state(
    browser: Browser, changed: dict[str, str | None], error: str, message: str
) -> None:
    answer = assert_sent_back(await browser.open(authorization_url(**{"state": "a b&c"} | changed)), error)

    assert answer["state"] == "a b&c"
    assert message in answer["error_description"]
    assert answer.keys() == {"error", "error_description", "state", "iss"}


@pytest.mark.clause("6749-3.1-parameter-once", "6749-4.1.2.1-error", "7636-7.2-no-downgrade")
@pytest.mark.parametrize(
    "name", ["response_type", "scope", "code_challenge", "code_challenge_method", "prompt", "max_age"]
)
@pytest.mark.parametrize(("values", "message"), [("{0}=code&{0}=code", "more than once"), ("{0}=%ff", "characters")])
async def test_repeated_or_unreadable_parameter_is_redirected(
    browser: Browser, name: str, values: str, message: str
) -> None:
    answer = assert_sent_back(
        await browser.open(authorization_url(state="x", **{name: None}) + "&" + values.format(name)), "invalid_request"
    )

    assert answer["state"] == "x"
    assert message in answer["error_description"]
    assert name in answer["error_description"]


@pytest.mark.clause("6749-3.1-parameter-once", "6749-4.1.2.1-state-returned")
@pytest.mark.parametrize("query", ["state=a&state=b", "state=a&state=a", "state=%ff", "state=%ed%a0%80", "state=%"])
async def test_ambiguous_state_is_left_out_of_the_error(browser: Browser, query: str) -> None:
    answer = assert_sent_back(await browser.open(f"{authorization_url()}&{query}"), "invalid_request")

    assert "state" not in answer
    assert "state" in answer["error_description"]


async def test_state_over_8_kib_is_refused_and_returned(browser: Browser) -> None:
    assert is_login_page(await browser.open(authorization_url(state="é" * 4095)))

    answer = assert_sent_back(await browser.open(authorization_url(state="é" * 4097)), "invalid_request")

    assert answer["state"] == "é" * 4097


@pytest.mark.clause("6749-4.1.2.1-error", "6749-3.1.2.3-matched")
async def test_a_client_without_the_code_grant_is_unauthorized_client(browser: Browser, worker: Worker) -> None:
    app = await register(worker, "password-only", grant_types=("password",))

    assert_sent_back(await browser.open(authorization_url(app)), "unauthorized_client")


@pytest.mark.clause("7636-4.4.1-challenge-missing", "7636-4.4.1-error-explained", "7636-7.2-no-downgrade")
async def test_a_client_that_needs_pkce_must_send_a_challenge(browser: Browser, worker: Worker) -> None:
    app = await register(worker, "careful", require_pkce=True)

    answer = assert_sent_back(await browser.open(authorization_url(app, state="x")), "invalid_request")

    assert (answer["state"], "code_challenge" in answer["error_description"]) == ("x", True)
    assert is_login_page(
        await browser.open(authorization_url(app, code_challenge=CHALLENGE, code_challenge_method="S256"))
    )


@pytest.mark.clause("7636-4.3-challenge-taken", "7636-7.2-no-downgrade")
async def test_the_challenge_binds_the_code_to_its_verifier(browser: Browser, http: httpx2.AsyncClient) -> None:
    code = await browser.get_code(code_challenge=CHALLENGE, code_challenge_method="S256")

    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK)).status_code == 400
    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK, code_verifier=CHALLENGE)).status_code == 400
    assert (await PHONE_APP.exchange(http, code, PHONE_CALLBACK, code_verifier=VERIFIER)).status_code == 200


@pytest.mark.clause("6749-4.1.2.1-error-characters", "6749-4.1.2.1-error")
async def test_description_never_repeats_sent_values(browser: Browser) -> None:
    for changed in ({"scope": 'role:"<script>\\é'}, {"response_type": 'é"\\\x00'}, {"code_challenge_method": '"\\é'}):
        answer = authorization_response(await browser.open(authorization_url(**changed)))

        for text in (answer["error"], answer["error_description"]):
            assert text.isascii()
            assert text.isprintable()
            assert not set(text) & set('"\\')


@pytest.mark.clause("6749-4.1.2.1-error", "6749-4.1.2.1-state-returned")
async def test_redis_outage_is_redirected_as_unavailable(browser: Browser, store: redis.Redis) -> None:
    """The lookup of client and user still succeeds here, and storing the consent fails."""
    await browser.sign_in()
    store.config_set("maxmemory", 1)
    try:
        response = await browser.open(authorization_url(state="x"))
    finally:
        store.config_set("maxmemory", 0)

    assert assert_sent_back(response, "temporarily_unavailable")["state"] == "x"


@pytest.mark.clause("6749-4.1.2.1-error", "6749-4.1.2.1-state-returned")
async def test_something_unforeseen_is_server_error_by_redirect(browser: Browser, store: redis.Redis) -> None:
    await browser.sign_in()
    for address_key in store.scan_iter("address:*"):
        store.set(address_key, "not a number")

    answer = assert_sent_back(await browser.open(authorization_url(state="x")), "server_error")

    assert answer["state"] == "x"
    assert answer["error_description"] == "The service encountered an unexpected error."


# Scope, realm and roles


@pytest.mark.clause("6749-3.3-omitted-scope-default", "decided-page-scope-names-realm")
async def test_without_a_scope_the_default_of_the_client_is_asked_for(
    browser: Browser, http: httpx2.AsyncClient
) -> None:
    code = await browser.get_code()

    assert tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["scope"] == "realm:main role:enduser"


@pytest.mark.clause("6749-3.3-omitted-scope-default")
async def test_missing_scope_without_a_default_is_invalid(browser: Browser, worker: Worker) -> None:
    app = await register(worker, "no-default", default_scope="")

    answer = assert_sent_back(await browser.open(authorization_url(app)), "invalid_scope")

    assert "no default" in answer["error_description"]


@pytest.mark.clause("decided-several-roles-at-the-page", "decided-page-scope-names-realm")
@pytest.mark.parametrize(
    ("scope", "granted"),
    [
        ("role:organisation role:enduser", "realm:main role:enduser role:organisation"),
        ("role:organisation", "realm:main role:organisation"),
        ("role:device role:enduser", "realm:main role:enduser"),
    ],
)
async def test_roles_of_the_user_are_granted(
    browser: Browser, http: httpx2.AsyncClient, scope: str, granted: str
) -> None:
    code = await browser.get_code(scope=scope)

    assert tokens_of(await PHONE_APP.exchange(http, code, PHONE_CALLBACK))["scope"] == granted


@pytest.mark.clause("decided-several-roles-at-the-page", "6749-4.1.2.1-error", "9207-2-iss-in-error-redirect")
async def test_user_without_requested_roles_is_access_denied(browser: Browser) -> None:
    page = await browser.open(authorization_url(scope="role:organisation role:device", state="x"))
    answer = assert_sent_back(await browser.log_in(page, BOB), "access_denied")

    assert answer["state"] == "x"


@pytest.mark.clause("decided-several-roles-at-the-page", "6749-3.1-owner-verified-first")
async def test_signed_in_user_without_roles_may_switch(browser: Browser) -> None:
    """A redirect without a page would tell the client that the signed-in user lacks the role."""
    await browser.sign_in(METER)
    page = await browser.open(authorization_url(scope="role:enduser", state="x"))

    assert is_login_page(page)
    assert "Signed in as meter@example.com ." in Page(page).text
    assert "This account cannot be used for Phone App ." in Page(page).text
    assert is_consent_page(await browser.log_in(page, ALICE))


@pytest.mark.clause("decided-way-back")
async def test_login_pages_lead_back_to_the_client_with_a_denial(browser: Browser) -> None:
    page = await browser.open(authorization_url(state="x"))
    [address] = [link for link in Page(page).links if link.startswith(PHONE_CALLBACK)]
    answer = assert_sent_back(httpx2.Response(303, headers={"location": address}), "access_denied")
    wrong = await browser.log_in(page, UserCredentials(ALICE.username, "wrong"))

    assert answer["state"] == "x"
    assert page_text("page.back").format(client_name="Phone App") in Page(page).text
    assert address in Page(wrong).links


@pytest.mark.clause("decided-way-back")
async def test_an_error_page_leads_back_to_a_verified_address_only(browser: Browser) -> None:
    page = await browser.open_consent_page(authorization_url(state="x"))
    form = Page(page).find_form(CONSENT)
    forged = await browser.send(CONSENT, form.fields | {"csrf": "wrong", "decision": "allow"})
    unverified = await browser.open(authorization_url(PHONE_APP, "https://evil.example/"))
    other = await Browser(browser.http).send(CONSENT, form.fields | {"decision": "allow"})
    await browser.allow(page)
    answered = await browser.open(f"{CONSENT}?request={form.fields['request']}")

    assert [link.partition("?")[0] for link in Page(forged).links] == [PHONE_CALLBACK]
    assert [Page(each).links for each in (unverified, other, answered)] == [[], [], []]


# The address of the response


@pytest.mark.clause("6749-3.1.2-query-retained", "6749-4.1.2-code-in-redirect", "9207-2-iss-in-redirect")
async def test_a_query_of_the_redirect_uri_is_kept(browser: Browser, http: httpx2.AsyncClient) -> None:
    page = await browser.open_consent_page(authorization_url(WEB_SHOP, OTHER_SHOP_CALLBACK, state="x"))
    response = await browser.allow(page)
    answer = authorization_response(response, OTHER_SHOP_CALLBACK)

    assert response.headers["location"].startswith("https://shop.example:8443/other?keep=this&code=")
    assert (answer["state"], answer["iss"]) == ("x", ISSUER)
    assert (await WEB_SHOP.exchange(http, answer["code"], OTHER_SHOP_CALLBACK)).status_code == 200


@pytest.mark.clause("decided-loopback-port-may-differ")
@pytest.mark.parametrize(
    ("registered", "requested"),
    [
        ("http://127.0.0.1:9000/callback", "http://127.0.0.1:51234/callback"),
        ("http://127.0.0.1/callback?a=b", "http://127.0.0.1:1/callback?a=b"),
        ("http://[::1]/callback", "http://[::1]:51234/callback"),
    ],
)
async def test_an_application_on_the_users_machine_chooses_its_port(
    browser: Browser, worker: Worker, http: httpx2.AsyncClient, registered: str, requested: str
) -> None:
    client = await register(worker, "native-app", registered)
    code = await browser.get_code(client, requested)

    assert (await client.exchange(http, code, registered)).status_code == 400
    assert (await client.exchange(http, code, requested)).status_code == 200


@pytest.mark.clause("decided-loopback-port-may-differ", "6749-3.1.2.3-simple-comparison", "6749-3.1.2.4-no-redirect")
@pytest.mark.parametrize(
    ("registered", "requested"),
    [
        pytest.param("http://localhost:9000/callback", "http://localhost:9001/callback", id="a name"),
        pytest.param("http://127.0.0.1:9000/callback", "http://[::1]:9000/callback", id="another loopback address"),
        pytest.param("http://127.0.0.1:9000/callback", "http://127.0.0.1:9001/other", id="another path"),
        pytest.param("http://127.0.0.1:9000/callback", "http://127.0.0.1:9001/callback?x=y", id="a query more"),
        pytest.param("http://127.0.0.1:9000/callback", "http://127.0.0.1:9000@evil.example/callback", id="userinfo"),
        pytest.param("http://[::1]:9000/callback", "http://[0:0:0:0:0:0:0:1]:9001/callback", id="IPv6 written out"),
    ],
)
async def test_nothing_but_the_port_of_a_loopback_address_may_differ(
    browser: Browser, worker: Worker, registered: str, requested: str
) -> None:
    app = await register(worker, "native-app", registered)

    assert is_login_page(await browser.open(authorization_url(app, registered)))
    assert_refused(await browser.open(authorization_url(app, requested)), 400, "unverified")


@pytest.mark.clause("decided-loopback-port-may-differ")
async def test_a_client_with_a_secret_does_not_choose_its_port(browser: Browser, worker: Worker) -> None:
    app = await register(worker, "with-secret", "http://127.0.0.1:9000/callback", client_secret_hash="sha256:x")

    assert is_login_page(await browser.open(authorization_url(app, "http://127.0.0.1:9000/callback")))
    assert_refused(await browser.open(authorization_url(app, "http://127.0.0.1:9001/callback")), 400, "unverified")
