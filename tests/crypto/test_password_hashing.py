"""Passwords and secrets: slow hashes, bounded pools, and a cache that cannot be read back."""

import subprocess
import sys
from collections.abc import Callable

import pytest

from service.crypto.hash_kinds import find_hash_mistake
from service.crypto.keyring import hash_generated_secret
from service.crypto.password_hashing import hash_password, is_secret_hash, verify_dummy_password, verify_password
from service.web.request.client_authentication import VerifiedSecretCache
from tests.support.password_hashes import FULL_COST, recording_hashes
from tests.support.servers import CHECKOUT
from tests.support.weak_hashes import SALT, WEAK_HASH, WEAKER_HASH

STRONGER_HASH = f"$argon2id$v=19$m=65536,t=3,p=4${SALT}$whnqauyvEg0eBPjktY0aFVKd1cjkXw9ckwI3pKcpyx8"


pytestmark = pytest.mark.usefixtures("real_hashes")


def costing(memory_kib: int, passes: int, lanes: int) -> str:
    """Return a well-formed hash with these parameters."""
    return WEAKER_HASH.replace("m=8192,t=1,p=1", f"m={memory_kib},t={passes},p={lanes}")


@pytest.mark.clause(
    "6749-10.10-user-credentials-protected", "6819-5.1.4.1.3-no-clear-text", "6819-4.4.3.5-passwords-from-redis"
)
def test_a_password_is_hashed_with_argon2id_and_a_salt() -> None:
    one, other = hash_password("a password é"), hash_password("a password é")

    assert one.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert one != other
    assert verify_password("a password é", one) == (True, None)
    assert verify_password("a password e", one) == (False, None)


@pytest.mark.parametrize(
    "password", ["", "\x00", "x" * 1025, "x" * 5000, "\ud800"], ids=["none", "zero", "1", "2", "half"]
)
def test_password_check_never_raises_for_any_text(password: str) -> None:
    assert verify_password(password, hash_password("a password")) == (False, None)


@pytest.mark.clause("decided-unknown-user-costs-the-same")
def test_refusals_cost_the_same_work_as_a_check() -> None:
    password_hash = hash_password("a password")
    checks: list[Callable[[], object]] = [
        lambda: verify_password("a password", password_hash),
        lambda: verify_password("a wrong one", password_hash),
        lambda: verify_password("x" * 2000, password_hash),
        verify_dummy_password,
    ]
    # The first call also makes the hash that it checks, as the service does at its start.
    verify_dummy_password()
    for number, check in enumerate(checks):
        with recording_hashes() as costs:
            check()

        assert costs == [FULL_COST], number


@pytest.mark.clause("6819-5.1.4.1.3-no-clear-text")
@pytest.mark.parametrize(
    ("text", "of_password", "of_secret"),
    [
        pytest.param(hash_password("x"), True, True, id="argon2id"),
        pytest.param(hash_generated_secret("x"), False, True, id="the digest of a made secret"),
        pytest.param("sha256:" + "a" * 42, False, False, id="a digest that is too short"),
        pytest.param("$argon2id$nonsense", False, False, id="half a hash"),
        pytest.param(WEAK_HASH[:-1], False, False, id="a hash that lost its last character"),
        pytest.param(WEAK_HASH.rpartition("$")[0], False, False, id="a hash that lost its digest"),
        pytest.param(WEAK_HASH + "\n", False, False, id="a line end behind"),
        pytest.param(costing(65_536, 11, 16), True, True, id="as costly as may be"),
        pytest.param(costing(65_536, 12, 1), False, False, id="too much work"),
        pytest.param(costing(262_144, 1, 1), True, True, id="as much memory as may be"),
        pytest.param(costing(262_145, 1, 1), False, False, id="too much memory"),
        pytest.param(costing(4_294_967_295, 1, 1), False, False, id="all the memory there is"),
        pytest.param(costing(8_192, 17, 1), False, False, id="too many passes"),
        pytest.param(costing(8_192, 1, 17), False, False, id="too many lanes"),
        pytest.param(costing(8_192, 0, 1), False, False, id="no pass"),
        pytest.param(costing(8_192, 1, 0), False, False, id="no lane"),
        pytest.param(costing(0, 1, 1), False, False, id="no memory"),
        pytest.param(costing(127, 1, 16), False, False, id="too little memory for its lanes"),
        pytest.param(costing(8_192, 1, 1).replace(SALT, "c29tZXNh"), False, False, id="a salt that is too short"),
        pytest.param(f"$2b$12${'.' * 53}", True, False, id="bcrypt"),
        pytest.param("{SSHA}" + "a" * 40, False, False, id="another scheme"),
        pytest.param("secret", False, False, id="no hash"),
        pytest.param("", False, False, id="nothing"),
    ],
)
def test_a_hash_is_known_by_its_form(text: str, of_password: bool, of_secret: bool) -> None:
    assert (find_hash_mistake(text) is None, is_secret_hash(text)) == (of_password, of_secret)


