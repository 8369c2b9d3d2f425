"""The content of rendered pages: escaping, texts and colours. Other tests reach the pages over HTTP."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from service.config.settings import load_settings
from service.protocol.scope import ROLES
from service.web.pages.languages import TEMPLATES, load_languages
from service.web.pages.rendering import Renderer, contrast
from service.web.pages.sessions import PasswordErrors

HOSTILE = """<b>x</b>"' onfocus=alert(1) &amp; {7*7} {{7*7}} {text.__globals__}"""
NOW = datetime(2026, 11, 21, 10, 44, tzinfo=UTC)
PAGES = ("login.html", "consent.html", "refused.html", "sessions.html", "start.html")
SESSION = {
    "id": "s",
    "client_name": "Example Web Shop",
    "roles": ROLES,
    "since": NOW,
    "last_used": NOW,
    "browser": ("Firefox", "/", "Linux"),
}
BROWSER = {
    "id": "b",
    "is_this": False,
    "names": ("Chrome", "/", "Windows"),
    "since": NOW,
    "last_used": NOW,
    "until": NOW,
}
BACK = {"back_to": "Example Web Shop", "back_url": "https://shop.example/callback"}
CONTEXTS: dict[str, dict[str, Any]] = {
    "login.html": {
        "sealed": "r",
        "client_name": "Example Web Shop",
        "username": "alice@example.com",
        "remember_me": True,
        "notice": "You are signed out.",
        "error": "wrong",
        "username_error": "missing",
        "password_error": "missing",
        "has_passwords": True,
        "providers": [SimpleNamespace(name="cep", label="Example Energy Cooperative")],
        "account": SimpleNamespace(name="Alice Example", username="alice@example.com"),
        **BACK,
    },
    "consent.html": {
        "request_id": "r",
        "csrf": "c",
        "client_name": "Example Web Shop",
        "username": "alice@example.com",
        "name": "Alice Example",
        "realm": "main",
        "provider": "Example Energy Cooperative",
        "roles": ROLES,
        "lifetime": "30 days",
        "destination": "shop.example.com",
        "insecure": True,
    },
    "refused.html": {"kind": "busy", "detail": "state is missing", "is_login": True, **BACK},
    "sessions.html": {
        "username": "alice@example.com",
        "name": "Alice Example",
        "sessions": [SimpleNamespace(**SESSION)],
        "now": NOW,
        "csrf": "c",
        "more": True,
        "browsers": [SimpleNamespace(**BROWSER)],
        "more_browsers": True,
        "notice": "Your password was changed.",
        "has_password": True,
        "password_errors": PasswordErrors("wrong", "wrong", "wrong", "wrong"),
        "password_hint": "At least 8 characters.",
    },
    "start.html": {
        "metadata_url": "https://example.com/.well-known/oauth-authorization-server",
        "openapi_url": "https://example.com/openapi.json",
        "sessions_url": "/sessions/",
        "authorization_url": "https://example.com/authorization",
        "token_url": "https://example.com/token",
    },
}
NAMES = frozenset(
    {
        *(
            "realm",
            "roles",
            "now",
            "since",
            "until",
            "last_used",
            "browser",
            "names",
            "has_passwords",
            "remember_me",
            "insecure",
            "kind",
        ),
        *("more", "is_this", "more_browsers", "has_password", "password_errors"),
    }
)
"""Values that are a date, a flag or a text of ours, so that they cannot be hostile."""

ENGLISH = load_languages()["en"]
SETTINGS = load_settings({})
renderer = Renderer(SETTINGS)


