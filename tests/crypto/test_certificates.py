"""The warning of certificates that expire soon."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from service.crypto.certificates import find_expiry
from tests.support.certificates import build_certificate

DAY = 24


@pytest.mark.parametrize(
    ("hours", "says"),
    [(-1, "the certificate expired on "), (13 * DAY, "the certificate expires on "), (15 * DAY, "")],
)
def test_a_certificate_is_named_for_two_weeks(hours: int, says: str) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    certificate = build_certificate(name, name, key.public_key(), hours).sign(key, hashes.SHA256())

    expiry = find_expiry(certificate) or ""

    assert (expiry.startswith(says), bool(expiry)) == (True, bool(says))
