"""The library with which an API checks the bearer tokens of the token service in Redis, without calling the service.

    from token_service_gateway import BearerLookup

    bearer = BearerLookup("redis://gateway:secret@redis.internal:6379/0")
    grant = await bearer.lookup(access_token)       # an AccessGrant, or None if the token is not live

`BearerMiddleware` guards any ASGI application, or a route of Starlette. The module `fastapi` is for FastAPI, and
`testing` for tests. Import only from these modules. The packages in this one may change with any version.
"""

from .gateway import AccessGrant, BearerLookup, StoreUnavailable
from .gateway.middleware import BearerMiddleware
from .gateway.resource_metadata import make_resource_metadata

__all__ = ["AccessGrant", "BearerLookup", "BearerMiddleware", "StoreUnavailable", "make_resource_metadata"]
