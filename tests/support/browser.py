"""A browser without a screen, which follows our redirects, keeps cookies and fills in forms.

It stops at a redirect to an address outside the service, which is how an authorization request ends.
"""

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode, urlsplit

import httpx2
import msgspec

from service.protocol.client import Client
from service.protocol.user import identify_user
from service.web.pages.languages import load_languages
from service.worker import Worker
from tests.support.clients_and_users import ALICE, PHONE_APP, PHONE_CALLBACK, OAuthClient, UserCredentials
from tests.support.invalidations import await_invalidations

AUTHORIZATION: Final = "/authorization/"
LOGIN: Final = "/authorization/login"
CONSENT: Final = "/authorization/consent"
SWITCH: Final = "/authorization/switch"
SESSIONS: Final = "/sessions/"
ISSUER: Final = "http://127.0.0.1:8000"
CHALLENGE: Final = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"  # RFC 7636, appendix B
VERIFIER: Final = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"


def cookie_name(name: str, web_url: str = ISSUER) -> str:
    """Return the name of a cookie of the pages at this web URL."""
    prefix = "__Host-" if web_url.startswith("https:") else ""
    return f"{prefix}ts_{name}_{hashlib.sha256(web_url.encode()).hexdigest()[:4]}"


SESSION_COOKIE: Final = cookie_name("session")
BROWSER_COOKIE: Final = cookie_name("browser")
DEVICE_COOKIE: Final = cookie_name("device")


def page_text(key: str, language: str = "en") -> str:
    """Return the text of the pages under this key, for example `login.error_wrong`."""
    return load_languages()[language].texts[key]


