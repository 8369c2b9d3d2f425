"""Warnings about content of a seed file that is allowed but looks unsafe."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from service.protocol.client import MIN_SECRET_CHARACTERS, is_short_secret
from service.protocol.provider import list_identity_risks
from service.registry.seed_file.schema import Seed

_MAX_NAMED: Final = 5


def list_seed_warnings(seed: Seed) -> Iterator[str]:
    """Yield a line for each way to take over user names of a realm, and one line for all short client secrets."""
    for name, realm in seed.realms.items():
        for risk in list_identity_risks(realm.username_claim, trust_email=realm.trust_email):
            yield f"realm {name}: {risk}"
    short = [client.client_id for client in seed.clients if is_short_secret(client.client_secret)]
    if short:
        others = f" and {len(short) - _MAX_NAMED} more" if len(short) > _MAX_NAMED else ""
        names = ", ".join(short[:_MAX_NAMED]) + others
        yield f"client secrets of fewer than {MIN_SECRET_CHARACTERS} characters can be guessed: {names}"
