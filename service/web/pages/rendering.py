"""The rendering of pages: their templates and colours. All are read and checked at startup.

The templates have no words of their own. The operator chooses one colour. Shapes and text in this colour are moved
towards black or white until they are readable.

Clauses: SPEC §4.1
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from jinja2 import DictLoader, Environment, StrictUndefined, Template

from service.web.pages.languages import TEMPLATES, Language

TEXT_CONTRAST: Final = 5.5  # WCAG requires 4.5; a little more is easier to read on a dark page
SHAPE_CONTRAST: Final = 3.0
BLACK: Final = "#000000"
WHITE: Final = "#ffffff"


@dataclass(frozen=True, slots=True)
class Theme:
    """The background colours of a page, and the colour towards which another one is moved to stand out from them."""

    page: str
    card: str
    away: str


LIGHT: Final = Theme(page="#f3f4f6", card="#ffffff", away=BLACK)
DARK: Final = Theme(page="#101216", card="#191c22", away=WHITE)


class Renderer:
    """The renderer of all pages, with the operator's name, colour (as #rrggbb) and logo."""

    def __init__(self, service_name: str, accent: str, web_path: str, *, has_logo: bool) -> None:
        self.stylesheet = _make_stylesheet(accent).encode()
        digest = hashlib.sha256(self.stylesheet).hexdigest()
        self.stylesheet_path = f"{web_path}/authorization/assets/page.css?v={digest[:12]}"
        self.plain_logo = _draw_logo(accent).encode()
        self._shared: Mapping[str, Any] = {
            "service_name": service_name,
            "has_logo": has_logo,
            "web_path": web_path,
            "stylesheet_path": self.stylesheet_path,
            "logo_path": f"{web_path}/authorization/assets/logo",
        }
        self._templates = _load_templates()

    def render(self, language: Language, template: str, **context: Any) -> str:
        spoken = {
            "lang": language.tag,
            "text": language.text,
            "ago": language.ago,
            "absolute": language.absolute,
        }
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


def _draw_logo(accent: str) -> str:
    """Return the icon for the browser's tab if the operator has no logo: an SVG of a keyhole on the accent colour."""
    return (
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">'
        f'<rect width="32" height="32" rx="8" fill="{accent}"/>'
        f'<path d="M16 7a5.5 5.5 0 0 0-2.6 10.3L12 25h8l-1.4-7.7A5.5 5.5 0 0 0 16 7Z" fill="{choose_text_on(accent)}"/>'
        "</svg>"
    )


@cache
def _make_stylesheet(accent: str) -> str:
    colours = f":root {{ {_colours_of(accent, LIGHT)} }}\n"
    dark = f"@media (prefers-color-scheme: dark) {{ :root {{ {_colours_of(accent, DARK)} }} }}\n"
    return colours + dark + (TEMPLATES / "page.css").read_text("utf-8")


def _colours_of(accent: str, theme: Theme) -> str:
    fill = choose_visible(accent, theme, SHAPE_CONTRAST)
    colours = {
        "page": theme.page,
        "card": theme.card,
        "accent": fill,
        "on-accent": choose_text_on(fill),
        "link": choose_visible(accent, theme, TEXT_CONTRAST),
    }
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


def choose_visible(colour: str, theme: Theme, ratio: float) -> str:
    """Return the nearest mixture with the colour `theme.away` that has at least this contrast to all backgrounds."""
    mixtures = (_mix(colour, theme.away, step / 255) for step in range(256))
    return next(mixture for mixture in mixtures if _stands_out(mixture, theme, ratio))


def choose_text_on(colour: str) -> str:
    """Return black or white, whichever has more contrast to the colour. One of them always reaches 4.5."""
    return max(WHITE, BLACK, key=lambda text: contrast(text, colour))


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of WCAG 2.2, from 1 to 21."""
    darker, lighter = sorted((_luminance(one), _luminance(other)))
    return (lighter + 0.05) / (darker + 0.05)


def _stands_out(colour: str, theme: Theme, ratio: float) -> bool:
    return all(contrast(colour, behind) >= ratio for behind in (theme.page, theme.card))


def _luminance(colour: str) -> float:
    red, green, blue = (_linear(channel / 255) for channel in bytes.fromhex(colour[1:]))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _linear(channel: float) -> float:
    return channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4


def _mix(colour: str, other: str, share: float) -> str:
    pairs = zip(bytes.fromhex(colour[1:]), bytes.fromhex(other[1:]), strict=True)
    return "#" + bytes(round(one + (two - one) * share) for one, two in pairs).hex()
