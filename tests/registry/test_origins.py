"""The web origins of redirect URIs, kept with the clients that have them."""

import pytest

from service.protocol.uri import list_origins
from service.registry.seed_file.apply import Seeding
from service.worker import Worker
from tests.registry.seeds import SeedText
from tests.support.origins import is_origin


@pytest.mark.clause("decided-cors-origins")
@pytest.mark.parametrize(
    ("redirect_uri", "origins"),
    [
        ("https://a.example/callback?x=y", ("https://a.example",)),
        ("http://a.example:80/", ("http://a.example",)),
        ("http://a.example:443/", ("http://a.example:443",)),
        ("https://A.Example/", ("https://a.example",)),
        ("HTTPS://a.example:8443/", ("https://a.example:8443",)),
        ("http://[::1]:9000/callback", ("http://[::1]:9000",)),
        ("com.example.app:/callback", ()),
    ],
)
def test_an_origin_is_written_as_a_browser_sends_it(redirect_uri: str, origins: tuple[str, ...]) -> None:
    assert list_origins([redirect_uri]) == origins


@pytest.mark.clause("decided-cors-origins")
async def test_origins_follow_the_redirect_uris_of_the_seed(worker: Worker, seeding: Seeding) -> None:
    await seeding.apply(SeedText().seed)
    assert await is_origin(worker, "https://phone.example")
    await seeding.apply(SeedText().but(redirect_uri="https://other.example/x").seed)

    assert await is_origin(worker, "https://other.example")
    assert not await is_origin(worker, "https://phone.example")
    assert not await is_origin(worker, "null")
