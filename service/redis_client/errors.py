"""The errors of Redis: what a server answers, and connections that end."""

from __future__ import annotations


class RedisError(Exception):
    """Base of everything that a server or its connection may raise."""


class ResponseError(RedisError):
    """An error that the server answered. Its text begins with the server's word for it, such as WRONGTYPE."""


class NoScriptError(ResponseError):
    """The server does not know the script, so nothing ran."""


class ConnectionLost(RedisError):
    """The connection ended before the answer came. That answer will never be read."""


class NotSent(ConnectionLost):
    """The connection had ended before the command was sent, so the command may be sent elsewhere."""
