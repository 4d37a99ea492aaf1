"""Proxies that end TLS themselves: who is believed to be one, and what of it (A12)."""

import base64
import urllib.parse
from collections.abc import Iterator
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from ams.authn.http.relaying import NOT_A_PROXY, Relaying
from ams.authn.http.tls import UNREADABLE
from ams.authn.values import Peer, Presented
from ams.core.errors import AmsError, CertificateRefused
from ams.http.errors import refusal
from tests.authn.http.front import Served, served, who
from tests.support.certificates import Authority, Pair

HEADER = "X-SSL-Client-Cert"
REFUSED: list[tuple[str, int]] = []
"""What the audit log is told."""


@pytest.fixture(scope="module")
def proxy(front_authority: Authority) -> Pair:
    return front_authority.signs("proxy", ("O", "Site"), ("CN", "proxy.example"))


@pytest.fixture(scope="module")
def behind(front_authority: Authority, front_pair: Pair) -> Iterator[Served]:
    async def check(presented: Presented, address: str) -> None:
        if presented.leaf.issuer != front_authority.pair.certificate.subject:
            raise CertificateRefused("not ours")

    async def refused(peer: Peer, scope: dict[str, Any], error: AmsError, code: int) -> None:
        REFUSED.append((error.message, code))

    names = ["/O=Site/CN=proxy.example"]
    app = Relaying(who, header=HEADER, names=names, check=check, refused=refused, refusal=refusal)
    with served(front_pair, front_authority.pair.chain, app=app) as running:
        yield running


def der(pair: Pair) -> str:
    return base64.b64encode(pair.certificate.public_bytes(Encoding.DER)).decode()


def test_a12_a_listed_proxy_tells_certificate_and_address(behind: Served, proxy: Pair, jane: Pair) -> None:
    said = behind.ask(cert=proxy, headers={HEADER: der(jane), "X-Forwarded-For": "198.51.100.9, 192.0.2.1"})

    assert (said["subject"], said["address"]) == ("CN=Jane,C=GR", "192.0.2.1")


def test_a12_nginx_tells_it_with_escapes_and_the_chain_may_come_too(
    behind: Served, proxy: Pair, jane: Pair, front_authority: Authority
) -> None:
    headers = {HEADER: urllib.parse.quote(jane.pem.decode()), f"{HEADER}-Chain": der(front_authority.pair)}

    said = behind.ask(cert=proxy, headers=headers)

    assert (said["subject"], said["chain"]) == ("CN=Jane,C=GR", ["CN=authority"])


@pytest.mark.parametrize("headers", [{}, {HEADER: ""}])
def test_a12_without_the_header_a_proxy_brings_no_certificate(
    behind: Served, proxy: Pair, headers: dict[str, str]
) -> None:
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
def test_a8_a_name_that_is_only_alike_makes_no_proxy(
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
