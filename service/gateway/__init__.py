"""What an API or a gateway imports to judge bearer tokens by itself, without starting the service.

    from . import BearerLookup

    bearer = BearerLookup("redis://gateway:secret@redis.internal:6379/0")
    grant = await bearer.lookup(access_token)       # an AccessGrant, or None where the token is not live

`middleware` holds a plain ASGI middleware, `authentication` a backend for Starlette's own.
"""

from ..protocol.bearer import AccessGrant
from ..redis_client.deadline import StoreUnavailable
from .lookup import BearerLookup

__all__ = ["AccessGrant", "BearerLookup", "StoreUnavailable"]