@pytest.mark.clause("6819-5.1.4.1.3-no-clear-text")
@pytest.mark.parametrize(
    ("imported", "is_replaced"),
    [
        pytest.param(WEAKER_HASH, True, id="weaker: less memory and one pass"),
        pytest.param(STRONGER_HASH, False, id="stronger: more memory, passes and lanes"),
    ],
)
def test_only_weaker_imported_hashes_are_replaced(imported: str, is_replaced: bool) -> None:
    right, new_hash = verify_password("a password", imported)

    assert right
    assert (new_hash is not None) is is_replaced
    assert verify_password("a password ", imported) == (False, None)
    assert find_hash_mistake(imported) is None
    assert new_hash is None or new_hash.startswith("$argon2id$v=19$m=19456,t=2,p=1$")


HASH_A_LOT = """
import asyncio, pathlib, service.crypto.hashing_pool, service.crypto.password_hashing, tests.support.waiting

def read_kib():
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("VmRSS")))

async def hash_a_lot():
    service.crypto.hashing_pool.TRIM_SECONDS = 0.1
    trimming = asyncio.create_task(service.crypto.hashing_pool.keep_heap_trimmed())
    pool, before = service.crypto.hashing_pool.HashingPool("test", threads=4), read_kib()
    for _ in range(3):
        await asyncio.gather(*(pool.run(service.crypto.password_hashing.verify_dummy_password) for _ in range(8)))
    await tests.support.waiting.until(lambda: read_kib() - before <= service.crypto.password_hashing.MEMORY_KIB / 2)

asyncio.run(hash_a_lot())
"""


def test_memory_of_hashes_is_returned_after_logins() -> None:
    """The hashes run in a process of their own, whose threads have had no memory before."""
    subprocess.run([sys.executable, "-c", HASH_A_LOT], cwd=CHECKOUT, check=True)


@pytest.mark.clause("6819-5.2.3.6-secret-revoked")
def test_a_secret_is_remembered_for_its_hash_only() -> None:
    memory = VerifiedSecretCache()
    memory.remember("secret", "hash of today")

    memory.remember("old secret", "hash of yesterday")
    assert memory.contains("old secret", "hash of yesterday")
    assert memory.contains("secret", "hash of today")
    assert not memory.contains("Secret", "hash of today")
    assert not memory.contains("secret", "hash of tomorrow")
    for number in range(10_001):
        memory.remember("secret", f"hash {number}")
    assert not memory.contains("secret", "hash of today")
    assert memory.contains("secret", "hash 10000")


HASH_IN_PAIRS = """
import asyncio, resource, service.crypto.hashing_pool, service.crypto.password_hashing

async def hash_in_pairs():
    pool = service.crypto.hashing_pool.HashingPool("test", threads=2)
    for _ in range(4):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        await asyncio.gather(*(pool.run(service.crypto.password_hashing.verify_dummy_password) for _ in range(2)))
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    print(faults * resource.getpagesize() / 1024 / service.crypto.password_hashing.MEMORY_KIB)
    pool.close()

asyncio.run(hash_in_pairs())
"""


def test_hashes_that_end_together_leave_their_memory_to_the_next() -> None:
    """glibc returned the memory of both, and each later hash spent half of its time on page faults."""
    printed = subprocess.run(
        [sys.executable, "-c", HASH_IN_PAIRS], cwd=CHECKOUT, capture_output=True, text=True, check=True
    )

    assert float(printed.stdout) < 0.5
