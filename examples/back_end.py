"""The user management of a platform's back end: sign-up, rename, password reset and account deletion.

The client `back-office` of examples/seed.yaml has the right `manage_users`.
"""

import json
from base64 import b64encode
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

USERS = "http://127.0.0.1:8000/oauth2/v1/users/"
BASIC = "Basic " + b64encode(b"back-office:back-office-secret").decode()


def send(method: str, username: str, body: dict[str, Any] | None = None, **headers: str) -> Any:
    """Send a request. Raises HTTPError if it is rejected; the JSON body has the reason in error_description."""
    headers |= {"Authorization": BASIC, "Content-Type": "application/json"}
    url = USERS + quote(username, safe="")
    request = Request(url, json.dumps(body).encode() if body else None, headers, method=method)
    with urlopen(request, timeout=15) as response:
        return json.loads(response.read() or "{}")


def sign_up(username: str, password: str, name: str) -> str:
    body = {"password": password, "roles": ["enduser"], "name": name}
    return str(send("PUT", username, body, **{"If-None-Match": "*"})["id"])  # 412: the name is taken


def rename(username: str, new: str) -> None:
    send("PUT", username, {"username": new})  # 409: the new name is taken. All sessions of the user are revoked.


def reset_password(username: str, password: str) -> None:
    # All sessions of the user are revoked. Without If-Match this would create an unknown user; with it, 412 results.
    send("PUT", username, {"password": password}, **{"If-Match": "*"})


def close_account(username: str) -> None:
    send("DELETE", username)
