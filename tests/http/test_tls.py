import contextlib
import os
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from ams.core.errors import Unusable
from ams.http.tls import Certificate, self_signed


def served_certificate(certificate: Certificate, ca: str, host: str) -> bytes:
    """Do a real handshake and return what the server showed."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, certificate.context.wrap_socket(connection, server_side=True) as secure:
                secure.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        client = ssl.create_default_context(cafile=ca)
        with (
            socket.create_connection(listener.getsockname()) as plain,
            client.wrap_socket(plain, server_hostname=host) as secure,
        ):
            shown = secure.getpeercert(binary_form=True)
            secure.sendall(b"x")
        thread.join()
    assert shown is not None
    return shown


def test_no_tickets_are_made_for_clients_that_will_not_use_them(tmp_path: Path) -> None:
    ca, chain, key = self_signed(str(tmp_path))
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = Certificate.load(chain, key).context.wrap_bio(to_server, to_client, server_side=True)
    client = ssl.create_default_context(cafile=ca).wrap_bio(to_client, to_server, server_hostname="localhost")
    for side in (client, server, client, server):
        with contextlib.suppress(ssl.SSLWantReadError):
            side.do_handshake()

    server.write(b"x")  # a ticket would come before it

    assert client.read(1) == b"x"
    assert client.version() == "TLSv1.3"
    assert client.session is not None
    assert not client.session.has_ticket


def test_the_local_certificate_is_cheap_to_show_and_to_check(tmp_path: Path) -> None:
    _, chain, key = self_signed(str(tmp_path))
    [shown] = x509.load_pem_x509_certificates(Path(chain).read_bytes())  # not the CA: who trusts it has it
    private = serialization.load_pem_private_key(Path(key).read_bytes(), None)

    assert isinstance(shown.public_key(), ec.EllipticCurvePublicKey)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp256r1"


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", socket.gethostname()])
def test_the_local_certificate_is_good_for_every_local_name(tmp_path: Path, host: str) -> None:
    ca, chain, key = self_signed(str(tmp_path))

    assert served_certificate(Certificate.load(chain, key), ca, host)


def test_keys_are_for_the_owner_only_and_made_once(tmp_path: Path) -> None:
    ca, _, key = self_signed(str(tmp_path))
    first = Path(ca).read_bytes()

    self_signed(str(tmp_path))

    assert os.stat(key).st_mode & 0o777 == 0o600
    assert Path(ca).read_bytes() == first
    assert sorted(os.listdir(tmp_path)) == ["ca.pem", "server.key", "server.pem"]


def test_a_changed_certificate_is_served_to_new_connections_and_a_bad_change_is_not_taken(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    ca, chain, key = self_signed(str(tmp_path / "old"))
    new_ca, new_chain, new_key = self_signed(str(tmp_path / "new"))
    certificate = Certificate.load(chain, key)
    old = served_certificate(certificate, ca, "localhost")

    Path(chain).write_text("no certificate")
    certificate.reload(always=True)
    assert served_certificate(certificate, ca, "localhost") == old

    shutil.copy(new_chain, chain)
    shutil.copy(new_key, key)
    certificate.reload(always=True)
    assert served_certificate(certificate, new_ca, "localhost") != old


def test_a_missing_or_bad_certificate_stops_the_start_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(Unusable) as stopped:
        Certificate.load(str(tmp_path / "none.pem"), str(tmp_path / "none.key"))

    assert "\n" not in stopped.value.message


@pytest.mark.parametrize("name", ["ca.pem", "server.pem", "server.key", "another CA"])
def test_what_a_crash_tore_or_another_ca_signed_is_made_again(tmp_path: Path, name: str) -> None:
    self_signed(str(tmp_path))
    if name == "another CA":
        (tmp_path / "other").mkdir()
        shutil.copy(self_signed(str(tmp_path / "other"))[0], tmp_path / "ca.pem")
    else:
        (tmp_path / name).write_bytes(b"")

    ca, chain, key = self_signed(str(tmp_path))

    assert served_certificate(Certificate.load(chain, key), ca, "localhost")
