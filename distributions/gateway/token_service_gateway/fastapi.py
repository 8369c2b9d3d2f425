"""A security dependency for FastAPI. The extra `fastapi` installs what this module needs."""

from .gateway.fastapi_guard import BearerGuard, TokenRefused, answer_token_refused

__all__ = ["BearerGuard", "TokenRefused", "answer_token_refused"]
