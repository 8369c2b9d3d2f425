"""Names of hosts that lead to several addresses."""

import socket

import pytest


def resolve(monkeypatch: pytest.MonkeyPatch, name: str, *addresses: str) -> None:
    """Make the name lead to these addresses, as a name server would."""
    ask = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *rest: int, **more: int) -> list[object]:
        if host != name:
            return list(ask(host, port, *rest, **more))
        return [found for address in addresses for found in ask(address, port, *rest, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
