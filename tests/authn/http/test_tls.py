"""Connections: handshakes that ask for a certificate, the PROXY protocol, and proxies that terminate TLS (A12)."""

import base64
import contextlib
import ipaddress
import shutil
import socket
import ssl
import struct
import subprocess
import urllib.parse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.authn.http import tls
from ams.authn.http.proxies import NOT_A_PROXY, SIGNATURE, BadPreface, Preface
from ams.authn.http.tls import AskingContext
from ams.authn.values import UNREADABLE, Presented
from ams.core.errors import BadSettings, CertificateRefused
from ams.http.tls import Certificate
from ams.web.listener import ListenerLimits
from local_cluster.ports import free_port, listening
from tests.authn.http.front import HEADER, FrontServer, read_answer, relay_identity, serve_front
from tests.support import authorities
from tests.support.authorities import DAY, NOW
from tests.support.certificates import Authority, Pair
from tests.support.waiting import PATIENCE_SECONDS, wait_until

ODD = authorities.Authority.make("odd")


def odd_pair(folder: Path, *, days: int = 1, extension: int = 0, subject: str = "odd") -> Pair:
    """Make a certificate of an unknown CA that expires in so many days, with a large extension."""
    value = x509.UnrecognizedExtension(x509.ObjectIdentifier("1.2.3.4"), b"x" * extension)
    made = ODD.signs([("CN", subject)] if subject else [], not_after=NOW + days * DAY,
                     extensions=[(value, False)] if extension else [])  # fmt: skip
    return Pair.write(made, folder, f"odd{days}-{extension}-{len(subject)}")


def test_every_client_reaches_http_with_the_certificate_it_has_shown(front: FrontServer, tmp_path: Path, jane: Pair):
    said = front.ask()
    assert (said["address"], said["subject"], said["unreadable"]) == ("127.0.0.1", None, "")
    assert front.ask(cert=jane)["subject"] == "CN=Jane,C=GR"
    not_believed = (odd_pair(tmp_path), odd_pair(tmp_path, days=-1), odd_pair(tmp_path, subject=""),
                    odd_pair(tmp_path, extension=100_000))  # fmt: skip
    for shown in not_believed:
        assert front.ask(cert=shown)["leaf"] is not None


def test_certificates_that_are_large_take_no_memory(front: FrontServer, tmp_path: Path, jane: Pair) -> None:
    before = tls._cached_certificate.cache_info()
    for _ in range(2):
        front.ask(cert=odd_pair(tmp_path, extension=50_000))
    assert tls._cached_certificate.cache_info() == before
    front.ask(cert=jane)
    assert tls._cached_certificate.cache_info() != before


def test_a_certificate_over_the_limit_of_tls_costs_one_failed_handshake(front: FrontServer, tmp_path: Path) -> None:
    before = front.listener.failed_handshakes

    with pytest.raises((OSError, ValueError)):
        front.ask(cert=odd_pair(tmp_path, extension=110_000))
    wait_until(lambda: front.listener.failed_handshakes == before + 1)
    assert front.ask()["subject"] is None


@pytest.mark.parametrize("said", [b"GET / HTTP/1.0\r\n\r\n", b"\x16\x03\x01\x00\x05hello", bytes(100)])
def test_what_is_no_tls_is_counted_and_closed(front: FrontServer, said: bytes) -> None:
    before = front.listener.failed_handshakes
    with socket.create_connection(("127.0.0.1", front.port), timeout=PATIENCE_SECONDS) as client:
        client.sendall(said)
        with contextlib.suppress(ConnectionError):
            while client.recv(1000):
                pass
    wait_until(lambda: front.listener.failed_handshakes == before + 1)


def test_sessions_are_not_taken_up_again(front: FrontServer, jane: Pair) -> None:
    context = ssl.create_default_context(cafile=front.ca)
    context.load_cert_chain(jane.chain, jane.key)
    session = None
    for _ in range(2):
        raw = socket.create_connection(("127.0.0.1", front.port), timeout=PATIENCE_SECONDS)
        with context.wrap_socket(raw, server_hostname="localhost", session=session) as client:
            client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
            assert read_answer(client)["subject"] == "CN=Jane,C=GR"
            assert not client.session_reused
            session = client.session


