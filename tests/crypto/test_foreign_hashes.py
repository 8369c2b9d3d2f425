"""Hashes that users bring from other systems: forms, cost, and the check of a password."""

import subprocess
import sys

import pytest
from argon2 import PasswordHasher
from passlib.hash import bcrypt, django_pbkdf2_sha256

from service.crypto.hash_kinds import find_hash_mistake
from service.crypto.password_hashing import is_secret_hash, verify_password
from tests.support.foreign_hashes import FOREIGN_HASHES, ForeignHash
from tests.support.password_hashes import recording_hashes
from tests.support.servers import CHECKOUT
from tests.support.weak_hashes import BCRYPT_HASH

pytestmark = pytest.mark.clause("decided-foreign-hashes")

PBKDF2_SHA256 = "$pbkdf2-sha256$27500$DWobczblgCRZMULJ2hVCSQ$" + "A" * 43
SCRYPT = FOREIGN_HASHES["scrypt"].text


@pytest.mark.parametrize("foreign", FOREIGN_HASHES.values(), ids=FOREIGN_HASHES.keys())
def test_hash_of_another_system_is_checked_and_replaced(foreign: ForeignHash) -> None:
    right, new_hash = verify_password(foreign.password, foreign.text)

    assert (right, find_hash_mistake(foreign.text), is_secret_hash(foreign.text)) == (True, None, False)
    assert (new_hash or "").startswith("$argon2id$")
    assert verify_password(foreign.password, new_hash or "") == (True, None)
    for wrong in (f"{foreign.password} ", "", "\x00", "\ud800", "x" * 1024, "x" * 1025):
        assert verify_password(wrong, foreign.text) == (False, None)


def test_bcrypt_reads_72_bytes_and_argon2id_all() -> None:
    typed = 24 * "€" + " and more"  # three bytes each
    old_hash = bcrypt.using(rounds=4).hash(24 * "€")

    right, new_hash = verify_password(typed, old_hash)
    assert right
    assert verify_password(typed, new_hash or "") == (True, None)
    assert verify_password(24 * "€", new_hash or "") == (False, None)
    assert verify_password("é" + 24 * "€", bcrypt.using(rounds=4).hash(("é" + 24 * "€").encode()[:72]))[0]


def test_foreign_hash_fits_the_password_as_typed() -> None:
    """The new hash is one of the form NFC, which each keyboard's form is brought to."""
    old_hash = django_pbkdf2_sha256.using(rounds=1).hash("cafe\u0301")
    right, new_hash = verify_password("cafe\u0301", old_hash)

    assert right
    assert verify_password("caf\u00e9", new_hash or "") == (True, None)
    assert verify_password("caf\u00e9", old_hash) == (False, None)


@pytest.mark.usefixtures("real_hashes")
@pytest.mark.parametrize(
    ("kib", "passes", "lanes", "checks"),
    [(19 * 1024, 2, 1, 2), (19 * 1024, 2, 4, 2), (19 * 1024, 3, 1, 1), (19 * 1024 + 8, 1, 1, 1)],
)
def test_dear_hash_is_checked_once_whatever_is_typed(kib: int, passes: int, lanes: int, checks: int) -> None:
    """A cheap argon2id hash may be the service's, of the form NFC, or one of another program."""
    password_hash = PasswordHasher(passes, kib, lanes).hash("caf\u00e9")
    with recording_hashes() as costs:
        right, _ = verify_password("cafe\u0301", password_hash)

    assert (right, len(costs)) == (checks == 2, checks)


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("pbkdf2_sha256$1700000$abcdefgh$" + "A" * 43 + "=", None),
        ("pbkdf2_sha256$1700001$abcdefgh$" + "A" * 43 + "=", "costs 21 times"),
        (f"$pbkdf2-sha512$760001$DWobczblgCRZMULJ2hVCSQ${'A' * 86}", "costs 21 times"),
        (f"$2b$12${'.' * 53}", None),
        (f"$2b$13${'.' * 53}", "costs 23 times"),
        (f"bcrypt_sha256$$2b$31${'.' * 53}", "costs 5804010 times"),
        (SCRYPT.replace("ln=14", "ln=17"), None),
        (SCRYPT.replace("ln=14", "ln=18"), "costs 257 MiB"),
        (SCRYPT.replace("ln=14,r=8,p=1", "ln=1,r=64,p=8191"), "costs 55 times"),
        (SCRYPT.replace("ln=14,r=8,p=1", "ln=1,r=2,p=2000000"), "costs 489 MiB"),
        (SCRYPT.replace("ln=14,r=8,p=1", "ln=29,r=999999,p=1"), "costs 65535934587 MiB"),
    ],
)
def test_cost_of_a_foreign_hash_is_bounded(text: str, mistake: str | None) -> None:
    found = find_hash_mistake(text)

    assert (found and found.partition(" as much")[0].partition(";")[0]) == mistake


