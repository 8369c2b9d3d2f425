"""The example client, as its tests run it."""

import html
import re

import httpx2

SCOPE = "realm:main role:enduser"


def is_answering(address: str) -> bool:
    try:
        return httpx2.get(address).status_code == 200
    except httpx2.TransportError:
        return False


async def press(browser: httpx2.AsyncClient, path: str) -> httpx2.Response:
    """Press a button of the current page."""
    page = (await browser.get("/")).text
    assert f'formaction="{path}"' in page
    (csrf_token,) = re.findall(r'name="csrf_token" value="([^"]+)"', page)
    return await browser.post(path, data={"csrf_token": csrf_token})


async def read_page(browser: httpx2.AsyncClient) -> str:
    return html.unescape((await browser.get("/")).text)
