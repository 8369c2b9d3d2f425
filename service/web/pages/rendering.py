"""The rendering of pages: their templates and colours. All are read and checked at startup.

The templates have no words of their own. The operator chooses one colour. It is moved towards black or white
until it is readable on the pages, and so is text on it.

Clauses: SPEC §4.1
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

from jinja2 import DictLoader, Environment, StrictUndefined, Template

from service.config.settings import Settings
from service.web.pages.languages import TEMPLATES, Language

CONTRAST: Final = 5.5  # WCAG requires 4.5; a little more is easier to read on a dark page
LIGHT_BEHIND: Final = "#f3f4f6"
DARK_BEHIND: Final = "#191c22"
"""The background of each theme in page.css that has the least contrast to a readable colour."""


class Renderer:
    """The renderer of all pages, with the operator's name, colour, logo and links."""

    def __init__(self, settings: Settings) -> None:
        web_path = urlsplit(settings.web_url).path
        self.stylesheet = _make_stylesheet(settings.page_accent).encode()
        self.script = (TEMPLATES / "page.js").read_bytes()
        self.script_path = f"{web_path}/authorization/assets/page.js?v={hashlib.sha256(self.script).hexdigest()[:12]}"
        digest = hashlib.sha256(self.stylesheet).hexdigest()
        self.stylesheet_path = f"{web_path}/authorization/assets/page.css?v={digest[:12]}"
        self._shared: Mapping[str, Any] = {
            "service_name": settings.page_name,
            "has_logo": settings.page_logo is not None,
            "help_url": settings.page_help_url,
            "register_url": settings.page_register_url,
            "privacy_url": settings.page_privacy_url,
            "legal_url": settings.page_legal_url,
            "web_path": web_path,
            "script_path": self.script_path,
            "stylesheet_path": self.stylesheet_path,
            "logo_path": f"{web_path}/authorization/assets/logo",
        }
        self._templates = _load_templates()

    def render(self, language: Language, template: str, **context: Any) -> str:
        spoken = {"lang": language.tag, "text": language.text, "ago": language.ago, "absolute": language.absolute}
        return self._templates[template].render({**self._shared, **spoken, **context})


@cache
def _load_templates() -> Mapping[str, Template]:
    """Return all compiled templates, in memory, so that rendering never waits for a disk.

    All renderers share them, because a compiled template depends on no renderer.
    """
    sources = {file.name: file.read_text("utf-8") for file in TEMPLATES.glob("*.html")}
    environment = Environment(
        loader=DictLoader(sources),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
        cache_size=-1,
    )
    return {name: environment.get_template(name) for name in sources}


@cache
def _make_stylesheet(accent: str) -> str:
    light = f":root {{ --accent: {choose_readable(accent, LIGHT_BEHIND, '#000000')}; }}\n"
    dark = f":root {{ --accent: {choose_readable(accent, DARK_BEHIND, '#ffffff')}; }}"
    return f"{light}@media (prefers-color-scheme: dark) {{ {dark} }}\n" + (TEMPLATES / "page.css").read_text("utf-8")


def choose_readable(colour: str, behind: str, away: str) -> str:
    """Return the nearest mixture with the colour `away` that has enough contrast to the background `behind`."""
    mixtures = (_mix(colour, away, step / 255) for step in range(256))
    return next(mixture for mixture in mixtures if contrast(mixture, behind) >= CONTRAST)


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2.2, from 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in bytes.fromhex(colour[1:]))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def _mix(colour: str, other: str, share: float) -> str:
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + bytes(round(one + (two - one) * share) for one, two in pairs).hex()
