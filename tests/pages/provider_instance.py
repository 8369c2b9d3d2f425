"""A second instance of this service as the identity provider, and the actions of users there.

Its host is `localhost` and the service's is `127.0.0.1`, so browsers keep their cookies apart.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import yaml
from playwright.async_api import Locator, Page, expect

from tests.conftest import environment_of
from tests.pages.deployment import SHOP
from tests.support.browser import authorization_url, page_text
from tests.support.clients_and_users import OAuthClient, UserCredentials
from tests.support.servers import RedisServer, free_port, running_service, start_redis, stop

OUR_NAME: Final = "The Token Service"
PROVIDER: Final = "Example Organisation"
SERVICE_AS_CLIENT: Final = OAuthClient("token-service", "a secret: with 100% + signs")
"""The service's registration as a client of the provider."""
ZOE: Final = UserCredentials("zoe@org.example", "a password elsewhere")
YVES: Final = UserCredentials("yves@org.example", "another one elsewhere")

CEP: Final = "realm:cep role:enduser"
ANY_REALM: Final = "role:enduser"
"""A scope that leaves the choice of the realm open."""


class IdentityProvider(NamedTuple):
    """A running provider. `url` is also its issuer."""

    url: str
    redis: RedisServer


@contextmanager
def running_provider(folder: Path, callback: str) -> Iterator[IdentityProvider]:
    server = start_redis(folder)
    try:
        (folder / "seed.yaml").write_text(yaml.safe_dump(_make_seed(callback)))
        port = free_port()
        url = f"http://localhost:{port}"
        environment = environment_of(
            server,
            TOKEN_SERVICE_BASE_URL=url,
            TOKEN_SERVICE_PAGE_NAME=PROVIDER,
            TOKEN_SERVICE_SECRET_KEY="a key of the organisation of 32 bytes or more",
            TOKEN_SERVICE_SEED_FILE=str(folder / "seed.yaml"),
        )
        with running_service(folder, environment, port=port):
            yield IdentityProvider(url, server)
    finally:
        stop(server.process)


def _make_seed(callback: str) -> dict[str, object]:
    return {
        "clients": [
            {
                "client_id": SERVICE_AS_CLIENT.client_id,
                "client_secret": SERVICE_AS_CLIENT.client_secret,
                "client_name": OUR_NAME,
                "redirect_uris": [callback],
                "grant_types": ["password", "authorization_code"],
                "scope": "realm:main role:enduser",
                "introspect": True,
            }
        ],
        "users": [
            {"username": credentials.username, "password": credentials.password, "roles": ["enduser"]}
            for credentials in (ZOE, YVES)
        ],
    }


def realm_of(provider: IdentityProvider) -> dict[str, object]:
    """Return the realm's entry in a seed file. The service reads the endpoints from the provider's metadata."""
    return {
        "name": PROVIDER,
        "issuer": provider.url,
        "client_id": SERVICE_AS_CLIENT.client_id,
        "client_secret": SERVICE_AS_CLIENT.client_secret,
        "scope": "realm:main role:enduser",
        "username_claim": "username",
        "default_roles": ["enduser"],
    }


def ask_for(scope: str, callback: str) -> str:
    """Return the address of the application's authorization request."""
    return authorization_url(SHOP, callback, scope=scope, state="a state")


def provider_button(page: Page, name: str = PROVIDER) -> Locator:
    return page.get_by_role("button", name=page_text("login.provider").format(provider=name), exact=True)


async def expect_at(page: Page, url: str) -> None:
    """Check that the page belongs to this server."""
    await expect(page).to_have_url(re.compile(re.escape(url) + "/"))


async def expect_person(page: Page, username: str, realm_label: str) -> None:
    """Check the user and the provider that the consent page names."""
    person = page.locator(".person")
    await expect(person.get_by_text(username, exact=True)).to_be_visible()
    await expect(person.get_by_text(realm_label, exact=True)).to_be_visible()
