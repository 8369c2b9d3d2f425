"""The service of these tests: who is registered there beside the cast, and what a test finds in its Redis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import redis
import yaml

from tests.cast import PHONE_CALLBACK, App
from tests.conftest import SEED

SHOP = App("shop", "shop-secret")
PKCE_ONLY = App("pkce-only")


def write_seed(file: Path, callback: str) -> Path:
    """The cast, a confidential client with this callback, and a public one that must use PKCE."""
    seed: dict[str, list[dict[str, Any]]] = yaml.safe_load(SEED.read_text())
    seed["clients"] += [
        {
            "client_id": SHOP.client_id,
            "client_secret": SHOP.client_secret,
            "client_name": "Example Shop",
            "redirect_uris": [callback],
            "grant_types": ["authorization_code", "refresh_token"],
            "scope": "realm:main role:enduser role:organisation role:partner",
            "default_scope": "realm:main role:enduser",
        },
        {
            "client_id": PKCE_ONLY.client_id,
            "client_name": "Careful App",
            "redirect_uris": [PHONE_CALLBACK],
            "grant_types": ["authorization_code", "refresh_token"],
            "require_pkce": True,
            "scope": "realm:main role:enduser",
            "default_scope": "realm:main role:enduser",
        },
    ]
    file.write_text(yaml.safe_dump(seed))
    return file


def forget_all_but_the_registry(store: redis.Redis) -> None:
    """Logins, consents and counters end some day; what is registered lives for good."""
    for key in store.scan_iter(count=1000):
        if store.ttl(key) >= 0:
            store.delete(key)
