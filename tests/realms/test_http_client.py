"""The HTTP client for providers: certificates are checked, and live connections are kept."""

import asyncio
import datetime
import ipaddress
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from service.protocol.provider_responses import InvalidProviderResponse
from service.realms.provider.http_client import MAX_ANSWER_BYTES, READ_BYTES, HttpClient

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"


@pytest.fixture
async def http_client() -> AsyncIterator[HttpClient]:
    http_client = HttpClient()
    yield http_client
    await http_client.close()


class Connections:
    """A server that answers every request on a connection alike, and counts the connections."""

    def __init__(self, answer: bytes = OK, *, hangs_up: bool = False) -> None:
        self.answer = answer
        self.hangs_up = hangs_up
        self.accepted = 0
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(self.answer)
                await writer.drain()
                if self.hangs_up:
                    break
        except (asyncio.IncompleteReadError, OSError):
            pass
        writer.close()
        self.ended.set()


@asynccontextmanager
async def serving_connections(connections: Connections, context: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    server = await asyncio.start_server(connections.serve, "127.0.0.1", ssl=context)
    async with server:
        yield server.sockets[0].getsockname()[1]


class CertifiedServer(NamedTuple):
    """The TLS context of a server, and the file of the authority that signed its certificate."""

    context: ssl.SSLContext
    authority: Path


def make_certified_server(folder: Path, name: str) -> CertifiedServer:
    """Make a self-signed certificate for one host name or address."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "test")])
    try:
        alternative: x509.GeneralName = x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        alternative = x509.DNSName(name)
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([alternative]), critical=False)
        .sign(key, hashes.SHA256())
    )
    authority, both = folder / "authority.pem", folder / "both.pem"
    authority.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    both.write_bytes(private + authority.read_bytes())
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(both)
    return CertifiedServer(context, authority)


@pytest.mark.clause("decided-external-answer-checked")
async def test_server_without_trusted_certificate_is_refused(http_client: HttpClient, tmp_path: Path) -> None:
    connections = Connections()
    async with serving_connections(connections, make_certified_server(tmp_path, "localhost").context) as port:
        with pytest.raises(InvalidProviderResponse, match="certificate verify failed"):
            await http_client.get(f"https://localhost:{port}/", {})


async def test_an_authority_of_ones_own_is_named_by_the_environment(
    http_client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    certified = make_certified_server(tmp_path, "localhost")
    monkeypatch.setenv("SSL_CERT_FILE", str(certified.authority))
    async with serving_connections(Connections(), certified.context) as port:
        assert (await http_client.get(f"https://localhost:{port}/", {})).status == 200


async def test_a_certificate_for_another_name_is_refused(
    http_client: HttpClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The certificate must match the name in the URL, although the client resolves names itself."""
    certified = make_certified_server(tmp_path, "login.example")
    monkeypatch.setenv("SSL_CERT_FILE", str(certified.authority))
    async with serving_connections(Connections(), certified.context) as port:
        with pytest.raises(InvalidProviderResponse, match="Hostname mismatch"):
            await http_client.get(f"https://localhost:{port}/", {})


async def test_a_connection_is_used_again(http_client: HttpClient) -> None:
    connections = Connections()
    async with serving_connections(connections) as port:
        for _ in range(3):
            await http_client.get(f"http://127.0.0.1:{port}/", {})

    assert connections.accepted == 1


async def test_every_answer_of_a_connection_has_the_same_limit(http_client: HttpClient) -> None:
    body = b"x" * (MAX_ANSWER_BYTES // 2)
    connections = Connections(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    async with serving_connections(connections) as port:
        for _ in range(3):
            assert (await http_client.get(f"http://127.0.0.1:{port}/", {})).body == body

    assert connections.accepted == 1


async def test_connection_ended_by_provider_fails_no_login(http_client: HttpClient) -> None:
    connections = Connections(hangs_up=True)
    async with serving_connections(connections) as port:
        for number in range(1, 6):
            connections.ended.clear()
            assert (await http_client.post(f"http://127.0.0.1:{port}/", {}, b"")).status == 200
            await connections.ended.wait()
            await asyncio.sleep(0)  # the event loop handles the end of the connection

            assert connections.accepted == number


@pytest.mark.clause("decided-external-answer-checked")
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"Content-Length: 1000000\r\n\r\n", id="announced"),
        pytest.param(b"Transfer-Encoding: chunked\r\n\r\n" + b"10000\r\n" + b"x" * 65536 + b"\r\n", id="in pieces"),
        pytest.param(b"\r\n", id="until the end"),
        pytest.param(b"X: " + b"x" * 300_000 + b"\r\n\r\n", id="in its head"),
    ],
)
async def test_response_is_read_up_to_its_limit(http_client: HttpClient, head: bytes) -> None:
    piece = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    async with serving_connections(Connections(b"HTTP/1.1 200 OK\r\n" + head + 20 * piece, hangs_up=True)) as port:
        with pytest.raises(InvalidProviderResponse, match=r"longer than 256 KiB|RemoteProtocolError"):
            await http_client.get(f"http://127.0.0.1:{port}/", {})


CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
SHREDS = {
    "chunks of one byte": CHUNKED + b"1\r\n \r\n" * 250_000 + b"0\r\n\r\n",
    "chunks with long extensions": CHUNKED + (b"1;" + b"x" * 60_000 + b"\r\n \r\n") * 25 + b"0\r\n\r\n",
    "heads without end": b"HTTP/1.1 100 Continue\r\n\r\n" * 60_000 + OK,
}


@pytest.mark.clause("decided-external-answer-checked", "decided-external-isolated")
@pytest.mark.parametrize("answer", SHREDS.values(), ids=SHREDS)
async def test_fragmented_answer_delays_no_other_call(http_client: HttpClient, answer: bytes) -> None:
    """Parsing costs far more than reading: 250,000 bytes, sent one by one, took two seconds."""
    turns = 0

    async def work() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async with serving_connections(Connections(answer)) as port:
        elsewhere = asyncio.create_task(work())
        with pytest.raises(InvalidProviderResponse, match="longer than 256 KiB"):
            await http_client.get(f"http://127.0.0.1:{port}/", {})
        elsewhere.cancel()

    assert turns >= MAX_ANSWER_BYTES // READ_BYTES


async def test_every_address_of_a_name_is_tried(http_client: HttpClient, monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]
    async with serving_connections(Connections()) as port:
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)
        assert (await http_client.get(f"http://login.example:{port}/", {})).status == 200


@pytest.mark.clause("decided-external-realm-down")
async def test_host_that_is_an_address_text_is_refused(http_client: HttpClient) -> None:
    """Metadata of a provider may contain any text as a host."""
    with pytest.raises(InvalidProviderResponse, match=r"it cannot be reached.* at https://a\.\.example/$"):
        await http_client.get("https://a..example/?of=the-log", {})
