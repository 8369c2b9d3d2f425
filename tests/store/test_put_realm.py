"""A realm's record written together with its seed entry and its pending scan."""

import pytest

from service.protocol.provider import IdentityProvider
from service.worker import Worker

CEP = IdentityProvider(client_id="us")


@pytest.mark.clause("decided-seed-interrupted")
async def test_a_realm_its_entry_and_its_scan_are_written_together(worker: Worker) -> None:
    await worker.registry.realms.put("cep", CEP, applied="{}")

    assert await worker.registry.realms.find("cep") == CEP
    assert await worker.registry.seeds.find("realm:cep") == "{}"
    assert await worker.registry.list_pending_scans("pending_realm_scans") == {}
    await worker.registry.realms.put("cep", None, ends_sessions=True)
    assert await worker.registry.realms.find("cep") is None
    assert await worker.registry.seeds.find("realm:cep") is None
    assert list(await worker.registry.list_pending_scans("pending_realm_scans")) == ["cep"]
