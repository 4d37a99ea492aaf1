"""Transport: certificates of servers and clients, logging in by one, and proxies of the environment."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.client import Client, transport, wire
from ams.client.errors import ClientError, InvalidInput, NotFound, Unusable
from ams.client.transport import AMS, beside, host, proxy_to
from ams.client.wire import authn
from ams.http.tls import self_signed
from tests.client.faces import open_client
from tests.client.stub import Stub
from tests.support.certificate_service import CertificateService, certificate_service
from tests.support.certificates import Authority, Pair


@pytest.mark.parametrize("option", ["ca", "cert"])
@pytest.mark.parametrize("content", [None, "not a certificate"])
def test_a_certificate_that_cannot_be_used_is_named(tmp_path: Path, option: str, content: str | None) -> None:
    file = tmp_path / "file.pem"
    if content is not None:
        file.write_text(content)

    with pytest.raises(ClientError, match=str(file)):
        Client("https://127.0.0.1:1", **{option: str(file)})  # type: ignore[arg-type]  # one of two options


def test_authorities_may_be_given_as_their_text(tmp_path: Path) -> None:
    ca, _, _ = self_signed(str(tmp_path))

    by_file, by_text = (transport.trust("https://ams.example", g, None, None) for g in (ca, Path(ca).read_text()))

    assert by_file is not None
    assert by_text is not None
    assert by_file.get_ca_certs() == by_text.get_ca_certs() != []
    with pytest.raises(Unusable, match="^CA certificates: "):
        transport.trust("https://ams.example", "-----BEGIN CERTIFICATE-----\nno\n", None, None)


@pytest.fixture(scope="module")
def jane(authority: Authority) -> Pair:
    return authority.signs("jane")


@pytest.fixture(scope="module")
def service(authority: Authority) -> Iterator[CertificateService]:
    server = authority.signs("server", hosts=("127.0.0.1",))
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(server.chain, server.key)
    tls.load_verify_locations(authority.pair.chain)
    tls.verify_mode = ssl.CERT_OPTIONAL
    with certificate_service(tls) as service:
        service.tokens["jane"] = "token-of-jane"
        yield service


def test_a_certificate_logs_in(face: str, service: CertificateService, authority: Authority, jane: Pair, stub: Stub):
    stub.body = b'{"status":"ok"}'
    options = {"authn": service.url, "authn_ca": authority.pair.chain, "retry": None, "by_certificate": True}

    with open_client(face, stub.url, jane.chain, jane.key, **options) as client:
        client.call(wire.get_status())

    assert stub.requests[0][2]["x-api-key"] == "token-of-jane"


def test_an_unbound_certificate_brings_no_client(face: str, service: CertificateService, authority: Authority) -> None:
    other = authority.signs("other")
    options = {"authn": service.url, "ca": authority.pair.chain, "by_certificate": True}

    with (pytest.raises(NotFound, match="Binding was not found"),
          open_client(face, service.url, other.chain, other.key, **options)):  # fmt: skip
        pass


def test_a_key_that_cannot_be_read_is_said_before_anything_is_sent(face: str, tmp_path: Path, jane: Pair) -> None:
    shown = (jane.chain, str(tmp_path / "none"))
    with pytest.raises(Unusable), open_client(face, "https://localhost", *shown, by_certificate=True):
        pass


def test_the_certificate_service_is_on_the_host_of_ams_by_custom() -> None:
    call = authn.authx509(AMS, host("https://ams.example:444"))

    assert beside("https://ams.example:444") == "https://ams.example:8443"
    assert call.path == "/v1/service-types/ams/hosts/ams.example:authx509"
    with pytest.raises(InvalidInput):
        beside("nonsense")


PROXY = "http://proxy.example:3128"


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        for each in (name, name.upper()):
            monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", PROXY)
    return monkeypatch


@pytest.mark.parametrize(("excluded", "url", "is_direct"), [
    ("", "https://ams.example", False), ("*", "https://ams.example", True),
    ("ams.example", "https://ams.example", True), ("AMS.example", "https://ams.example:8080", True),
    (".example", "https://ams.example", True), ("*.example", "https://ams.example", True),
    ("example", "https://ams.example", True), ("s.example", "https://ams.example", False),
    ("ams.example:443", "https://ams.example", True), ("ams.example:8080", "https://ams.example", False),
    (" other.example , ams.example ", "https://ams.example", True), ("10.0.0.0/8", "https://10.1.2.3", True),
    ("10.0.0.0/8", "https://11.1.2.3", False), ("10.1.2.3", "https://10.1.2.3", True),
    ("10.1.2.3:443", "https://10.1.2.3", True), ("2001:db8::/32", "https://[2001:db8::1]", True),
    ("2001:db8::/32", "https://[2001:db9::1]", False), ("fe80::/10", "https://ams.example", False),
    ("2001:db8::1", "https://[2001:db8::1]:8080", True), ("[2001:db8::1]", "https://[2001:db8::1]", True),
    ("[2001:db8::1]:443", "https://[2001:db8::1]", True), ("[2001:db8::1]:8080", "https://[2001:db8::1]", False),
    ("[2001:db8::]/32", "https://[2001:db8::1]", True), ("2001:DB8:0::1", "https://[2001:db8::1]", True),
    ("::1/128,[::1]:x,:,[,/,10.0.0.0/99", "https://ams.example", False), ("", "https://localhost:8080", True),
    ("", "https://127.0.0.1", True), ("", "https://[::1]:8080", True), ("", "http://ams.example", True),
])  # fmt: skip
def test_hosts_without_a_proxy(environment: pytest.MonkeyPatch, excluded: str, url: str, is_direct: bool) -> None:
    environment.setenv("NO_PROXY", excluded)
    assert proxy_to(url) == (None if is_direct else PROXY)
    Client(url, "token").close()


@pytest.mark.parametrize(("variable", "value", "proxy"), [
    ("HTTPS_PROXY", "proxy.example:3128", PROXY),
    ("https_proxy", "http://user:s3cret@proxy.example", "http://user:s3cret@proxy.example"),
    ("ALL_PROXY", "http://all.example", PROXY),
])  # fmt: skip
def test_a_proxy_is_in_its_variable(environment: pytest.MonkeyPatch, variable: str, value: str, proxy: str) -> None:
    environment.setenv(variable, value)
    assert proxy_to("https://ams.example") == proxy


@pytest.mark.parametrize(
    "value", ["::1", "http://[::1", "ftp://x", "http://user:s3cret@", "http://x:y", "socks5://x:1"]
)
def test_what_cannot_be_a_proxy_is_one_error_that_does_not_show_it(environment: pytest.MonkeyPatch, value: str) -> None:
    environment.setenv("HTTPS_PROXY", value)
    with pytest.raises(Unusable, match=r"^the proxy for https in the environment is no URL http://HOST:PORT$"):
        Client("https://ams.example", "token")
