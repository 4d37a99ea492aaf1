"""Contract 17.2 A12: permitted addresses, checked at connect; and name resolution."""

import asyncio
import ipaddress
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Unusable
from ams.outgoing import address_guard
from ams.outgoing.address_guard import SLOW_THREADS, THREADS, AddressRefused, Guard, Lookups, networks, trust
from tests.support.waiting import wait_until_async

PUBLIC = ["93.184.216.34", "8.8.8.8", "2606:2800:220:1:248:1893:25c8:1946", "2a00:1450:4001:81b::200e"]
REFUSED_ADDRESSES = [
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


@pytest.mark.parametrize("address", REFUSED_ADDRESSES)
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


def test_an_allowed_network_does_not_open_its_mapped_addresses_and_an_empty_setting_opens_nothing() -> None:
    assert not Guard(networks("127.0.0.0/8", "push_allow")).permits(ipaddress.ip_address("::ffff:127.0.0.1"))
    assert networks("", "push_allow") == networks(" , ", "push_allow") == ()


@pytest.mark.parametrize("text", ["127.0.0.1/8", "localhost", "10.0.0.0/33", "::/x"])
def test_what_is_no_network_stops_the_start(text: str) -> None:
    with pytest.raises(Unusable, match="push_allow: "):
        networks(text, "push_allow")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "2130706433", "0x7f.1", "0177.1", "127.1", "0", "::1", "::1%lo", "localhost"]
)
async def test_every_spelling_of_this_machine_is_refused(host: str) -> None:
    with pytest.raises(AddressRefused, match="is not a public address"):
        await Guard().addresses(host, 443)


def test_a_missing_ca_file_stops_the_start_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty.pem").touch()

    for name in ("none.pem", "empty.pem"):
        with pytest.raises(Unusable, match="push_ca_file") as stopped:
            trust(str(tmp_path / name), "push_ca_file")
        assert "\n" not in stopped.value.message


class SlowNames:
    def __init__(self) -> None:
        self.gate = threading.Event()
        self.asked: list[str] = []
        self.threads = 0
        self._lock = threading.Lock()

    def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        if host == "nowhere":
            raise OSError(-2, "Name or service not known")
        if host.startswith("slow"):
            with self._lock:
                self.threads += 1
            self.gate.wait(60)
            with self._lock:
                self.threads -= 1
        return ["192.0.2.1"]


@pytest.fixture
def names() -> Iterator[SlowNames]:
    names = SlowNames()
    yield names
    names.gate.set()


async def test_who_asks_for_the_same_name_shares_a_look_up_and_its_answer(names: SlowNames) -> None:
    look_up = Lookups(names)
    assert await asyncio.gather(*(look_up("a.example", 443) for _ in range(50))) == [["192.0.2.1"]] * 50
    await look_up("a.example", 443)
    assert names.asked == ["a.example"]


async def test_an_answer_is_used_again_for_a_short_while(names: SlowNames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_guard, "KEEP_SECONDS", 0.0)
    look_up = Lookups(names)

    await look_up("a.example", 443)
    await look_up("a.example", 443)

    assert names.asked == ["a.example"] * 2


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "fe80::1"])
async def test_addresses_are_not_looked_up(names: SlowNames, host: str) -> None:
    assert await Lookups(names)(host, 443) == [host]
    assert names.asked == []


async def test_what_has_no_address_is_told_to_all(names: SlowNames) -> None:
    look_up = Lookups(names)
    told = await asyncio.gather(*(look_up("nowhere", 443) for _ in range(3)), return_exceptions=True)
    assert [str(each) for each in told] == ["[Errno -2] Name or service not known"] * 3
    assert names.asked == ["nowhere"]


def has_answer(look_up: Lookups, *hosts: str) -> Callable[[], Awaitable[bool]]:
    """Return whether names are resolved in time, which on a busy machine may need a second try."""

    async def has_all_answers() -> bool:
        found = await asyncio.gather(*(look_up(each, 443) for each in hosts), return_exceptions=True)
        return found == [["192.0.2.1"]] * len(hosts)

    return has_all_answers


async def test_slow_names_end_in_time_and_do_not_hold_up_others(names: SlowNames) -> None:
    look_up = Lookups(names, wait_seconds=0.05)
    slow = [f"slow{number}.example" for number in range(THREADS - 1)]

    told = await asyncio.gather(*(look_up(each, 443) for each in slow), return_exceptions=True)
    assert {each.strerror for each in told if isinstance(each, OSError)} == {"its name servers do not answer"}

    await wait_until_async(has_answer(look_up, "quick.example"))


async def test_names_that_were_slow_have_few_threads(names: SlowNames, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(address_guard, "KEEP_SECONDS", 0.0)
    monkeypatch.setattr(address_guard, "SLOW_SECONDS", 0.0)
    look_up = Lookups(names, wait_seconds=0.05)
    slow = [f"slow{number}.example" for number in range(THREADS)]
    await asyncio.gather(*(look_up(each, 443) for each in slow), return_exceptions=True)
    names.gate.set()
    await wait_until_async(has_answer(look_up, *slow))
    names.gate.clear()

    await asyncio.gather(*(look_up(each, 443) for each in slow), return_exceptions=True)

    await wait_until_async(lambda: names.threads == SLOW_THREADS)
    await wait_until_async(has_answer(look_up, "quick.example"))
    assert names.threads == SLOW_THREADS


async def test_a_look_up_that_is_not_waited_for_any_more_complains_nowhere(names: SlowNames) -> None:
    look_up = Lookups(names)
    waiting = asyncio.create_task(look_up("slow.example", 443))
    await wait_until_async(lambda: names.threads)

    waiting.cancel()
    names.gate.set()

    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert await look_up("slow.example", 443) == ["192.0.2.1"]


async def test_a_machine_without_threads_left_is_told_as_a_failed_look_up(monkeypatch: pytest.MonkeyPatch) -> None:
    look_up = Lookups(lambda host, port: ["192.0.2.1"])

    def refuse(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuse)
        for number in range(THREADS):
            with pytest.raises(OSError, match="can't start new thread"):
                await look_up(f"host{number}", 443)

    assert await look_up("host0", 443) == ["192.0.2.1"]
