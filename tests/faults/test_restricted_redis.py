"""A Redis that lets the service do its work and little else."""

from __future__ import annotations

import pytest

from service.settings import load_settings
from tests.conftest import SECRET_KEY, Clock, serving
from tests.faults.stage import Stage

RESTRICTED = ("reset", "on", ">password", "~*", "+@all", "-@dangerous", "-@admin")


@pytest.mark.clause("decided-readyz-eviction", "decided-readyz")
async def test_a_user_who_may_not_read_the_eviction_policy_is_ready_all_the_same(stage: Stage) -> None:
    stage.store.execute_command("ACL", "SETUSER", "restricted", *RESTRICTED)  # type: ignore[no-untyped-call]
    url = stage.redis.url.replace("redis://", "redis://restricted:password@")
    settings = load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY})

    async with serving(settings, Clock(stage.store)) as http:
        assert (await http.get("/readyz")).status_code == 200


@pytest.mark.clause("decided-readyz", "decided-redis-away", "decided-i8-fail-closed")
async def test_a_user_who_may_run_no_scripts_is_not_ready(stage: Stage) -> None:
    stage.store.execute_command("ACL", "SETUSER", "restricted", *RESTRICTED, "-@scripting")  # type: ignore[no-untyped-call]
    url = stage.redis.url.replace("redis://", "redis://restricted:password@")
    settings = load_settings({"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY})

    async with serving(settings, Clock(stage.store)) as http:
        assert (await http.get("/readyz")).status_code == 503


@pytest.mark.clause("decided-readyz", "decided-i8-fail-closed")
@pytest.mark.parametrize("cache", ["on", "off"])
async def test_a_user_who_may_not_track_is_not_ready(stage: Stage, cache: str) -> None:
    """Else every token request would be 503, and nobody would know."""
    stage.store.execute_command("ACL", "SETUSER", "restricted", *RESTRICTED, "-client|tracking")  # type: ignore[no-untyped-call]
    url = stage.redis.url.replace("redis://", "redis://restricted:password@")
    environment = {"REDIS_URL": url, "TOKEN_SERVICE_SECRET_KEY": SECRET_KEY, "TOKEN_SERVICE_VERIFY_CACHE": cache}

    async with serving(load_settings(environment), Clock(stage.store)) as http:
        assert (await http.get("/readyz")).status_code == 503
