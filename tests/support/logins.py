"""Logins as the store gets them, for tests that are not about the check of a password."""

from __future__ import annotations

from service.protocol.user import Login, User


def login_of(user: User, sid: str = "") -> Login:
    return Login(user, sid)
