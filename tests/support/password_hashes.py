"""Records the cost of each argon2 hash of this process. Hashes of one cost take equally long."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from argon2 import Parameters, Type, extract_parameters, low_level

from service.crypto.password_hashing import MEMORY_KIB, PASSES

FULL_COST = Parameters(
    type=Type.ID, version=19, salt_len=16, hash_len=32, time_cost=PASSES, memory_cost=MEMORY_KIB, parallelism=1
)
"""The cost of a hash of the service, in a test that has `real_hashes`."""


@contextmanager
def recording_hashes() -> Iterator[list[Parameters]]:
    """Record the cost of each hash that is made or checked in the block, in order."""
    costs: list[Parameters] = []
    make, check = low_level.hash_secret, low_level.verify_secret

    def make_recorded(*arguments: object, **named: object) -> bytes:
        made: bytes = make(*arguments, **named)  # type: ignore[arg-type]
        costs.append(extract_parameters(made.decode()))
        return made

    def check_recorded(hash: bytes, secret: bytes, type: Type) -> bool:
        costs.append(extract_parameters(hash.decode()))
        return check(hash, secret, type)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_level, "hash_secret", make_recorded)
        patch.setattr(low_level, "verify_secret", check_recorded)
        yield costs
