"""Logins as the store gets them, for tests that are not about the check of a password."""

from service.protocol.user import Login, User

LATER_MS = 2**52
"""A time after every mark."""


def login_of(user: User, sid: str = "", *, begun_ms: int = LATER_MS) -> Login:
    """Return a login. Unless its time is given, no mark is later."""
    return Login(user, begun_ms, sid)
