"""Checks for requests that the server refuses while it reads them."""

import json


def assert_refused(answer: bytes, status: int, description: str) -> None:
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer
    assert b"connection: close" in head
    assert b"no-store" in head
    error = json.loads(body)
    assert (error["error"], description in error["error_description"]) == ("invalid_request", True)
