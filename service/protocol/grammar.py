"""Regular expressions for the ABNF rules of the standards, and the escaping of text that is printed.

Clauses: RFC 6749 Appendix A, RFC 6750 §2.1, RFC 7636 §4.1, §4.2
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import urlsplit

# VSCHAR = %x20-7E
VSCHAR: Final = re.compile(r"[\x20-\x7E]+")

# UNICODECHARNOCRLF = %x09 / %x20-7E / %x80-D7FF / %xE000-FFFD / %x10000-10FFFF
# The class names the others, which compiles in a tenth of the time.
UNICODECHARNOCRLF: Final = re.compile(r"[^\x00-\x08\x0A-\x1F\x7F\uD800-\uDFFF\uFFFE\uFFFF]+")

# The control characters, line separators, and the characters that change the direction of the text after them.
_CONTROL: Final = re.compile(r"[\x00-\x1F\x7F-\x9F\u061C\u200E\u200F\u2028-\u202E\u2066-\u2069]")

# scope-token = 1*( %x21 / %x23-5B / %x5D-7E )
SCOPE_TOKEN: Final = re.compile(r"[\x21\x23-\x5B\x5D-\x7E]+")

# b64token = 1*( ALPHA / DIGIT / "-" / "." / "_" / "~" / "+" / "/" ) *"="
B64TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")

# code-verifier = 43*128unreserved
CODE_VERIFIER: Final = re.compile(r"[A-Za-z0-9\-._~]{43,128}")

# The code-challenge of method S256 is base64url of 32 bytes.
S256_CHALLENGE: Final = re.compile(r"[A-Za-z0-9_-]{43}")

# A number of seconds, which fits into 64 bits also in milliseconds.
SECONDS: Final = re.compile(r"[0-9]{1,10}")


def is_vschar(text: str) -> bool:
    """Return True for one or more printable ASCII characters."""
    return VSCHAR.fullmatch(text) is not None


def is_unicode_without_line_ends(text: str) -> bool:
    """Return True for one or more characters of UNICODECHARNOCRLF: no control character but the tab."""
    return UNICODECHARNOCRLF.fullmatch(text) is not None


def is_web_address(text: str) -> bool:
    """Return True for an absolute http or https URL without a user, which can be quoted in a header."""
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError for a wrong one
    except ValueError:
        return False
    is_absolute = parts.scheme in ("http", "https") and bool(parts.hostname)
    return is_absolute and "@" not in parts.netloc and re.search(r'[^\x21-\x7E]|["\\]', text) is None


def is_showable(text: str) -> bool:
    """Return True for one or more characters, none of which could make a page or a list show another name."""
    return is_unicode_without_line_ends(text) and _CONTROL.search(text) is None


def make_printable(text: str) -> str:
    """Return the text with all unprintable characters escaped.

    Names are chosen by third parties. An escaped name cannot begin a line of its own, and cannot control a terminal.
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
