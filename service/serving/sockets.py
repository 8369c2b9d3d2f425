"""The sockets that the service listens on, taken before anything else is started."""

from __future__ import annotations

import errno
import os
import socket

# What a machine without IPv6 says to `localhost`, which is two addresses.
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


Address = tuple[socket.AddressFamily, str]


class AddressRefused(Exception):
    """Nobody can listen there, or somebody does already; the message is one line."""


def listen(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of the host, all with the same port (0: any free one)."""
    sockets: list[socket.socket] = []
    try:
        for family, address in _resolve(host):
            _add_listening(sockets, family, address, port)
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except OSError as error:
        for listening in sockets:
            listening.close()
        raise AddressRefused(f"cannot listen on {host} port {port}: {_reason(error)}") from None
    return sockets


def _resolve(host: str) -> list[Address]:
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    return list(dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found))


def _add_listening(sockets: list[socket.socket], family: socket.AddressFamily, address: str, port: int) -> None:
    if sockets:
        port = sockets[0].getsockname()[1]
    try:
        sockets.append(socket.create_server((address, port), family=family))
    except OSError as error:
        if error.errno not in ABSENT:
            raise


def _reason(error: OSError) -> str:
    if error.errno == errno.EADDRINUSE:
        return "the port is in use"
    # create_server repeats the address in its text.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def accept_all(listening: socket.socket) -> list[socket.socket]:
    """Everybody who waits in it; none of this blocks."""
    accepted: list[socket.socket] = []
    listening.setblocking(False)
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return accepted
        connection.setblocking(False)
        accepted.append(connection)
