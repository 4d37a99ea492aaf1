"""Certificates a client shows."""

import datetime
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from ams.client import Client, transport, wire
from ams.client.errors import ClientError, Unreachable, Unusable
from ams.http.tls import self_signed
from tests.client.faces import open_client


def client_certificate(folder: Path) -> Path:
    """Make a certificate that signs itself, with its key, in one file."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "sensor.example")])
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    dated = builder.serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
    certificate = dated.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "client.pem").write_bytes(certificate + private)
    return folder / "client.pem"


def test_a_certificate_is_shown_to_a_service_that_asks(face: str, tmp_path: Path) -> None:
    ca, chain, key = self_signed(str(tmp_path))
    cert = client_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    context.load_verify_locations(cert)
    context.verify_mode = ssl.CERT_REQUIRED
    shown: list[object] = []

    def accept(listening: socket.socket) -> None:
        with listening.accept()[0] as plain, context.wrap_socket(plain, server_side=True) as secure:
            shown.append(secure.getpeercert())

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=accept, args=(listening,))
        thread.start()
        endpoint = f"https://localhost:{listening.getsockname()[1]}"
        with open_client(face, endpoint, ca=ca, cert=str(cert), retry=None) as client, pytest.raises(Unreachable):
            client.call(wire.get_status())
        thread.join(10)

    [subject] = [each["subject"] for each in shown if isinstance(each, dict)]
    assert subject == ((("commonName", "sensor.example"),),)


@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, content: str | None) -> None:
    cert = tmp_path / "cert.pem"
    if content is not None:
        cert.write_text(content)

    with pytest.raises(ClientError, match=str(cert)):
        Client("https://127.0.0.1:1", cert=str(cert))


def test_authorities_may_be_given_as_their_text(tmp_path: Path) -> None:
    ca, _, _ = self_signed(str(tmp_path))

    by_file, by_text = (
        transport.trust("https://ams.example", given, None, None) for given in (ca, Path(ca).read_text())
    )

    assert by_file is not None
    assert by_text is not None
    assert by_file.get_ca_certs() == by_text.get_ca_certs() != []
    with pytest.raises(Unusable, match="^CA certificates: "):
        transport.trust("https://ams.example", "-----BEGIN CERTIFICATE-----\nno\n", None, None)