def wait_text(seconds: int) -> str:
    """Return how long a page asks a user to wait: up to a minute in seconds, then in minutes, rounded up."""
    number, unit = (seconds, "second") if seconds < 60 else (-(-seconds // 60), "minute")
    return "1 hour" if seconds > 3540 else f"{number} {unit}{'s' * (number > 1)}"


def authorization_url(
    client: OAuthClient = PHONE_APP, redirect_uri: str = PHONE_CALLBACK, /, **parameters: str | None
) -> str:
    """Return the address of an authorization request. A parameter that is None is left out."""
    query: dict[str, str | None] = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
    }
    query |= parameters
    return f"{AUTHORIZATION}?{urlencode({name: value for name, value in query.items() if value is not None})}"


@dataclass
class HtmlForm:
    """A form: `fields` is what is sent unchanged, `buttons` are the values by the name of the button.

    A button that sends the same fields to another address counts as a form of its own.
    """

    action: str
    method: str
    fields: dict[str, str] = field(default_factory=dict)
    types: dict[str, str] = field(default_factory=dict)
    choices: dict[str, list[str]] = field(default_factory=dict)
    buttons: dict[str, list[str]] = field(default_factory=dict)


class Page(HTMLParser):
    """The forms, links and words of an HTML page."""

    def __init__(self, response: httpx2.Response) -> None:
        super().__init__()
        assert response.headers["content-type"].startswith("text/html"), response.text
        self.response = response
        self.forms: list[HtmlForm] = []
        self.links: list[str] = []
        self._words: list[str] = []
        self._open: HtmlForm | None = None
        self.feed(response.text)
        self.close()
        self.text = " ".join(" ".join(self._words).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "form":
            self._open = HtmlForm(attributes["action"], attributes.get("method", "get"))
            self.forms.append(self._open)
        elif tag == "input" and self._open is not None:
            self._read_input(self._open, attributes, {name for name, _ in attrs})
        elif tag == "button" and self._open is not None and "formaction" in attributes:
            form = self._open
            self.forms.append(HtmlForm(attributes["formaction"], form.method, form.fields, form.types, form.choices))
        elif tag == "button" and self._open is not None and "name" in attributes:
            self._open.buttons.setdefault(attributes["name"], []).append(attributes.get("value", ""))
        elif tag == "a":
            self.links.append(attributes.get("href", ""))

    def handle_endtag(self, tag: str) -> None:
        if tag == "form":
            self._open = None

    def handle_data(self, data: str) -> None:
        self._words.append(data)

    def _read_input(self, form: HtmlForm, attributes: Mapping[str, str], present: set[str]) -> None:
        name, kind, value = attributes["name"], attributes.get("type", "text"), attributes.get("value", "")
        form.types[name] = kind
        if kind == "radio":
            form.choices.setdefault(name, []).append(value)
        if kind not in ("radio", "checkbox") or "checked" in present:
            form.fields[name] = value

    def find_form(self, action: str) -> HtmlForm:
        found = [form for form in self.forms if form.action.endswith(action)]
        assert found, f"no form for {action} on: {self.text}"
        return found[0]


async def register(worker: Worker, client_id: str, *redirect_uris: str, **changes: Any) -> OAuthClient:
    """Register a public client that may do what phone-app may, unless `changes` says otherwise."""
    usual = Client(
        client_id=client_id,
        client_name=f"The client {client_id}",
        redirect_uris=redirect_uris or (PHONE_CALLBACK,),
        grant_types=("authorization_code", "refresh_token"),
        scope="realm:main role:enduser role:organisation",
        default_scope="realm:main role:enduser",
    )
    client = msgspec.structs.replace(usual, **changes)
    await worker.registry.clients.put(client)
    await await_invalidations(worker)
    return OAuthClient(client_id)


async def register_neighbour(worker: Worker) -> UserCredentials:
    """Register another user with Alice's password, whose keys lie in the same shard as hers."""
    alice = await worker.registry.users.find(identify_user(ALICE.realm, ALICE.username))
    assert alice is not None
    names = (f"neighbour{number}" for number in itertools.count())
    name = next(name for name in names if identify_user(ALICE.realm, name).shard == alice.identity.shard)
    await worker.registry.users.put(msgspec.structs.replace(alice, username=name))
    return UserCredentials(name, ALICE.password)


async def change_user(worker: Worker, credentials: UserCredentials, **changes: Any) -> None:
    """Change a user's record as a seed or the console does, without the revocations that follow from it."""
    user = await worker.logins.find_user(credentials.realm, credentials.username)
    assert user is not None
    await worker.registry.users.put(msgspec.structs.replace(user, **changes))
    await await_invalidations(worker)


def is_login_page(response: httpx2.Response) -> bool:
    return any("password" in form.fields for form in _forms_of(response))


def is_consent_page(response: httpx2.Response) -> bool:
    return any(form.buttons.get("decision") for form in _forms_of(response))


def _forms_of(response: httpx2.Response) -> Sequence[HtmlForm]:
    is_page = response.headers.get("content-type", "").startswith("text/html")
    return Page(response).forms if is_page else ()


class Browser:
    """A browser with cookies of its own. Any number of browsers share one HTTP client."""

    def __init__(self, http: httpx2.AsyncClient, *, accept_language: str | None = None) -> None:
        self.http = http
        self.accept_language = accept_language
        self.cookies = httpx2.Cookies()

    async def open(self, address: str, *, method: str = "GET", **headers: str) -> httpx2.Response:
        return await self._send(self.http.build_request(method, address, headers=headers))

    async def send(self, address: str, fields: Mapping[str, str], **headers: str) -> httpx2.Response:
        """Post the fields as they are."""
        return await self._send(self.http.build_request("POST", address, data=fields, headers=headers))

    async def submit(self, page: httpx2.Response, action: str, fields: dict[str, str]) -> httpx2.Response:
        """Submit a form of the page, with these fields filled in or its button pressed."""
        form = Page(page).find_form(action)
        assert form.method == "post"
        return await self.send(form.action, form.fields | fields)

    async def log_in(
        self, page: httpx2.Response, credentials: UserCredentials = ALICE, **fields: str
    ) -> httpx2.Response:
        filled = {"username": credentials.username, "password": credentials.password}
        return await self.submit(page, LOGIN, filled | fields)

    async def allow(self, page: httpx2.Response) -> httpx2.Response:
        return await self.submit(page, CONSENT, {"decision": "allow"})

    async def deny(self, page: httpx2.Response) -> httpx2.Response:
        return await self.submit(page, CONSENT, {"decision": "deny"})

    async def open_consent_page(
        self, address: str, credentials: UserCredentials = ALICE, **fields: str
    ) -> httpx2.Response:
        """Open an authorization request, log in if the service asks for it, and return the consent page."""
        page = await self.open(address)
        if is_login_page(page):
            page = await self.log_in(page, credentials, **fields)
        assert is_consent_page(page), page.text
        return page

    async def get_code(
        self,
        client: OAuthClient = PHONE_APP,
        redirect_uri: str = PHONE_CALLBACK,
        credentials: UserCredentials = ALICE,
        **parameters: str,
    ) -> str:
        """Make an authorization request, allow it, and return the code."""
        page = await self.open_consent_page(authorization_url(client, redirect_uri, **parameters), credentials)
        return authorization_response(await self.allow(page), redirect_uri)["code"]

    async def sign_in(self, credentials: UserCredentials = ALICE, **fields: str) -> httpx2.Response:
        """Log in without an authorization request. Returns the page of the user's sessions."""
        return await self.log_in(await self.open(SESSIONS), credentials, **fields)

    @property
    def cookie_values(self) -> dict[str, str]:
        return {cookie.name: cookie.value or "" for cookie in self.cookies.jar}

    def set_cookie(self, name: str, value: str) -> None:
        """Set a cookie as an attacker who planted or stole it would."""
        if name in self.cookies:
            self.cookies.delete(name)
        self.cookies.set(name, value, domain=urlsplit(str(self.http.base_url)).hostname or "", path="/")

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._send_once(request)
        while response.status_code == 303 and response.headers["location"].startswith("/"):
            response = await self._send_once(self.http.build_request("GET", response.headers["location"]))
        return response

    async def _send_once(self, request: httpx2.Request) -> httpx2.Response:
        request.headers.pop("cookie", None)
        self.cookies.set_cookie_header(request)
        if self.accept_language is not None:
            request.headers["Accept-Language"] = self.accept_language
        response = await self.http.send(request)
        self.cookies.extract_cookies(response)
        self.http.cookies.clear()
        return response


def authorization_response(response: httpx2.Response, redirect_uri: str = PHONE_CALLBACK) -> dict[str, str]:
    """Return the parameters that were added to the client's redirect_uri. Each must stand there once."""
    assert response.status_code in (302, 303), response.text
    location: str = response.headers["location"]
    separator = "&" if "?" in redirect_uri else "?"
    assert location.startswith(redirect_uri + separator), location
    pairs = parse_qsl(
        location.removeprefix(redirect_uri + separator), keep_blank_values=True, strict_parsing=True, errors="strict"
    )
    assert len(dict(pairs)) == len(pairs), location
    return dict(pairs)


def assert_refused(response: httpx2.Response, status: int, kind: str) -> None:
    """Assert that the response is a page that gives the reason and leads nowhere."""
    page = Page(response)
    assert (response.status_code, "location" in response.headers) == (status, False), page.text
    assert page_text(f"refused.{kind}_heading") in page.text
    assert page_text(f"refused.{kind}_message") in page.text
    assert not page.forms


def assert_sent_back(response: httpx2.Response, error: str, redirect_uri: str = PHONE_CALLBACK) -> dict[str, str]:
    """Assert that the error goes to the client by redirect, with a description, the issuer and no code."""
    answer = authorization_response(response, redirect_uri)
    assert answer["error"] == error, answer
    assert answer["error_description"]
    assert answer["iss"] == ISSUER
    assert "code" not in answer
    return answer
