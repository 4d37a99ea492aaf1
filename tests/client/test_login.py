"""Logging in with a certificate, over TLS that asks for one."""

import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.client import wire
from ams.client.errors import InvalidInput, NotFound, Unusable
from ams.client.transport import AMS, beside, host
from ams.client.wire import authn
from tests.client.faces import open_client
from tests.client.stub import Stub
from tests.support.certificate_service import CertificateService, certificate_service
from tests.support.certificates import Authority, Pair


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("certificates"))


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


def test_a_certificate_becomes_a_client_with_the_token_of_its_user(
    face: str, service: CertificateService, authority: Authority, jane: Pair, stub: Stub
) -> None:
    stub.body = b'{"status":"ok"}'
    options = {"authn": service.url, "authn_ca": authority.pair.chain, "retry": None, "by_certificate": True}

    with open_client(face, stub.url, jane.chain, jane.key, **options) as client:
        client.call(wire.get_status())

    assert stub.requests[0][2]["x-api-key"] == "token-of-jane"


def test_an_unbound_certificate_brings_no_client(face: str, service: CertificateService, authority: Authority) -> None:
    other = authority.signs("other")
    options = {"authn": service.url, "ca": authority.pair.chain, "by_certificate": True}

    with (
        pytest.raises(NotFound, match="Binding was not found"),
        open_client(face, service.url, other.chain, other.key, **options),
    ):
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