class Page(HTMLParser):
    """The elements of a page with their attributes, and its texts."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.words = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.words += data

    def find(self, tag: str, **attributes: str) -> list[dict[str, str | None]]:
        return [found for name, found in self.elements if name == tag and attributes.items() <= found.items()]

    def shape(self) -> list[tuple[str, tuple[str, ...]]]:
        return [(tag, tuple(attributes)) for tag, attributes in self.elements]


def render(template: str, **changes: Any) -> Page:
    return Page(renderer.render(ENGLISH, template, **CONTEXTS[template] | changes))


def make_hostile(context: dict[str, Any]) -> dict[str, Any]:
    return {name: value if name in NAMES else _make_hostile(value) for name, value in context.items()}


def _make_hostile(value: Any) -> Any:
    if isinstance(value, list):
        return [_make_hostile(entry) for entry in value]
    if isinstance(value, SimpleNamespace):
        return SimpleNamespace(**make_hostile(dict(vars(value))))
    return HOSTILE


# Escaping


@pytest.mark.parametrize("template", PAGES)
def test_values_are_escaped_in_templates(template: str) -> None:
    """Hostile values give the same elements and attributes as harmless ones."""
    hostile = Page(renderer.render(ENGLISH, template, **make_hostile(CONTEXTS[template])))

    assert hostile.shape() == render(template).shape()
    assert HOSTILE in [
        *map(str.strip, hostile.words.split("\n")),
        *(value for _, found in hostile.elements for value in found.values()),
    ]


@pytest.mark.parametrize("template", PAGES)
@pytest.mark.parametrize("has_logo", [False, True])
def test_the_name_that_the_operator_chose_is_escaped_too(template: str, has_logo: bool) -> None:
    chosen = replace(SETTINGS, page_logo=Path("logo.svg") if has_logo else None)
    plain, hostile = (Renderer(replace(chosen, page_name=name)) for name in ("Token Service", HOSTILE))

    page = Page(hostile.render(ENGLISH, template, **CONTEXTS[template]))

    assert page.shape() == Page(plain.render(ENGLISH, template, **CONTEXTS[template])).shape()
    assert not has_logo or page.find("img", alt=HOSTILE)


@pytest.mark.parametrize("template", PAGES)
def test_a_page_holds_nothing_that_its_policy_forbids(template: str) -> None:
    page = render(template)

    scripts = [renderer.script_path] if template == "sessions.html" else []
    assert [script["src"] for script in page.find("script")] == scripts
    assert not page.find("style")
    assert not [name for _, found in page.elements for name in found if name == "style" or name.startswith("on")]
    assert "url(" not in renderer.stylesheet.decode()
    assert "@import" not in renderer.stylesheet.decode()


# Values that a caller must pass


# Texts

JINJA = re.compile(r"{#.*?#}|{%.*?%}|{{.*?}}", re.DOTALL)
# A key in a template or in Python code. A computed part of it counts as a gap, which matches any text.


@pytest.mark.parametrize("template", sorted(file.name for file in TEMPLATES.glob("*.html")))
def test_a_template_has_no_words_of_its_own(template: str) -> None:
    page = Page(JINJA.sub("", (TEMPLATES / template).read_text("utf-8")))
    spoken = [found.get(name) for _, found in page.elements for name in ("alt", "title", "aria-label", "placeholder")]

    assert not re.findall(r"[A-Za-z]+", page.words)
    assert not any(spoken)


# All pages


def test_our_links_begin_with_the_path_of_the_web_url() -> None:
    placed = Renderer(replace(SETTINGS, web_url="https://example.com/login", page_logo=Path("logo.svg")))
    page = Page(placed.render(ENGLISH, "start.html", **CONTEXTS["start.html"]))

    assert re.fullmatch(r"/login/authorization/assets/page\.css\?v=[0-9a-f]{12}", placed.stylesheet_path)
    assert page.find("link", rel="stylesheet", href=placed.stylesheet_path)
    assert page.find("img", src="/login/authorization/assets/logo")


# Login


def test_an_error_is_tied_to_its_field() -> None:
    page = render("login.html", error=None, username_error=None, password_error="missing")

    assert page.find("input", name="password", **{"aria-invalid": "true", "aria-describedby": "password-error"})
    assert page.find("p", id="password-error")
    assert "aria-invalid" not in page.find("input", name="username")[0]
    assert not page.find("div", role="alert")


# Consent


# Sessions


@pytest.mark.parametrize(
    ("age", "expected"),
    [
        (timedelta(seconds=-5), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(seconds=60), "1 minute ago"),
        (timedelta(minutes=59), "59 minutes ago"),
        (timedelta(hours=1), "1 hour ago"),
        (timedelta(hours=47), "1 day ago"),
        (timedelta(days=400), "400 days ago"),
    ],
)
def test_ages_are_shown_in_the_largest_unit(age: timedelta, expected: str) -> None:
    assert ENGLISH.ago(NOW - age, NOW) == expected


def test_lifetime_lists_its_possible_ends() -> None:
    day = 86_400_000

    assert ENGLISH.lifetime(30 * day, None) == "Until you remove it, or until it has not been used for 30 days"
    assert ENGLISH.lifetime(30 * day, 90 * day).endswith("used for 30 days, for at most 90 days")
    assert ENGLISH.lifetime(30 * day, 7 * day) == "Until you remove it, for at most 7 days"


# Colours

COLOURS = st.binary(min_size=3, max_size=3).map(lambda channels: f"#{channels.hex()}")


def list_themes(accent: str) -> list[dict[str, str]]:
    """Return the colours of the light and of the dark theme, as a browser reads them from the stylesheet."""
    stylesheet = Renderer(replace(SETTINGS, page_accent=accent)).stylesheet.decode()
    blocks = re.findall(r":root {(.*?)}", stylesheet, re.DOTALL)
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", blocks[i] + blocks[i + 2])) for i in (0, 1))
    return [light, dark]


@settings(deadline=None, max_examples=100)
@given(COLOURS)
def test_every_accent_colour_can_be_read_in_both_themes(accent: str) -> None:
    for colours in list_themes(accent):
        assert contrast(colours["on-accent"], colours["accent"]) >= 4.5
        assert all(contrast(colours["accent"], colours[behind]) >= 4.5 for behind in ("page", "card"))


def test_the_fixed_colours_can_be_read() -> None:
    for colours in list_themes("#1f5fa8"):
        for behind in (colours["page"], colours["card"]):
            assert all(contrast(colours[name], behind) >= 4.5 for name in ("text", "muted", "danger"))
            assert contrast(colours["border"], behind) >= 3
        for kind in ("danger", "warning"):
            assert contrast(colours[kind], colours[f"{kind}-back"]) >= 4.5
