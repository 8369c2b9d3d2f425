"""The library with which an API or a gateway checks bearer tokens in Redis, without calling the service.

    from service.gateway import BearerLookup

    bearer = BearerLookup("redis://gateway:secret@redis.internal:6379/0")
    grant = await bearer.lookup(access_token)       # an AccessGrant, or None if the token is not live
    reason = await bearer.watch(access_token)       # at the end of a live token: why it ended

`middleware` is a plain ASGI middleware, `fastapi_guard` is a dependency of FastAPI, and `testing` is a lookup for the
tests of an API.

APIs install this package as the distribution opaque-token-service-gateway, which distributions/gateway builds. There
it is `token_service_gateway`.
"""

from ..protocol.bearer import AccessGrant
from ..redis_client.deadline import StoreUnavailable
from .lookup import BearerLookup

__all__ = ["AccessGrant", "BearerLookup", "StoreUnavailable"]
