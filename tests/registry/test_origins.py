"""The web origins of redirect URIs, kept with the clients that have them."""

import pytest

from service.protocol.uri import find_origin_mistake, list_origins
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
        ("http://[::1]:9000/callback", ("http://[::1]:*",)),
        ("http://[::2]:9000/callback", ("http://[::2]:9000",)),
        ("com.example.app:/callback", ()),
    ],
)
def test_an_origin_is_written_as_a_browser_sends_it(redirect_uri: str, origins: tuple[str, ...]) -> None:
    assert tuple(list_origins([redirect_uri], any_loopback_port=True)) == origins


@pytest.mark.clause("decided-cors-origins")
def test_a_registered_origin_is_one_that_browsers_send() -> None:
    sent = ["capacitor://localhost", "https://localhost", "http://a.example:8080", "http://[::1]:1", "app://x.y"]
    unsent = ["null", "*", "https://*.example", "https://a.example/", "https://A.example", "http://a.example:80"]
    unsent += ["https://a.example?x", "https://u@a.example", "a.example", "https://a.example:65536", "com.a:/b", ""]

    assert not [origin for origin in sent if find_origin_mistake(origin)]
    assert not [origin for origin in unsent if not find_origin_mistake(origin)]


@pytest.mark.clause("decided-cors-origins")
async def test_origins_follow_the_redirect_uris_of_the_seed(worker: Worker, seeding: Seeding) -> None:
    await seeding.apply(SeedText().seed)
    assert await is_origin(worker, "https://phone.example")
    await seeding.apply(SeedText().but(redirect_uri="https://other.example/x").seed)

    assert await is_origin(worker, "https://other.example")
    assert not await is_origin(worker, "https://phone.example")
    assert not await is_origin(worker, "null")
