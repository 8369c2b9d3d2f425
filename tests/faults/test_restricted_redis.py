"""A Redis that lets the service do its work and little else."""

from pathlib import Path

import pytest

from service.config.settings import load_settings
from service.store.keys import registry_key
from tests.conftest import SECRET_KEY, Clock, serving
from tests.faults.deployment import Deployment
from tests.support.clients_and_users import ALICE, PHONE_APP, access_key_of, assert_error, tokens_of, verify
from tests.support.waiting import until_true

RESTRICTED = ("reset", "on", ">password", "~*", "+@all", "-@dangerous", "-@admin")


@pytest.mark.clause("decided-readyz-eviction", "decided-readyz")
async def test_readiness_needs_no_permission_for_config(deployment: Deployment) -> None:
    deployment.store.execute_command("ACL", "SETUSER", "restricted", *RESTRICTED)  # type: ignore[no-untyped-call]
    url = deployment.redis.url.replace("redis://", "redis://restricted:password@")
    settings = load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY})

    async with serving(settings, Clock(deployment.store)) as http:
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.clause("decided-readyz", "decided-registry-change-seen")
async def test_redis_user_without_tracking_is_served_without_cache(deployment: Deployment) -> None:
    """A managed Redis may have no CLIENT TRACKING. The registry and tokens are read each time."""
    deployment.store.execute_command("ACL", "SETUSER", "restricted", *RESTRICTED, "-client|tracking")  # type: ignore[no-untyped-call]
    url = deployment.redis.url.replace("redis://", "redis://restricted:password@")
    environment = {"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY, "TOKEN_SERVICE_VERIFY_CACHE": "on"}

    async with serving(load_settings(environment), Clock(deployment.store)) as http:
        assert (await http.get("/readyz")).status_code == 200
        tokens = tokens_of(await PHONE_APP.log_in(http, ALICE))
        for _ in range(3):
            assert (await verify(http, tokens["access_token"])).status_code == 200
        deployment.store.delete(access_key_of(tokens["access_token"]))
        assert (await verify(http, tokens["access_token"])).status_code == 401

        phone_app = registry_key("client", PHONE_APP.client_id)
        reads = deployment.count_calls("get")
        for _ in range(3):
            tokens = tokens_of(await PHONE_APP.refresh(http, tokens["refresh_token"]))
        assert deployment.count_calls("get") >= reads + 3
        record = deployment.store.getdel(phone_app)
        try:
            assert_error(await PHONE_APP.refresh(http, tokens["refresh_token"]), 401, "invalid_client")
        finally:
            deployment.store.set(phone_app, str(record))


@pytest.mark.clause("decided-secrets-from-files")
async def test_password_in_a_file_may_change(deployment: Deployment, tmp_path: Path) -> None:
    """Redis demands it of new connections only. Those that are open go on, until they are lost."""
    file = tmp_path / "redis_url"

    def set_password(password: str) -> None:
        rules = ("reset", "on", f">{password}", "~*", "&*", "+@all")
        deployment.store.execute_command("ACL", "SETUSER", "rotating", *rules)  # type: ignore[no-untyped-call]
        file.write_text(deployment.redis.url.replace("redis://", f"redis://rotating:{password}@"))

    set_password("first")
    settings = load_settings({"REDIS_URL_FILE": str(file), "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY})
    async with serving(settings, Clock(deployment.store)) as http:
        assert (await http.get("/readyz")).status_code == 200
        set_password("second")
        assert deployment.store.execute_command("CLIENT", "KILL", "USER", "rotating")  # type: ignore[no-untyped-call]

        assert (await PHONE_APP.log_in(http, ALICE)).status_code == 200
        file.unlink()

        async def is_cut_off() -> bool:
            deployment.store.execute_command("CLIENT", "KILL", "USER", "rotating")  # type: ignore[no-untyped-call]
            return (await http.get("/readyz")).status_code == 503

        # A connection that was being opened may have read the file before it was deleted.
        await until_true(is_cut_off, "no connection without the password file")
