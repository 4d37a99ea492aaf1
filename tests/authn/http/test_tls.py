"""Handshakes that ask for a certificate: what reaches HTTP, what does not, and what each costs."""

import socket
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat

from ams.authn.http import tls
from ams.authn.http.tls import AskingContext
from ams.core.errors import BadSettings
from ams.http.tls import Certificate
from tests.authn.http.front import Served, answered
from tests.support import authorities
from tests.support.authorities import DAY, NOW
from tests.support.certificates import Authority, Pair
from tests.support.waiting import wait_until

ODD = authorities.Authority.make("odd")


def odd(folder: Path, *, days: int = 1, extension: int = 0, subject: str = "odd") -> Pair:
    """Make a certificate of an unknown CA, that ends in so many days, with a large extension."""
    value = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x" * extension)
    made = ODD.signs(
        [("CN", subject)] if subject else [],
        not_after=NOW + days * DAY,
        extensions=[(value, False)] if extension else [],
    )
    return Pair.write(made, folder, f"odd{days}-{extension}-{len(subject)}")


def test_a_client_without_a_certificate_reaches_http(front: Served) -> None:
    said = front.ask()
    assert (said["address"], said["subject"], said["unreadable"]) == ("127.0.0.1", None, "")


def test_a_certificate_arrives_as_it_was_shown(front: Served, jane: Pair) -> None:
    assert front.ask(cert=jane)["subject"] == "CN=Jane,C=GR"


@pytest.mark.parametrize("made", [{}, {"days": -1}, {"subject": ""}, {"extension": 100_000}])
def test_certificates_not_to_be_believed_reach_http_too(front: Served, folder: Path, made: dict[str, int]) -> None:
    shown = odd(folder, **made)  # type: ignore[arg-type]
    assert front.ask(cert=shown)["leaf"] is not None


def test_certificates_that_are_large_take_no_memory(front: Served, folder: Path, jane: Pair) -> None:
    before = tls._known.cache_info()
    for _ in range(2):
        front.ask(cert=odd(folder, extension=50_000))
    assert tls._known.cache_info() == before
    front.ask(cert=jane)
    assert tls._known.cache_info() != before


def test_a_certificate_over_the_limit_of_tls_costs_one_failed_handshake(front: Served, folder: Path) -> None:
    before = front.listener.failed_handshakes

    with pytest.raises((OSError, ValueError)):
        front.ask(cert=odd(folder, extension=110_000))
    wait_until(lambda: front.listener.failed_handshakes == before + 1)
    assert front.ask()["subject"] is None


