"""Requests that a gateway and the API behind it may read in two ways, one a line."""

from __future__ import annotations

import struct
from dataclasses import dataclass

FORGED = "X-Auth-Subject: forged\r\nX-Auth-User: forged\r\nX-Auth-Scope: role:partner forged"
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
# It follows each request on the same connection, so that a body which is read as a request would end before it.
LAST = b"GET /public/last HTTP/1.1\r\nHost: api.example\r\nConnection: close\r\n\r\n"
SMUGGLED = f"DELETE /reports/smuggled HTTP/1.1\r\nHost: api.example\r\n{FORGED}\r\n\r\n".encode()
# Empty lines may precede a request. A server that reads this body as a request finds it wherever its reading begins.
BODY = b"\r\n" * 100_000 + SMUGGLED
CHUNKED = b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)


@dataclass(frozen=True)
class Case:
    """A request without Host and Authorization.

    If `passes` is true and the token suffices, the API gets the target as it was sent. If `ambiguous` is true, it never
    does.
    """

    line: str
    headers: tuple[str, ...] = ()
    body: bytes = b""
    passes: bool = False
    ambiguous: bool = False

    def __str__(self) -> str:
        text = " | ".join([self.line, *self.headers]).replace(FORGED, "FORGED")
        return text.encode("unicode_escape").decode("ascii")

    @property
    def request_line(self) -> tuple[str, str, str]:
        """The method, the target and the version."""
        method, _, rest = self.line.partition(" ")
        target, _, version = rest.rpartition(" ") if " HTTP/" in rest or not rest else (rest, "", "HTTP/1.1")
        return method, target, version

    def as_http1(self, token: str | None) -> bytes:
        method, target, version = self.request_line
        lines = [f"{method} {target} {version}", *self.headers, *_bearer(token)]
        if not any(header.lower().startswith("host:") for header in self.headers):
            lines.insert(1, "Host: api.example")
        return "\r\n".join([*lines, "", ""]).encode("latin-1") + self.body + LAST

    def as_http2(self, token: str | None) -> bytes:
        """A connection with this request as its only stream."""
        return PREFACE + _frame(4, 0, 0, b"") + self.as_stream(1, token)

    def as_stream(self, stream: int, token: str | None) -> bytes:
        method, target, _ = self.request_line
        fields = [(":method", method), (":authority", "api.example")]
        if method != "CONNECT" or any(header.startswith(":") for header in self.headers):
            fields += [(":path", target), (":scheme", "http")]
        for header in (*self.headers, *_bearer(token)):
            name, _, value = header.partition(": ")
            fields.append((name.lower(), value.strip()))
        block = b"".join(b"\0" + _string(name) + _string(value) for name, value in fields)
        end_stream = 0 if self.body else 1
        body = _frame(0, 1, stream, self.body[-10_000:]) if self.body else b""
        return _frame(1, 4 | end_stream, stream, block) + body


def _bearer(token: str | None) -> list[str]:
    return [] if token is None else [f"Authorization: Bearer {token}"]


def _string(text: str) -> bytes:
    """Return a string literal of RFC 7541, section 5.2, without Huffman coding."""
    octets = text.encode("latin-1")
    if len(octets) < 127:
        return bytes([len(octets)]) + octets
    rest = len(octets) - 127
    return bytes([127, 0x80 | rest & 0x7F, rest >> 7]) + octets


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack(">I", len(payload))[1:] + struct.pack(">BBI", kind, flags, stream) + payload


HANDSHAKE = ("Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {'A' * 22}==")
WEBSOCKET = ("Connection: Upgrade", "Upgrade: websocket", *HANDSHAKE)
HTTP2_SETTINGS = ("Connection: Upgrade, HTTP2-Settings", "HTTP2-Settings: AAMAAABkAAQAAP__")
LENGTH = f"Content-Length: {len(BODY)}"
# A caller writes HTTP/2 behind a request that switches to it.
H2C = PREFACE + _frame(4, 0, 0, b"") + SMUGGLED