def test_a_handshake_that_does_not_go_on_ends(impatient_front: FrontServer) -> None:
    with socket.create_connection(("127.0.0.1", impatient_front.port), timeout=PATIENCE_SECONDS) as client:
        assert client.recv(1) == b""


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\nhost: ", b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\n\r\n1234"]
)
def test_a20_a_slow_request_ends_with_an_answer(impatient_front: FrontServer, sent: bytes) -> None:
    with impatient_front.connect() as client:
        client.sendall(sent)
        assert read_answer(client) == (400, "Request took too long to arrive")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_old_protocols_are_refused_and_counted(front: FrontServer) -> None:
    before = front.listener.failed_handshakes
    old = ssl.create_default_context(cafile=front.ca)
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")

    with socket.create_connection(("127.0.0.1", front.port), 5) as plain, pytest.raises(OSError):
        old.wrap_socket(plain, server_hostname="localhost")
    wait_until(lambda: front.listener.failed_handshakes == before + 1)


def test_several_requests_in_the_packet_that_ends_the_handshake_are_answered(front: FrontServer, jane: Pair) -> None:
    for _ in range(20):  # TLS 1.3 has the client speak first and at once
        with front.connect(cert=jane) as client:
            request = b"GET /%d HTTP/1.1\r\nhost: localhost\r\n%b\r\n"
            client.sendall(request % (1, b"") + request % (2, b"connection: close\r\n"))
            whole = b""
            while part := client.recv(65536):
                whole += part
            assert whole.count(b"HTTP/1.1 200") == 2


def test_a_key_with_a_pass_phrase_stops_the_start(front_authority: Authority, tmp_path: Path) -> None:
    (tmp_path / "c").write_bytes(front_authority.signs("locked", hosts=["localhost"]).pem)
    locked = ODD.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"secret"))
    (tmp_path / "k").write_bytes(locked)

    with pytest.raises(BadSettings, match="the key has a pass phrase"):
        Certificate.load(str(tmp_path / "c"), str(tmp_path / "k"), AskingContext.make())


@pytest.mark.parametrize("pieces", [1, 5])
def test_a12_a_proxy_tells_the_client_before_the_handshake(proxied_front: FrontServer, jane: Pair, pieces: int) -> None:
    preface = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 8443\r\n"
    with proxied_front.connect(cert=jane, preface=preface, pieces=pieces) as client:
        client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        said = read_answer(client)

    assert (said["address"], said["client"], said["subject"]) == ("192.0.2.1", "192.0.2.1", "CN=Jane,C=GR")
    assert proxied_front.ask(preface=b"PROXY UNKNOWN\r\n")["address"] == "127.0.0.1", "it speaks for itself"


def test_a12_connections_without_what_a_proxy_says_or_not_from_a_proxy_are_closed(proxied_front: FrontServer) -> None:
    for preface in (b"", b"PROXY nonsense\r\n"):
        with pytest.raises((OSError, ValueError)):
            proxied_front.ask(preface=preface)
    with socket.create_connection(("127.0.0.1", proxied_front.port), 5, ("127.0.0.9", 0)) as client:
        assert client.recv(1) == b""
    assert proxied_front.listener.refused["proxy"] == 1


LINE = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 8443\r\n"
ADDRESSES = ipaddress.ip_address("2001:db8::1").packed + ipaddress.ip_address("2001:db8::2").packed
BINARY = (
    SIGNATURE + struct.pack("!BBH", 0x21, 0x21, 36 + 7) + ADDRESSES + struct.pack("!HH", 4711, 8443) + b"\x04\0\4more"
)


@settings(max_examples=25)
@given(st.sampled_from([(LINE, "192.0.2.1"), (BINARY, "2001:db8::1")]), st.data(), st.binary(max_size=20))
def test_a_preface_is_read_in_any_pieces_alone(told: tuple[bytes, str], data: st.DataObject, rest: bytes) -> None:
    whole, address = told
    cut = data.draw(st.integers(0, len(whole) - 1))
    preface = Preface()

    assert preface.feed(whole[:cut]) is None
    assert preface.feed(whole[cut:] + rest) == rest
    assert preface.client == (address, 4711)


@settings(max_examples=100)
@given(st.one_of(st.binary(max_size=300), st.binary(max_size=40).map(lambda tail: SIGNATURE + tail)))
def test_any_bytes_are_a_preface_or_malformed_and_nothing_else(data: bytes) -> None:
    preface = Preface()
    try:
        preface.feed(data)
    except BadPreface:
        assert preface.client is None


