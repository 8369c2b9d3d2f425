"""The reader of docs/openapi.yaml: the answers of an operation, and whether a response is among them."""

import json
from collections.abc import Mapping
from functools import cache
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import jsonschema_rs
import yaml

from tests.support.servers import CHECKOUT

FILE: Final = CHECKOUT / "docs" / "openapi.yaml"
CONTRACT: Final[Mapping[str, Any]] = yaml.safe_load(FILE.read_text())
METHODS: Final = frozenset({"get", "head", "post", "put", "patch", "delete", "options", "trace"})

_BARE_CHALLENGE: Final = 'Bearer realm="token-service"'
_MAY_BE_EMPTY: Final = ("/oauth2/v1/revoke", "/oauth2/v1/revokeAll")


def find_operation(path: str, method: str) -> Mapping[str, Any] | None:
    """Return the operation, or None for pages and for paths and methods that are not served.

    HEAD has the operation of GET.
    """
    paths = CONTRACT["paths"]
    is_user = path.startswith("/oauth2/v1/users/")  # what follows is a name, with or without slashes
    parent = path.rpartition("/")[0]
    methods = (
        paths["/oauth2/v1/users/{username}"] if is_user else paths.get(path) or paths.get(f"{parent}/{{realm}}", {})
    )
    name = method.lower()
    found: Mapping[str, Any] | None = methods.get(name) or (methods.get("get") if name == "head" else None)
    return found


def resolve(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the target of a reference within the file, or the part itself if it is no reference."""
    if "$ref" not in part:
        return part
    found: Any = CONTRACT
    for step in part["$ref"].removeprefix("#/").split("/"):
        found = found[step]
    target: Mapping[str, Any] = found
    return target


def check_answer(response: httpx2.Response) -> None:
    """Assert that the file describes the status, the headers and every member of the body."""
    operation = find_operation(urlsplit(str(response.request.url)).path, response.request.method)
    if operation is None:
        return
    where = f"{response.request.method} {response.request.url.path} {response.status_code}"
    assert str(response.status_code) in operation["responses"], f"{where} is not described"
    described = resolve(operation["responses"][str(response.status_code)])
    _check_headers(response, described.get("headers", {}), where)
    if response.request.method != "HEAD":
        _check_body(response, described.get("content"), where)


def _check_headers(response: httpx2.Response, described: Mapping[str, Any], where: str) -> None:
    for name, reference in described.items():
        header = resolve(reference)
        if name not in response.headers:
            assert not header.get("required"), f"{where} lacks {name}"
            continue
        value: str | int = response.headers[name]
        if header["schema"].get("type") == "integer":
            value = int(value)
        assert is_of_schema(value, header["schema"]), f"{where}: {name}: {value}"


def _check_body(response: httpx2.Response, described: Mapping[str, Any] | None, where: str) -> None:
    """Assert that the body is as described.

    Only a challenge without an error may have none, which OpenAPI cannot say.
    """
    if not response.content and response.request.method != "HEAD":
        assert "content-type" not in response.headers, f"{where} has a type without content"
    if described is None or response.headers.get("www-authenticate") == _BARE_CHALLENGE:
        assert response.content == b"", f"{where} has a body"
        return
    if not response.content and response.is_success and response.request.url.path.endswith(_MAY_BE_EMPTY):
        return
    content_type = response.headers["content-type"].partition(";")[0]
    schema = described[content_type].get("schema")
    if content_type == "application/json":
        assert is_of_schema(json.loads(response.content), schema), f"{where}: {response.text}"


def is_of_schema(value: object, schema: Mapping[str, Any]) -> bool:
    return _validator(json.dumps(schema)).is_valid(value)


@cache
def _validator(schema: str) -> jsonschema_rs.Draft202012Validator:
    return jsonschema_rs.Draft202012Validator(json.loads(schema) | {"components": CONTRACT["components"]})
