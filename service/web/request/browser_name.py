"""The name of a browser, by which people recognise it on the page of their sessions.

Clauses: SPEC §4.1
"""

from __future__ import annotations

import re
from typing import Final

_FAMILIES: Final = {
    "Edge": r"Edg(?:A|iOS)?/",
    "Opera": r"OPR/",
    "Samsung": r"SamsungBrowser/",
    "Firefox": r"(?:Firefox|FxiOS)/",
    "Chrome": r"(?:Chrome|CriOS)/",
    "Safari": r"Version/[\d.]+ (?:Mobile/\w+ )?Safari/",
}
_SYSTEMS: Final = {
    "iOS": r"\((?:iPhone|iPad|iPod)",
    "Android": r"Android",
    "ChromeOS": r"\(X11; CrOS",
    "Windows": r"\(Windows",
    "macOS": r"\(Macintosh",
    "Linux": r"Linux",
}
"""Names by a pattern of the User-Agent. The first that matches counts, because browsers also name others."""


def name_browser(user_agent: str) -> str:
    """Return a family and a system of these lists, such as "Firefox/Windows", or an empty text if either is unknown."""
    found = [_find(names, user_agent[:512]) for names in (_FAMILIES, _SYSTEMS)]
    return "/".join(found) if all(found) else ""


def _find(names: dict[str, str], user_agent: str) -> str:
    return next((name for name, pattern in names.items() if re.search(pattern, user_agent)), "")
