"""The expiry of TLS certificates, of which the start and `doctor` warn in time."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from cryptography import x509

WARN_BEFORE: Final = timedelta(days=14)
CONNECT_SECONDS: Final = 5.0


def find_expiry(certificate: x509.Certificate) -> tuple[bool, str] | None:
    """Return True if the certificate has expired, and a sentence with the time. Returns None until two weeks before."""
    end, now = certificate.not_valid_after_utc, datetime.now(UTC)
    if end > now + WARN_BEFORE:
        return None
    verb = "expires" if end > now else "expired"
    return end <= now, f"the certificate {verb} on {end:%Y-%m-%d at %H:%M} UTC: renew it"


def find_expiry_in_file(file: str) -> tuple[bool, str] | None:
    """Return what `find_expiry` returns for the first certificate in a PEM file, which is the server's own."""
    try:
        return find_expiry(x509.load_pem_x509_certificate(Path(file).read_bytes()))
    except ValueError:  # OpenSSL accepts forms that this library does not
        return None


async def fetch_certificate(host: str, port: int) -> x509.Certificate:
    """Return the certificate of a server, also one that is not valid. Raises OSError."""
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with asyncio.timeout(CONNECT_SECONDS):
        _, writer = await asyncio.open_connection(host, port, ssl=context, server_hostname=host)
    try:
        return x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    finally:
        writer.transport.abort()
