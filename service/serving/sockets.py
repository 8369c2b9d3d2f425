"""The sockets that the service listens on, opened before anything else is started."""

from __future__ import annotations

import errno
import os
import socket

# The errors of an IPv6 address on a machine without IPv6. `localhost` resolves to an IPv4 and an IPv6 address.
ABSENT = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


class AddressRefused(Exception):
    """Error for an address that cannot be listened on, or is in use. The message is one line."""


def listen(host: str, port: int, other_port: str) -> list[socket.socket]:
    """Open a socket for each address of the host, all on one port (0: any free one). Raises AddressRefused.

    `other_port` tells in the message how to choose another port.
    """
    sockets: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((family, str(address[0])) for family, _, _, _, address in found):
            _add_listening(sockets, family, address, port)
        if not sockets:
            raise OSError(errno.EADDRNOTAVAIL, os.strerror(errno.EADDRNOTAVAIL))
    except OSError as error:
        for listening in sockets:
            listening.close()
        raise AddressRefused(f"cannot listen on {host} port {port}: {_reason(error, other_port)}") from None
    return sockets


def _add_listening(sockets: list[socket.socket], family: socket.AddressFamily, address: str, port: int) -> None:
    if sockets:
        port = sockets[0].getsockname()[1]
    try:
        sockets.append(socket.create_server((address, port), family=family))
    except OSError as error:
        if error.errno not in ABSENT:
            raise


def _reason(error: OSError, other_port: str) -> str:
    if error.errno == errno.EADDRINUSE:
        return f"the port is in use. To use another one: {other_port}"
    # The text of create_server's error repeats the address, so the system's text replaces it.
    return os.strerror(error.errno) if error.errno and error.errno > 0 else str(error.strerror)


def accept_all(listening: socket.socket) -> list[socket.socket]:
    """Accept all connections in the accept queue, without blocking."""
    accepted: list[socket.socket] = []
    listening.setblocking(False)
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return accepted
        connection.setblocking(False)
        accepted.append(connection)
