"""The example client, as its tests run it."""

import httpx2

SCOPE = "realm:main role:enduser"


def is_answering(address: str) -> bool:
    try:
        return httpx2.get(address).status_code == 200
    except httpx2.TransportError:
        return False