@pytest.mark.parametrize(
    "said", [b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN ff ff 1 2\r\n", SIGNATURE + struct.pack("!BBH", 0x20, 0, 0)]
)
def test_a_proxy_that_speaks_for_itself_tells_no_client(said: bytes) -> None:
    preface = Preface()
    assert preface.feed(said + b"rest") == b"rest"
    assert preface.client is None


@pytest.mark.parametrize("said", [
    b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00", b"PROXY TCP4 192.0.2.1\r\n",
    b"PROXY TCP4 2001:db8::1 192.0.2.2 1 2\r\n", b"PROXY TCP4 nobody 192.0.2.2 1 2\r\n",
    b"PROXY TCP4 192.0.2.1 192.0.2.2 99999 2\r\n", b"PROXY " + b"x" * 200,
    SIGNATURE + struct.pack("!BBH", 0x11, 0x11, 4), SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 60_000),
    SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 4) + b"1234",
])  # fmt: skip
def test_what_is_no_preface_is_malformed(said: bytes) -> None:
    with pytest.raises(BadPreface):
        Preface().feed(said)


REFUSED: list[tuple[str, int]] = []  # what the audit log is told


@pytest.fixture(scope="module")
def proxy(front_authority: Authority) -> Pair:
    return front_authority.signs("proxy", ("O", "Site"), ("CN", "proxy.example"))


@pytest.fixture(scope="module")
def front_behind_proxy(front_authority: Authority, front_pair: Pair) -> Iterator[FrontServer]:
    def judge(presented: Presented) -> None:
        if presented.leaf.issuer != front_authority.pair.certificate.subject:
            raise CertificateRefused("not ours")

    app = relay_identity(["/O=Site/CN=proxy.example"], judge, REFUSED)
    with serve_front(front_pair, front_authority.pair.chain, app=app) as running:
        yield running


def der(pair: Pair) -> str:
    return base64.b64encode(pair.certificate.public_bytes(Encoding.DER)).decode()


def test_a12_proxies_name_clients(front_behind_proxy: FrontServer, proxy: Pair, jane: Pair, front_authority: Authority):
    chain, address = {f"{HEADER}-Chain": der(front_authority.pair)}, {"X-Forwarded-For": "198.51.100.9, 192.0.2.1"}
    for form in (der(jane), urllib.parse.quote(jane.pem.decode())):  # of haproxy, and of nginx
        said = front_behind_proxy.ask(cert=proxy, headers={HEADER: form, **chain, **address})
        assert (said["subject"], said["chain"], said["address"]) == ("CN=Jane,C=GR", ["CN=authority"], "192.0.2.1")


def test_a25_a_printable_string_with_other_characters_is_read_directly_and_behind_a_proxy(
    front: FrontServer, front_behind_proxy: FrontServer, proxy: Pair, jane: Pair, tmp_path: Path
) -> None:
    signed = jane.certificate.public_bytes(Encoding.DER).replace(b"\x0c\x04Jane", b"\x13\x04J*_@")
    odd_pem, odd = ssl.DER_cert_to_PEM_cert(signed), base64.b64encode(signed).decode()
    (tmp_path / "odd.pem").write_text(odd_pem * 2)  # with itself as the rest of its chain
    for said in (front.ask(cert=replace(jane, chain=str(tmp_path / "odd.pem"))),
                 front_behind_proxy.ask(cert=proxy, headers={HEADER: odd, f"{HEADER}-Chain": odd})):  # fmt: skip
        assert (said["subject"], said["chain"], said["unreadable"]) == ("CN=J*_@,C=GR", ["CN=J*_@,C=GR"], "")


UNREADABLE_HEADER = "The certificate in the header of the proxy cannot be read"


@pytest.mark.parametrize(("headers", "why"), [
    ({}, {""}), ({HEADER: ""}, {""}), ({HEADER: "nonsense"}, {UNREADABLE, UNREADABLE_HEADER}),
    ({HEADER: "bm9uc2Vuc2U="}, {UNREADABLE, UNREADABLE_HEADER}),
    ({HEADER: "-----BEGIN CERTIFICATE-----x-----END CERTIFICATE-----"}, {UNREADABLE, UNREADABLE_HEADER}),
])  # fmt: skip
def test_a12_a_bad_header_is_none(front_behind_proxy: FrontServer, proxy: Pair, headers: dict[str, str], why: set[str]):
    said = front_behind_proxy.ask(cert=proxy, headers=headers)
    assert said["subject"] is None
    assert said["unreadable"] in why