# A 2xx to CONNECT makes a gateway a tunnel. Some HTTP parsers end the request at its head.
CONNECTS = [
    *(Case(f"CONNECT {target}") for target in ("api.example:80", "/public/x", "/reports/x", "*")),
    Case("CONNECT /public/x", body=SMUGGLED),
    Case("CONNECT /public/x", (LENGTH,), BODY),
    Case("CONNECT /public/x", ("Transfer-Encoding: chunked",), CHUNKED),
    Case("CONNECT api.example:80", ("Host: api.example:80",), SMUGGLED),
    Case("CONNECT http://api.example:80/public/x", ("Host: api.example:80",), SMUGGLED),
    Case("CONNECT http://api.example:80/public/x", ("Host: api.example:80", LENGTH), BODY),
]

UPGRADES = [
    *CONNECTS,
    Case("GET /public/x", WEBSOCKET),
    Case("GET /public/x", WEBSOCKET, SMUGGLED),
    Case("GET /public/x", ("Connection: keep-alive, Upgrade", "Upgrade: WebSocket", *HANDSHAKE)),
    Case("GET /public/x HTTP/1.0", WEBSOCKET),
    Case("HEAD /public/x", WEBSOCKET),
    Case("POST /public/x", (*WEBSOCKET, "Content-Length: 0")),
    Case("GET /public/x", (*WEBSOCKET, "Content-Length: 0")),
    Case("POST /public/x", (*WEBSOCKET, LENGTH), BODY),
    Case("GET /public/x", (*WEBSOCKET, LENGTH), BODY),
    Case("HEAD /public/x", (*WEBSOCKET, LENGTH), BODY),
    Case("POST /public/x", (*WEBSOCKET, "Transfer-Encoding: chunked"), CHUNKED),
    Case("GET /public/x", (*WEBSOCKET, "Transfer-Encoding: chunked"), CHUNKED),
    Case("GET /public/x", ("Upgrade: websocket", *HANDSHAKE)),
    Case("GET /public/x", (*WEBSOCKET, "Connection: X-Auth-Subject")),
    Case("GET /public/x", ("Connection: Upgrade, X-Auth-Subject, X-Auth-User", *WEBSOCKET[1:])),
    Case("GET /public/x", (*HTTP2_SETTINGS, "Upgrade: h2c"), H2C),
    Case("GET /public/x", (*HTTP2_SETTINGS, "Upgrade: websocket", "Upgrade: h2c"), H2C),
    Case("GET /public/x", (*HTTP2_SETTINGS, "Upgrade: h2c", "Upgrade: websocket"), H2C),
    Case("GET /public/x", (*HTTP2_SETTINGS, "Upgrade: websocket, h2c"), H2C),
    Case("GET /public/x", (*HTTP2_SETTINGS, "Upgrade: h2c, websocket"), H2C),
    Case("GET /public/x", (*HTTP2_SETTINGS, "Upgrade: websocket", "Upgrade: websocket"), H2C),
    Case("GET /public/x", (*HTTP2_SETTINGS, "Upgrade:", "Upgrade: h2c"), H2C),
    Case("GET /public/x", ("Connection: Upgrade", "Upgrade: websocket,\r\n h2c"), H2C),
    Case("GET /public/x", ("Connection: Upgrade", "Upgrade: foo"), H2C),
    Case("GET /public/x", ("Connection: Upgrade", "Upgrade: TLS/1.0"), H2C),
    Case("GET /public/x", ("Connection: Upgrade", "Upgrade: websocket/13"), H2C),
    Case("GET /public/x", ("Connection: Upgrade", "Upgrade: xwebsocket"), H2C),
    Case("GET /public/x", ("Connection: Upgrade", "Upgrade : h2c"), H2C),
]