@pytest.mark.parametrize("said", [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00\x05hello", bytes(100)])
def test_what_is_no_tls_is_counted_and_closed(front: Served, said: bytes) -> None:
    before = front.listener.failed_handshakes
    with socket.create_connection(("127.0.0.1", front.port), timeout=5) as client:
        client.sendall(said)
        try:
            while client.recv(1000):
                pass
        except ConnectionError:
            pass
    wait_until(lambda: front.listener.failed_handshakes == before + 1)


def test_sessions_are_not_taken_up_again(front: Served, jane: Pair) -> None:
    context = ssl.create_default_context(cafile=front.ca)
    context.load_cert_chain(jane.chain, jane.key)
    session = None
    for _ in range(2):
        raw = socket.create_connection(("127.0.0.1", front.port), timeout=5)
        with context.wrap_socket(raw, server_hostname="localhost", session=session) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            assert answered(client)["subject"] == "CN=Jane,C=GR"
            assert not client.session_reused
            session = client.session


def test_a_handshake_that_does_not_go_on_ends(front: Served) -> None:
    with socket.create_connection(("127.0.0.1", front.port), timeout=5) as client:
        assert client.recv(1) == b""


def test_a20_a_head_that_comes_slowly_ends_with_an_answer(front: Served) -> None:
    with front.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: ")
        assert answered(client) == (400, "Request took too long to arrive")


def test_a20_a_body_that_comes_slowly_ends_with_an_answer(front: Served) -> None:
    with front.connect() as client:
        client.sendall(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n1234")
        assert answered(client) == (400, "Request took too long to arrive")


def test_a20_a_head_too_large_is_refused(front: Served) -> None:
    with front.connect() as client:
        client.sendall(b"GET / HTTP/1.1\r\nx: " + b"y" * 70_000)
        assert answered(client) == (400, "Request header is too large")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_protocols_are_refused_and_counted(front: Served) -> None:
    before = front.listener.failed_handshakes
    old = ssl.create_default_context(cafile=front.ca)
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")

    with socket.create_connection(("127.0.0.1", front.port), 5) as plain, pytest.raises(OSError):
        old.wrap_socket(plain, server_hostname="localhost")
    wait_until(lambda: front.listener.failed_handshakes == before + 1)


def test_several_requests_in_the_packet_that_ends_the_handshake_are_answered(front: Served, jane: Pair) -> None:
    for _ in range(20):  # TLS 1.3 has the client speak first and at once
        with front.connect(cert=jane) as client:
            request = b"GET /%d HTTP/1.1\r\nhost: localhost\r\n%b\r\n"
            client.sendall(request % (1, b"") + request % (2, b"connection: close\r\n"))
            whole = b""
            while part := client.recv(65536):
                whole += part
            assert whole.count(b"HTTP/1.1 200") == 2


def test_a_changed_certificate_is_served_and_a_bad_one_is_not(front_authority: Authority, tmp_path: Path) -> None:
    first, second = (front_authority.signs(name, hosts=["localhost"]) for name in ("first", "second"))
    chain, key = tmp_path / "chain.pem", tmp_path / "chain.key"
    chain.write_bytes(first.pem)
    key.write_bytes(first.key_pem)
    certificate = Certificate.load(str(chain), str(key), AskingContext.make())
    inner = certificate.context._inner  # type: ignore[attr-defined]

    chain.write_bytes(second.pem)
    certificate.reload(always=True)
    assert certificate.context._inner is inner  # type: ignore[attr-defined]  # the key is not its
    key.write_bytes(second.key_pem)
    certificate.reload(always=True)
    assert certificate.context._inner is not inner  # type: ignore[attr-defined]


def test_a_key_with_a_pass_phrase_stops_the_start(front_authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(front_authority.signs("locked", hosts=["localhost"]).pem)
    locked = ODD.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "k").write_bytes(locked)

    with pytest.raises(BadSettings, match="the key has a pass phrase"):
        Certificate.load(str(tmp_path / "c"), str(tmp_path / "k"), AskingContext.make())


@pytest.mark.parametrize("pieces", [1, 5])
def test_a12_a_proxy_tells_the_client_before_the_handshake(proxied: Served, jane: Pair, pieces: int) -> None:
    preface = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 8443\r\n"
    with proxied.connect(cert=jane, preface=preface, pieces=pieces) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        said = answered(client)

    assert (said["address"], said["client"], said["subject"]) == ("192.0.2.1", "192.0.2.1", "CN=Jane,C=GR")


def test_a12_a_proxy_that_speaks_for_itself_is_its_own_client(proxied: Served) -> None:
    assert proxied.ask(preface=b"PROXY UNKNOWN\r\n")["address"] == "127.0.0.1"


@pytest.mark.parametrize("preface", [b"", b"PROXY nonsense\r\n"])
def test_a12_connections_without_what_a_proxy_says_are_closed(proxied: Served, preface: bytes) -> None:
    with pytest.raises((OSError, ValueError)):
        proxied.ask(preface=preface)


def test_a12_nobody_but_a_proxy_tells_clients(proxied: Served) -> None:
    with socket.create_connection(("127.0.0.1", proxied.port), 5, ("127.0.0.9", 0)) as client:
        assert client.recv(1) == b""
    assert proxied.listener.refused["proxy"] == 1
