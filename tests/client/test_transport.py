"""Certificates a client shows."""

import socket
import ssl
import threading
from pathlib import Path

import pytest

from ams.client import Client, transport, wire
from ams.client.errors import ClientError, Unreachable, Unusable
from ams.http.tls import self_signed
from tests.client.faces import open_client
from tests.support.certificates import Authority


def test_a_certificate_is_shown_to_a_service_that_asks(face: str, tmp_path: Path) -> None:
    ca, chain, key = self_signed(str(tmp_path))
    authority = Authority.make(tmp_path)
    mine = authority.signs("sensor.example")
    cert = tmp_path / "client.pem"
    cert.write_bytes(mine.pem + mine.key_pem)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(chain, key)
    context.load_verify_locations(authority.pair.chain)
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
        thread.join()

    [subject] = [each["subject"] for each in shown if isinstance(each, dict)]
    assert subject == ((("commonName", "sensor.example"),),)


@pytest.mark.parametrize("option", ["ca", "cert"])
@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, option: str, content: str | None) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_text(content)

    with pytest.raises(ClientError, match=str(file)):
        Client("https://127.0.0.1:1", **{option: str(file)})  # type: ignore[arg-type]  # one of two options


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
