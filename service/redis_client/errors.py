"""The errors of Redis: what a server answers, and connections that end."""

from __future__ import annotations


class RedisError(Exception):
    """Base of everything that a server or its connection may raise."""


class ResponseError(RedisError):
    """An error that the server answered. Its text begins with the server's word for it, such as WRONGTYPE."""


class NoScriptError(ResponseError):
    """The server does not know the script, so nothing ran."""


class ReadOnlyError(ResponseError):
    """The server is not a master."""


class InvalidResponse(RedisError):
    """The server sent something that is no answer of the protocol."""


class ConnectionLost(RedisError):
    """The connection ended before the answer came. That answer will never be read."""


class NotSent(ConnectionLost):
    """The connection had ended before the command was sent, so the command may be sent elsewhere."""
