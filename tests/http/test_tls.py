import os
import shutil
import socket
import ssl
import threading
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from ams.core.errors import Unusable
from ams.http.tls import Certificate, self_signed


def served_certificate(certificate: Certificate, ca: str, host: str) -> bytes:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def answer() -> None:
            connection, _ = listener.accept()
            with connection, certificate.context.wrap_socket(connection, server_side=True) as secure:
                secure.recv(1)

        thread = threading.Thread(target=answer)
        thread.start()
        client = ssl.create_default_context(cafile=ca)
        with (socket.create_connection(listener.getsockname()) as plain,
              client.wrap_socket(plain, server_hostname=host) as secure):  # fmt: skip
            shown = secure.getpeercert(binary_form=True)
            secure.sendall(b"x")
        thread.join()
    assert shown is not None
    return shown


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1", "::1", socket.gethostname()])
def test_the_local_certificate_is_good_for_every_local_name(tmp_path: Path, host: str) -> None:
    ca, chain, key = self_signed(str(tmp_path))
    assert served_certificate(Certificate.load(chain, key), ca, host)


def test_keys_are_for_the_owner_only_and_made_once(tmp_path: Path) -> None:
    ca, _, key = self_signed(str(tmp_path))
    first = Path(ca).read_bytes()

    assert self_signed(str(tmp_path))[0] == ca
    assert Path(ca).read_bytes() == first
    assert os.stat(key).st_mode & 0o777 == 0o600
    assert sorted(os.listdir(tmp_path)) == ["ca.pem", "server.key", "server.pem"]


def test_the_local_certificate_is_cheap_to_check_and_clients_get_no_tickets(tmp_path: Path) -> None:
    _, chain, key = self_signed(str(tmp_path))
    private = load_pem_private_key(Path(key).read_bytes(), None)

    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert private.curve.name == "secp256r1"
    assert Path(chain).read_bytes().count(b"BEGIN") == 1, "who trusts the CA has it"
    assert Certificate.load(chain, key).context.num_tickets == 0


def test_a_changed_certificate_is_served_to_new_connections_and_a_bad_change_is_not_taken(tmp_path: Path) -> None:
    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    ca, chain, key = self_signed(str(tmp_path / "old"))
    new_ca, new_chain, new_key = self_signed(str(tmp_path / "new"))
    with pytest.raises(Unusable):
        Certificate.load(str(tmp_path / "none.pem"), str(tmp_path / "none.key"))
    certificate = Certificate.load(chain, key)
    old = served_certificate(certificate, ca, "localhost")

    Path(chain).write_text("no certificate")
    certificate.reload(always=True)
    assert served_certificate(certificate, ca, "localhost") == old

    shutil.copy(new_chain, chain)
    shutil.copy(new_key, key)
    certificate.reload(always=True)
    assert served_certificate(certificate, new_ca, "localhost") != old


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
