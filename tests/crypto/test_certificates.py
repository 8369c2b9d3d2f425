"""The warning of certificates that expire soon."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from service.crypto.certificates import find_expiry
from tests.support.certificates import build_certificate

DAY = 24


@pytest.mark.parametrize(
    ("hours", "has_expired", "says"),
    [
        (-1, True, "the certificate expired on "),
        (13 * DAY, False, "the certificate expires on "),
        (15 * DAY, False, ""),
    ],
)
def test_a_certificate_is_named_for_two_weeks(hours: int, has_expired: bool, says: str) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    certificate = build_certificate(name, name, key.public_key(), hours).sign(key, hashes.SHA256())

    expiry = find_expiry(certificate)

    assert (expiry is not None) == bool(says)
    if expiry is not None:
        assert expiry[0] == has_expired
        assert expiry[1].startswith(says)
