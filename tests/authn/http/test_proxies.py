"""What proxies say before the handshake, byte by byte."""

import ipaddress
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.authn.http.proxies import SIGNATURE, Malformed, Preface, is_within, usual

LINE = b"PROXY TCP4 192.0.2.1 192.0.2.2 4711 8443\r\n"
ADDRESSES = ipaddress.ip_address("2001:db8::1").packed + ipaddress.ip_address("2001:db8::2").packed
BINARY = (
    SIGNATURE + struct.pack("!BBH", 0x21, 0x21, 36 + 7) + ADDRESSES + struct.pack("!HH", 4711, 8443) + b"\x04\0\4more"
)


@settings(max_examples=25)
@given(st.sampled_from([(LINE, "192.0.2.1"), (BINARY, "2001:db8::1")]), st.data(), st.binary(max_size=20))
def test_a_preface_is_read_in_whatever_pieces_it_comes_and_what_follows_is_left(
    told: tuple[bytes, str], data: st.DataObject, rest: bytes
) -> None:
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
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02\x00",
        b"PROXY TCP4 192.0.2.1\r\n",
        b"PROXY TCP4 2001:db8::1 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 nobody 192.0.2.2 1 2\r\n",
        b"PROXY TCP4 192.0.2.1 192.0.2.2 99999 2\r\n",
        b"PROXY " + b"x" * 200,
        SIGNATURE + struct.pack("!BBH", 0x11, 0x11, 4),
        SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 60_000),
        SIGNATURE + struct.pack("!BBH", 0x21, 0x11, 4) + b"1234",
    ],
)
def test_what_is_no_preface_is_malformed(said: bytes) -> None:
    with pytest.raises(Malformed):
        Preface().feed(said)


def test_addresses_have_one_form() -> None:
    assert usual("::ffff:192.0.2.1") == "192.0.2.1"
    assert usual("fe80::1%eth0") == "fe80::1"
    assert is_within("::ffff:192.0.2.1", [ipaddress.ip_network("192.0.2.0/24")])
    assert not is_within("nobody", [ipaddress.ip_network("0.0.0.0/0")])
