"""The part of curl that the documentation uses, so that its lines can be tried on machines without curl.

An unknown argument ends with status 2.
"""

import argparse
import http.client
import sys
from base64 import b64encode
from urllib.parse import quote_plus, urlsplit

MAX_WAIT_SECONDS = 60
"""This script runs without the packages of the tests and cannot import the bound of waiting.py."""


def main() -> None:
    arguments = _parse_arguments()
    body = "&".join(arguments.data) if arguments.data else None
    url = urlsplit(arguments.url)
    connection = http.client.HTTPConnection(url.netloc, timeout=MAX_WAIT_SECONDS)
    method = arguments.request or ("GET" if body is None else "POST")
    connection.request(method, f"{url.path}?{url.query}".rstrip("?"), body, _make_headers(arguments, body))
    response = connection.getresponse()
    head = f"HTTP/1.1 {response.status} {response.reason}\n" + "".join(f"{k}: {v}\n" for k, v in response.getheaders())
    sys.stdout.write(head + "\n" if arguments.include or arguments.dump_header else "")
    sys.stdout.write(response.read().decode() if arguments.output is None else "")
    sys.stdout.write((arguments.write_out or "").replace("%{http_code}", str(response.status)).replace("\\n", "\n"))


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("url")
    parser.add_argument("-s", "--silent", action="store_true")
    parser.add_argument("-S", "--show-error", action="store_true")
    parser.add_argument("-i", "--include", action="store_true")
    parser.add_argument("-D", "--dump-header", choices=["-"])
    parser.add_argument("-o", "--output", choices=["/dev/null"])
    parser.add_argument("-w", "--write-out")
    parser.add_argument("-X", "--request")
    parser.add_argument("-u", "--user")
    parser.add_argument("-H", "--header", action="append", default=[])
    parser.add_argument("-d", "--data", action="append", dest="data", default=[])
    parser.add_argument("--data-urlencode", action="append", dest="data", type=_encode)
    return parser.parse_args()


def _encode(text: str) -> str:
    name, _, value = text.partition("=")
    return f"{name}={quote_plus(value)}"


def _make_headers(arguments: argparse.Namespace, body: str | None) -> dict[str, str]:
    headers = dict(header.split(": ", 1) for header in arguments.header)
    if arguments.user is not None:
        headers["Authorization"] = "Basic " + b64encode(arguments.user.encode()).decode()
    if body is not None:
        headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
    return headers


if __name__ == "__main__":
    main()
