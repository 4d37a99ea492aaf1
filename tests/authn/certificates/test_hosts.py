"""Hosts: names of the address a client comes from, compared with those of its certificate."""

import socket
import threading
from collections.abc import Sequence

import pytest

from ams.authn.certificates.hosts import THREADS, HostCheck, SystemNames
from ams.authn.certificates.reading import read
from ams.core.errors import CertificateRefused
from tests.authn.certificates.conftest import BELIEVED, Site, World
from tests.support.authorities import NO_CA, Subject

NAMES = {"127.0.0.1": ["a.example.org"], "127.0.0.2": ["liar.example.org"], "127.0.0.3": [], "::1": ["A.Example.org"]}
ADDRESSES = {"a.example.org": ["127.0.0.1"], "A.Example.org": ["::1", "127.0.0.1"], "liar.example.org": ["127.0.0.9"]}


def find(address: str) -> Sequence[str]:
    if address not in NAMES:
        raise socket.herror(1, "Unknown host")
    return NAMES[address]


async def addresses(name: str, port: int) -> Sequence[str]:
    return ADDRESSES[name]


async def checked(world: World, address: str, *hosts: str, subject: Subject = "Jane") -> None:
    leaf = world.root.signs(subject, extensions=[NO_CA], hosts=hosts)
    await HostCheck(SystemNames(find), addresses).check(read(leaf.certificate), address)


@pytest.mark.parametrize("host", ["a.example.org", "A.EXAMPLE.ORG", "*.example.org"])
async def test_a12_a_name_of_the_address_is_one_of_the_certificates(world: World, host: str) -> None:
    await checked(world, "127.0.0.1", "other.example.org", host)
    await checked(world, "::1", host)


@pytest.mark.parametrize(
    ("address", "hosts", "subject", "said"),
    [
        (
            "127.0.0.1", ["b.example.org", "*.org"], "Jane",
            "x509: certificate is valid for b.example.org, *.org, not a.example.org.",
        ),
        ("127.0.0.1", [], "a.example.org", "x509: certificate relies on legacy Common Name field, use SANs instead"),
        (
            "127.0.0.1", ["127.0.0.1"], "a.example.org",
            "x509: certificate is not valid for any names, but wanted to match a.example.org.",
        ),
        (
            "127.0.0.1", [], "Jane",
            "x509: certificate is not valid for any names, but wanted to match a.example.org.",
        ),
        (
            "127.0.0.2", ["liar.example.org"], "Jane",
            "lookup liar.example.org.: its addresses do not include 127.0.0.2",
        ),
        ("127.0.0.3", ["a.example.org"], "Jane", "lookup 3.0.0.127.in-addr.arpa.: no such host"),
        ("127.0.0.4", ["a.example.org"], "Jane", "lookup 4.0.0.127.in-addr.arpa.: no such host"),
        ("nowhere", ["a.example.org"], "Jane", "lookup nowhere: unrecognized address"),
    ],
)  # fmt: skip
async def test_a12_each_failure_is_a_refusal_in_the_contracts_words(
    world: World, address: str, hosts: list[str], subject: str, said: str
) -> None:
    with pytest.raises(CertificateRefused) as caught:
        await checked(world, address, *hosts, subject=subject)
    assert caught.value.message == said


async def test_a12_name_servers_that_do_not_answer_are_not_waited_for(world: World) -> None:
    held = threading.Event()

    def hang(address: str) -> Sequence[str]:
        held.wait(10)
        return ["a.example.org"]

    leaf = read(world.root.signs(hosts=["a.example.org"]).certificate)
    with pytest.raises(CertificateRefused, match="the name servers do not answer"):
        await HostCheck(SystemNames(hang, wait_seconds=0.02), addresses).check(leaf, "127.0.0.1")
    held.set()


async def test_a12_hosts_are_looked_at_only_where_that_is_asked_for(site: Site) -> None:
    site.has_list(site.root.crl())
    assert await site.judge(site.jane) == BELIEVED

    site.hosts = HostCheck(SystemNames(find), addresses)
    assert "x509: certificate is not valid for any names" in await site.judge(site.jane)
    assert await site.judge(site.root.signs(hosts=["a.example.org"])) == BELIEVED


async def test_a12_the_machine_knows_the_name_of_its_own_address(world: World) -> None:
    leaf = read(world.root.signs(hosts=["localhost", socket.gethostname()]).certificate)
    await HostCheck().check(leaf, "127.0.0.1")


async def test_a13_a_certificate_without_alternative_names_is_as_good_as_others(site: Site) -> None:
    """The note about them is dropped."""
    assert await site.judge(site.root.signs("Robot", extensions=[NO_CA]), verify_certificate=False) == BELIEVED


async def test_every_look_up_gives_its_place_back() -> None:
    names = SystemNames(find, wait_seconds=5.0)
    for _ in range(THREADS + 1):
        assert await names.of("127.0.0.1") == ["a.example.org"]
