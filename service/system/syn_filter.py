"""A packet filter of Linux that drops new connections to a listening socket."""

from __future__ import annotations

import contextlib
import ctypes
import socket
import struct
import sys

# A filter of Linux for a socket that listens. Of what comes to it, the byte 13 of TCP's header has the flags:
# load it; where SYN is set, take 0 bytes of the packet, and otherwise all of it.
SO_ATTACH_FILTER = 26


WITHOUT_SYN = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in ((0x30, 0, 0, 13), (0x45, 0, 1, 0x02), (0x06, 0, 0, 0), (0x06, 0, 0, 0xFFFFFFFF))
)


def drop_new_connections(listening: socket.socket) -> None:
    """Nobody begins to connect any more, while who has begun gets through: Linux only.

    A socket that closes hangs up on everybody who waits in it, and there is always somebody who came in between. Who is
    overheard asks again a second later, is refused, and has sent nothing yet; a balancer turns to the next instance.
    """
    if sys.platform != "linux" or listening.family not in (socket.AF_INET, socket.AF_INET6):
        return
    instructions = ctypes.create_string_buffer(WITHOUT_SYN, len(WITHOUT_SYN))
    program = struct.pack("HP", len(WITHOUT_SYN) // struct.calcsize("HBBI"), ctypes.addressof(instructions))
    # Where the system has no such filters, what is left is the moment between accepting and closing.
    with contextlib.suppress(OSError):
        listening.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