def test_a8_a12_strangers_fail(front_behind_proxy: FrontServer, jane: Pair, front_authority: Authority, tmp_path: Path):
    by_name = front_authority.signs("alike", ("O", "Site"), ("CN", "mallory"), ("CN", "proxy.example"))
    by_uid = front_authority.signs("alike-too", ("UID", "mallory"), ("O", "Site"), ("CN", "proxy.example"))
    for cert in (None, jane, by_name, by_uid):
        REFUSED.clear()
        assert front_behind_proxy.ask(cert=cert, headers={HEADER: der(jane)}) == (403, NOT_A_PROXY)
        assert REFUSED == [(NOT_A_PROXY, 403)]
    forged = Authority.make(tmp_path, "other").signs("proxy", ("O", "Site"), ("CN", "proxy.example"))
    assert front_behind_proxy.ask(cert=forged, headers={HEADER: der(jane)}) == (403, "not ours"), (
        "a name alone makes no proxy"
    )


@pytest.mark.parametrize("value", ["unknown", "192.0.2.1:50000", "x" * 60_000, "<script>"])
def test_a12_a_bad_address_is_not_believed(front_behind_proxy: FrontServer, proxy: Pair, value: str) -> None:
    assert front_behind_proxy.ask(cert=proxy, headers={"X-Forwarded-For": value})["address"] == "127.0.0.1"


def test_a12_others_come_as_themselves(front_behind_proxy: FrontServer, jane: Pair) -> None:
    said = front_behind_proxy.ask(cert=jane, headers={"X-Forwarded-For": "192.0.2.1"})
    assert (said["subject"], said["address"]) == ("CN=Jane,C=GR", "127.0.0.1")


@pytest.fixture(scope="module")
def ports(
    front_authority: Authority, front_pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, int]]:
    folder = tmp_path_factory.mktemp("haproxy")
    ca = front_authority.pair.chain
    proxy = front_authority.signs("haproxy", ("O", "Site"), ("CN", "proxy.example"))
    for pair in (front_pair, proxy):
        Path(f"{folder}/{Path(pair.chain).stem}.pem").write_bytes(pair.pem + pair.key_pem)
    through, ended = free_port(), free_port()

    app = relay_identity(["CN=proxy.example,O=Site"])
    networks = [ipaddress.ip_network("127.0.0.0/8")]
    limits = ListenerLimits(connections=100, unshared=networks, only_from=networks)
    with (serve_front(front_pair, ca, proxied=True, limits=limits) as behind_through,
          serve_front(front_pair, ca, app=app) as behind_ended):  # fmt: skip
        text = Path("deploy/haproxy/authn.cfg").read_text(encoding="utf-8")
        for old, new in (("maxconn 20000", "maxconn 100"), ("bind :8443", f"bind 127.0.0.1:{through}"),
                         ("bind :9443", f"bind 127.0.0.1:{ended}"),
                         ("authn1.example:8443 send", f"127.0.0.1:{behind_through.port} send"),
                         ("authn1.example:8443 ssl", f"127.0.0.1:{behind_ended.port} ssl"),
                         ("/etc/haproxy/authn.pem", f"{folder}/server.pem"), ("/etc/haproxy/clients.pem", ca),
                         ("/etc/haproxy/authn-ca.pem", ca), ("/etc/haproxy/proxy.pem", f"{folder}/haproxy.pem"),
                         ("verifyhost authn1.example", "verifyhost localhost")):  # fmt: skip
            assert old in text
            text = text.replace(old, new)
        (folder / "haproxy.cfg").write_text(text)
        program = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
        assert program is not None
        process = subprocess.Popen([program, "-db", "-f", str(folder / "haproxy.cfg")])
        try:
            wait_until(lambda: listening(through) and listening(ended))
            yield through, ended
        finally:
            process.kill()
            process.wait()


@pytest.mark.haproxy
@pytest.mark.parametrize("form", [0, 1])
def test_a12_a_client_behind_haproxy_is_known_by_its_certificate_also_an_unknown_one_and_address(
    ports: tuple[int, int], front_authority: Authority, jane: Pair, form: int, tmp_path: Path
) -> None:
    client = FrontServer(None, ports[form], front_authority.pair.chain)  # type: ignore[arg-type]

    assert client.ask(cert=jane, headers={"X-SSL-Client-Cert": "forged"})["subject"] == "CN=Jane,C=GR"
    assert client.ask(cert=Authority.make(tmp_path, "stranger").signs("eve"))["subject"] == "CN=eve"
    said = client.ask(headers={"X-SSL-Client-Cert-Chain": "forged"})
    assert (said["subject"], said["unreadable"], said["address"]) == (None, "", "127.0.0.1")
