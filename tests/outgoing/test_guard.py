"""Contract 17.2 A12: which addresses may be connected to, judged when connecting."""

import ipaddress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Unusable
from ams.outgoing.guard import Guard, Refused, networks, trust

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "2a00:1450:4001:81b::200e"]
REFUSED = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "100.64.0.1", "169.254.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "239.1.2.3", "224.0.1.129", "240.0.0.1",
    "255.255.255.255", "192.88.99.1",
    "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192", "fd00:ec2::254",
    "::", "::1", "fe80::1", "fe80::1%1", "fe80::1%lo",
    "fc00::1", "fd12::1", "fec0::1", "ff02::1", "2001:db8::1", "3fff::1", "100::1",
    "::ffff:127.0.0.1", "::ffff:8.8.8.8", "::7f00:1", "::8.8.8.8",
    "64:ff9b::7f00:1", "64:ff9b::808:808", "64:ff9b:1::808:808",
    "2002:7f00:1::", "2002:808:808::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2",
]  # fmt: skip


@pytest.mark.parametrize("address", PUBLIC)
def test_public_addresses_pass(address: str) -> None:
    assert Guard().permits(ipaddress.ip_address(address))


@pytest.mark.parametrize("address", REFUSED)
def test_private_local_metadata_multicast_and_wrapping_addresses_are_refused(address: str) -> None:
    assert not Guard().permits(ipaddress.ip_address(address))


@given(st.ip_addresses(v=4))
def test_what_is_refused_as_ipv4_is_refused_in_every_wrapping(address: ipaddress.IPv4Address) -> None:
    number = int(address)
    wrapped = [number, 0xFFFF << 32 | number, 0x64FF9B << 96 | number, 0x2002 << 112 | number << 80]

    assert not any(Guard().permits(ipaddress.IPv6Address(each)) for each in wrapped)


@given(st.ip_addresses())
def test_networks_that_were_allowed_pass_and_no_others(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    allowed = Guard(networks("127.0.0.0/8, ::1/128", "push_allow"))

    assert allowed.permits(address) == (Guard().permits(address) or address.is_loopback)


def test_an_allowed_network_does_not_open_its_mapped_addresses() -> None:
    assert not Guard(networks("127.0.0.0/8", "push_allow")).permits(ipaddress.ip_address("::ffff:127.0.0.1"))


@pytest.mark.parametrize("text", ["127.0.0.1/8", "localhost", "10.0.0.0/33", "::/x"])
def test_what_is_no_network_stops_the_start(text: str) -> None:
    with pytest.raises(Unusable, match="push_allow: "):
        networks(text, "push_allow")


def test_no_networks_are_allowed_by_an_empty_setting() -> None:
    assert networks("", "push_allow") == networks(" , ", "push_allow") == ()


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "0177.1", "127.1", "0", "::1", "::1%lo", "localhost"]
)
async def test_every_spelling_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(Refused, match="is not a public address"):
        await Guard().addresses(host, 443)


def test_a_missing_ca_file_stops_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()

    for name in ("none.pem", "empty.pem"):
        with pytest.raises(Unusable, match="push_ca_file") as stopped:
            trust(str(tmp_path / name), "push_ca_file")
        assert "\n" not in stopped.value.message
