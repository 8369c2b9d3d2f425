"""Bearer tokens for Starlette's AuthenticationMiddleware. The extra `starlette` installs what this module needs."""

from .gateway.authentication import BearerBackend, BearerUser, answer_refusal, requires_scope

__all__ = ["BearerBackend", "BearerUser", "answer_refusal", "requires_scope"]