LEGAL_PATHS = [
    "/",
    "/things?a=1",
    "/public/x?next=/../reports//y&z=%2e%2e%2f%zz%\\",
    "/public/%20x",
    "/public/caf%C3%A9",
    "/public/caf%c3%a9",
    "/public/a..b/.well-known/x./...",
    "/public/%252e%252e/reports/x",
    "/public/a%25",
    "/public/a%3Fb%23c%3bd",
    "/public/a;v=1,2/b:c@d!$&'()*+~_-",
    "/public/%22%3C%3E%5B%5D%5E%60%7B%7C%7D",
    "/reports/%E2%82%AC?%2e%2e",
    "/public/" + "a" * 4_000,
    "/public/" + "%C3%A9" * 600,
]
# Refused, or forwarded in another spelling, which is the one that was judged.
AMBIGUOUS_PATHS = [
    "/reports/../public/x",
    "/reports/%2e%2e/public/x",
    "/reports/.%2E/public/x",
    "/reports/x/%2e./../public/x",
    "/reports/../x",
    "/reports/..",
    "/reports/x/..",
    "/public/../reports/x",
    "/public/%2e%2e/reports/x",
    "/public/..;/reports/x",
    "/public/..;a=b/reports/x",
    "/public/..%3b/reports/x",
    "/public/..%3f/reports/x",
    "/public/..%23x/reports",
    "/public/.%09./reports/x",
    "/public/.%0a./reports/x",
    "/re%09ports/x",
    "/public/./../reports/x",
    "/x/../reports/x",
    "/./reports/x",
    "/%2e/reports/x",
    "/reports/./../public/x",
    "/reports/.",
    "//reports/x",
    "/reports//../../public/x",
    "//public/x",
    "///public/../reports/x",
    "/public//x",
    "/reports/..%2fpublic/x",
    "/public/..%2Freports/x",
    "/public%2f..%2freports/x",
    "/reports%2fx",
    "/public%2fx",
    "/%2freports/x",
    "/public/..\\reports\\x",
    "/reports/..\\public\\x",
    "/public/..%5creports%5Cx",
    "\\reports\\x",
    "/reports%5cx",
    "/%70ublic/x",
    "/%72eports/x",
    "/repor%74s/x",
    "/public/%41",
    "/reports/%zz",
    "/reports/x%",
    "/reports/x%2",
    "/%72eports/%zz",
    "/public/%zz/../private",
    "/public/%zz/%2e%2e/%2e%2e/reports/x",
    "/public/%u002e%u002e/reports/x",
    "/public/%00",
    "/public/\x01x",
    "/public/x#/../../reports/x",
    "/reports/x#/../../public/x",
    "/reports#/../public/x",
    "/public/#x",
    "http://api.example/reports/../public/x",
    "http://api.example/public/%zz",
    "http://api.example/reports/%zz",
    "http://api.example//reports/x",
]
# Forwarded or refused.
OTHER_PATHS = [
    "/reports",
    "/public",
    "/Reports/x",
    "/public/x?a#/../reports/x",
    "/PUBLIC/x",
    "/Public/x",
    "/REPORTS/x",
    "/public/%c0%ae%c0%ae/reports/x",
    "/public/%0d%0aX-Auth-User:%20forged",
    "/public/%7f",
    "/public/caf\xe9",
    "/public/a b",
    "/public/x\t",
    "reports/x",
    "public/x",
    "?/public/x",
    "http://api.example/reports/x",
    "http://api.example/public/x",
    "HTTP://API.EXAMPLE/public/x?y",
    "http://api.example",
    "http://api.example?/public/x",
    "http://api.example/PUBLIC/x",
    "http://user@api.example/public/x",
    "http://api.example#/public/x",
    "http://api.example\\reports\\x",
    "http:/public/x",
    "http:///public/x",
    "http:public/x",
    "https://api.example/reports/x",
    "ftp://api.example/public/x",
    "urn:/public/x",
]

