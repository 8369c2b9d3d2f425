"""Lookups of tokens without the console."""

from __future__ import annotations

import httpx2

from tests.support.clients_and_users import GATEWAY


async def is_live(http: httpx2.AsyncClient, token: str) -> bool:
    answer: bool = (await GATEWAY.introspect(http, token)).json()["active"]
    return answer
