"""Proxies: what they say before the handshake, byte by byte; and those that end TLS themselves (A12)."""

import base64
import ipaddress
import struct
import urllib.parse
from collections.abc import Iterator

import pytest
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.authn.http.proxies import NOT_A_PROXY, SIGNATURE, Malformed, Preface
from ams.authn.values import UNREADABLE, Presented
from ams.core.errors import CertificateRefused
from tests.authn.http.front import HEADER, Served, relaying, served
from tests.support.certificates import Authority, Pair

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
    except Malformed:
        assert preface.client is None


@pytest.mark.parametrize(
    "said", [b"PROXY UNKNOWN\r\n", b"PROXY UNKNOWN ff ff 1 2\r\n", SIGNATURE + struct.pack("!BBH", 0x20, 0, 0)]
)
def test_a_proxy_that_speaks_for_itself_tells_no_client(said: bytes) -> None:
    preface = Preface()
    assert preface.feed(said + b"rest") == b"rest"
    assert preface.client is None


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n", b"\x16\x03\x01\x02\x00", b"PROXY TCP4 192.0.2.1\r\n",
        b"PROXY TCP4 2001:db8::1 192.0.2.2 1 2\r\n", b"PROXY TCP4 nobody 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 99999 2\r\n", b"PROXY " + b"x" * 200,
        SIGNATURE + struct.pack("!BBH", 0x11, 0x11, 4), SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 60_000),
        SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 4) + b"1234",
    ],
)  # fmt: skip
def test_what_is_no_preface_is_malformed(said: bytes) -> None:
    with pytest.raises(Malformed):
        Preface().feed(said)


REFUSED: list[tuple[str, int]] = []
"""What the audit log is told."""


@pytest.fixture(scope="module")
def proxy(front_authority: Authority) -> Pair:
    return front_authority.signs("proxy", ("O", "Site"), ("CN", "proxy.example"))


@pytest.fixture(scope="module")
def behind(front_authority: Authority, front_pair: Pair) -> Iterator[Served]:
    def judge(presented: Presented) -> None:
        if presented.leaf.issuer != front_authority.pair.certificate.subject:
            raise CertificateRefused("not ours")

    app = relaying(["/O=Site/CN=proxy.example"], judge, REFUSED)
    with served(front_pair, front_authority.pair.chain, app=app) as running:
        yield running


def der(pair: Pair) -> str:
    return base64.b64encode(pair.certificate.public_bytes(Encoding.DER)).decode()


def test_a12_a_listed_proxy_tells_certificate_and_address(behind: Served, proxy: Pair, jane: Pair) -> None:
    said = behind.ask(cert=proxy, headers={HEADER: der(jane), "X-Forwarded-For": "198.51.100.9, 192.0.2.1"})
    assert (said["subject"], said["address"]) == ("CN=Jane,C=GR", "192.0.2.1")


def test_a12_nginx_escapes_it_with_a_chain(behind: Served, proxy: Pair, jane: Pair, front_authority: Authority) -> None:
    headers = {HEADER: urllib.parse.quote(jane.pem.decode()), f"{HEADER}-Chain": der(front_authority.pair)}
    said = behind.ask(cert=proxy, headers=headers)
    assert (said["subject"], said["chain"]) == ("CN=Jane,C=GR", ["CN=authority"])


@pytest.mark.parametrize("headers", [{}, {HEADER: ""}])
def test_a12_without_the_header_there_is_no_certificate(behind: Served, proxy: Pair, headers: dict[str, str]) -> None:
    said = behind.ask(cert=proxy, headers=headers)
    assert (said["subject"], said["unreadable"]) == (None, "")


@pytest.mark.parametrize("value", ["nonsense", "bm9uc2Vuc2U=", "-----BEGIN CERTIFICATE-----x-----END CERTIFICATE-----"])
def test_a12_what_cannot_be_read_is_no_certificate(behind: Served, proxy: Pair, value: str) -> None:
    said = behind.ask(cert=proxy, headers={HEADER: value})
    assert said["subject"] is None
    assert said["unreadable"] in (UNREADABLE, "The certificate in the header of the proxy cannot be read")


def test_a12_the_header_of_anybody_else_is_refused_and_told(behind: Served, jane: Pair) -> None:
    for cert in (None, jane):
        REFUSED.clear()
        assert behind.ask(cert=cert, headers={HEADER: der(jane)}) == (403, NOT_A_PROXY)
        assert REFUSED == [(NOT_A_PROXY, 403)]


def test_a12_a_name_alone_makes_no_proxy(behind: Served, jane: Pair, tmp_path_factory: pytest.TempPathFactory) -> None:
    other = Authority.make(tmp_path_factory.mktemp("other"), "other")
    forged = other.signs("proxy", ("O", "Site"), ("CN", "proxy.example"))
    assert behind.ask(cert=forged, headers={HEADER: der(jane)}) == (403, "not ours")


@pytest.mark.parametrize(
    "subject",
    [
        (("O", "Site"), ("CN", "mallory"), ("CN", "proxy.example")),
        (("UID", "mallory"), ("O", "Site"), ("CN", "proxy.example")),
    ],
)
def test_a8_a_similar_name_makes_no_proxy(
    behind: Served, jane: Pair, front_authority: Authority, subject: tuple[tuple[str, str], ...]
) -> None:
    alike = front_authority.signs("alike", *subject)
    assert behind.ask(cert=alike, headers={HEADER: der(jane)}) == (403, NOT_A_PROXY)


@pytest.mark.parametrize("value", ["unknown", "192.0.2.1:50000", "x" * 60_000, "<script>"])
def test_a12_what_is_no_address_is_not_believed_to_be_one(behind: Served, proxy: Pair, value: str) -> None:
    assert behind.ask(cert=proxy, headers={"X-Forwarded-For": value})["address"] == "127.0.0.1"


def test_a12_others_come_as_themselves(behind: Served, jane: Pair) -> None:
    said = behind.ask(cert=jane, headers={"X-Forwarded-For": "192.0.2.1"})
    assert (said["subject"], said["address"]) == ("CN=Jane,C=GR", "127.0.0.1")