@pytest.mark.parametrize(
    "text",
    [
        *(foreign.text[:-1] for foreign in FOREIGN_HASHES.values()),
        *(f"{foreign.text}\n" for foreign in FOREIGN_HASHES.values()),
        BCRYPT_HASH.replace("$04$", "$03$"),
        f"$2b$04${'.' * 52}/",
        f"$2b$04${'.' * 21}/{'.' * 31}",
        f"bcrypt${BCRYPT_HASH}",
        PBKDF2_SHA256.replace("27500", "027500"),
        PBKDF2_SHA256[:-1] + "B",
        PBKDF2_SHA256.replace("DWob", "DW+b"),
        SCRYPT.replace("r=8", "r=1"),
        PBKDF2_SHA256.replace("DWobczblgCRZMULJ2hVCSQ", 1368 * "A"),
        SCRYPT.replace("U29kaXVtQ2hsb3JpZGU", 1368 * "A"),
    ],
)
def test_foreign_hash_of_another_form_is_refused(text: str) -> None:
    """Each of the last characters has unused bits, and passlib would read several spellings of one hash."""
    assert "expected a hash of argon2, bcrypt" in (find_hash_mistake(text) or "")
    assert verify_password("a password", text) == (False, None)


@pytest.mark.parametrize(
    ("text", "head"),
    [
        ("md5$salt$5f4dcc3b5aa765d61d8327deb882cf99", "begins with md5$, "),
        ("scrypt$16384$salt$8$5$AAAA", "begins with scrypt$, "),
        ("argon2$argon2id$v=19$m=102400,t=2,p=8$AAAA", "begins with argon2$, "),
        ("$wp$2y$10$AAAA", "begins with $wp$, "),
        ("$fbscrypt$v=1,n=14,r=8,p=1,ss=Bw==$AAAA", "begins with $fbscrypt$, "),
        ("$2b$10$tooshort", "begins with $2b$, "),
        ("{SSHA}AAAA", "begins with {SSHA}, "),
        ("correct$horse$battery$staple", ""),
        ("5f4dcc3b5aa765d61d8327deb882cf99", ""),
    ],
)
def test_refusal_names_the_kind_of_hash_but_no_password(text: str, head: str) -> None:
    assert (find_hash_mistake(text) or "").partition("which is not")[0].partition("expected")[0] == head


FIRST_USE = f"""
import concurrent.futures, threading, passlib.handlers.bcrypt, service.crypto.password_hashing

passlib.handlers.bcrypt._NoBackend._calc_checksum = None  # what loads bcrypt, or raises AssertionError if it is loaded
start = threading.Barrier(20)

def check(_):
    start.wait()
    return service.crypto.password_hashing.verify_password("a password", {BCRYPT_HASH!r})[0]

with concurrent.futures.ThreadPoolExecutor(20) as pool:
    assert all(pool.map(check, range(20)))
"""


def test_first_checks_of_bcrypt_may_run_together() -> None:
    """passlib loads bcrypt at its first check, which fails if another thread has just loaded it."""
    subprocess.run([sys.executable, "-c", FIRST_USE], cwd=CHECKOUT, check=True)
