"""The deployment of these tests: a service, its Redis, and its clients beside those of tests/seed.yaml."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import redis
import yaml

from tests.conftest import SEED, environment_of
from tests.support.clients_and_users import PHONE_CALLBACK, OAuthClient
from tests.support.servers import RedisServer, ServiceProcess, running_service, start_redis, stop

SHOP = OAuthClient("shop", "shop-secret")
PKCE_ONLY = OAuthClient("pkce-only")


class Deployment(NamedTuple):
    """A service and its Redis. `environment` starts another service on the same Redis."""

    redis: RedisServer
    environment: Mapping[str, str]
    service: ServiceProcess


@contextmanager
def running_deployment(
    folder: Path, callback: str, *, port: int | None = None, realms: Mapping[str, object] | None = None
) -> Iterator[Deployment]:
    """Run a service with its own Redis. Realms are entries of a seed file; by default there is only main.

    A code lives for ten minutes, for slow browsers.
    """
    server = start_redis(folder)
    try:
        seed = write_seed(folder / "seed.yaml", callback, realms)
        environment = environment_of(server, TOKEN_SERVICE_SEED_FILE=str(seed), TOKEN_SERVICE_CODE_TTL="600")
        with running_service(folder, environment, port=port) as service:
            yield Deployment(server, environment, service)
    finally:
        stop(server.process)


def write_seed(file: Path, callback: str, realms: Mapping[str, object] | None = None) -> Path:
    """Write tests/seed.yaml with two more clients: a confidential one, and a public one that must use PKCE."""
    seed: dict[str, Any] = yaml.safe_load(SEED.read_text())
    seed["realms"] = dict(realms or {})
    seed["clients"] += [
        {
            "client_id": SHOP.client_id,
            "client_secret": SHOP.client_secret,
            "client_name": "Example Shop",
            "redirect_uris": [callback],
            "grant_types": ["authorization_code", "refresh_token"],
            "scope": "realm:main realm:cep role:enduser role:organisation role:partner",
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
    """Delete logins, consents and counters. All of them expire, and registry entries do not."""
    for key in store.scan_iter(count=1000):
        if store.ttl(key) >= 0:
            store.delete(key)
