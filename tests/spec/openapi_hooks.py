"""Hooks of schemathesis for what docs/openapi.yaml cannot express."""

from typing import Any

import schemathesis
from schemathesis import Case, HookContext, Response
from schemathesis.core.failures import Failure, MalformedJson
from schemathesis.openapi.checks import MissingContentType

from tests.support.clients_and_users import BACK_OFFICE, GLOBAL_REVOCATION, USERS


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, Any]) -> None:
    """Authenticate each request to these endpoints. `headers` of the configuration go to other endpoints, too."""
    if case.path == GLOBAL_REVOCATION or case.path.startswith(USERS):
        case.headers["Authorization"] = BACK_OFFICE.basic["Authorization"]


@schemathesis.hook
def filter_failure(context: HookContext, failure: Failure, case: Case[Any], response: Response) -> bool:
    """Accept the empty body of a challenge without an error, and of a revocation.

    OpenAPI cannot describe "this body or none". An empty body has no content type.
    """
    is_bare = response.headers.get("www-authenticate") == ['Bearer realm="token-service"']
    is_revocation = response.status_code == 200 and case.path.startswith("/oauth2/v1/revoke")
    is_for_body = isinstance(failure, MalformedJson | MissingContentType)
    return not ((is_bare or is_revocation) and is_for_body and not response.content)