METHODS = [
    # In HTTP/2 this is a WebSocket (RFC 8441).
    *(Case("CONNECT /public/x", (f":protocol: {name}", *HANDSHAKE)) for name in ("websocket", "h2c")),
    *(Case(f"{method} /public/x", passes=True) for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND")),
    *(Case(f"{method} /reports/x") for method in ("get", "Get", "HEAD", "OPTIONS", "TRACE", "FOO", "G\xc9T", "GE(T")),
    *(Case(f"{method} *") for method in ("OPTIONS", "GET")),
    *(Case(f"GET /reports/x HTTP/{version}") for version in ("1.0", "0.9", "1.2", "2.0", "11", "1.1 ", "1.1\t")),
    Case("GET  /reports/x"),
    Case("GET\t/reports/x"),
    Case("GET /reports/x /public/x"),
    Case("GET /public/x /reports/x"),
    Case(" GET /reports/x"),
]

# The Host equals the authority, which some servers end at another character.
AUTHORITIES = [
    Case(f"GET http://{authority}/public/x", (f"Host: {authority}",))
    for authority in ("api.example?", "a\\reports\\x", "a%2freports%2fx", "[", "@", "")
]

HEADERS = [
    *(
        Case("GET /public/x", (f"X{mark}Auth{mark}User: forged", f"X-Auth{mark}Foo: forged"))
        for mark in "-_.!~'*+^|`#$%&"
    ),
    *(
        Case("GET /things", (f"X{mark}Auth{mark}User: forged", f"X-Auth{mark}Foo: forged"))
        for mark in "-_.!~'*+^|`#$%&"
    ),
    Case("GET /public/x", ("X-AUTH-USER: forged", "x-auth-scope: forged", "X-aUtH-cLiEnT: forged")),
    Case("GET /public/x", ("X-Auth-User : forged",)),
    Case("GET /public/x", ("X-Auth-User\t: forged",)),
    Case("GET /public/x", (" X-Auth-User: forged",)),
    Case("GET /public/x", ("A: b", "\tX-Auth-User: forged")),
    Case("GET /public/x", ("A: b\nX-Auth-User: forged",)),
    Case("GET /public/x", ("A: b\rX-Auth-User: forged",)),
    Case("GET /public/x", ("A: b\0\nX-Auth-User: forged",)),
    Case("GET /public/x", ("X-Auth-User\0: forged",)),
    Case("GET /public/x", ("X-Auth-\xdcser: forged",)),
    Case("GET /public/x", (": forged",)),
    Case("GET /public/x", ("X-Auth-User",)),
    Case("GET /things", ("X-Auth-User: forged", "X-Auth-User: forged too")),
    Case("GET /things", ("Connection: X-Auth-Subject, X-Auth-Scope, X-Forwarded-For",)),
    Case("GET /things", ("Connection: close, X-Auth-Realm", "Connection: X-Auth-User")),
    Case("GET /things", ("Proxy-Connection: X-Auth-Realm", "Keep-Alive: X-Auth-User", "TE: trailers")),
    Case("GET /reports/x", ("Host: api.example/public/",)),
    Case("GET /reports/x", ("Host: api.example", "Host: other.example")),
    Case("GET /reports/x", ("X-Original-URL: /public/x", "X-Rewrite-URL: /public/x", "X-Forwarded-Uri: /public/x")),
    Case("GET /reports/x", ("X-HTTP-Method-Override: GET", "X-Forwarded-Prefix: /public")),
]

FRAMINGS = [
    Case("POST /public/x", (LENGTH,), BODY, passes=True),
    Case("POST /public/x", ("Transfer-Encoding: chunked",), CHUNKED, passes=True),
    Case("POST /public/x", (LENGTH, "Transfer-Encoding: chunked"), CHUNKED),
    Case("POST /public/x", ("Transfer-Encoding: chunked", "Content-Length: 5"), CHUNKED),
    Case("POST /public/x", ("Content-Length: 0", f"Content-Length: {len(SMUGGLED)}"), SMUGGLED),
    Case("POST /public/x", (f"Content-Length: +{len(SMUGGLED)}",), SMUGGLED),
    Case("POST /public/x", (f"Content-Length: 0, {len(SMUGGLED)}",), SMUGGLED),
    Case("POST /public/x", ("Transfer-Encoding: xchunked",), CHUNKED[-500:]),
    Case("POST /public/x", ("Transfer-Encoding: chunked, identity",), CHUNKED[-500:]),
    Case("POST /public/x", ("Transfer-Encoding : chunked",), CHUNKED[-500:]),
    Case("POST /public/x", ("Transfer-Encoding:\x0bchunked",), CHUNKED[-500:]),
    Case("POST /public/x HTTP/1.0", ("Transfer-Encoding: chunked",), CHUNKED),
    Case("POST /public/x", ("Transfer-Encoding: chunked",), b"3;a=\n\r\nabc\r\n0\r\n\r\n"),
    Case("POST /public/x", ("Expect: 100-continue", f"Content-Length: {len(SMUGGLED)}"), SMUGGLED),
]

CASES = [
    *UPGRADES,
    *(Case(f"GET {target}", passes=True) for target in LEGAL_PATHS),
    *(Case(f"GET {target}", ambiguous=True) for target in AMBIGUOUS_PATHS),
    *(Case(f"GET {target}") for target in OTHER_PATHS),
    *METHODS,
    *AUTHORITIES,
    *HEADERS,
    *FRAMINGS,
]
