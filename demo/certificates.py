"""Logging in with certificates: `python -m demo.certificates`, or `make certificates-demo`.

`ams serve` and `ams authn serve` run on one host name. Sites have host certificates of a CA made for the demo, which
the certificate service trusts by a folder as the grid's are: the CA's certificate, and its revocation list. With the
official client library every site logs in by its certificate, gets its token, and publishes; a collector logs in
likewise and pulls. Then others try, whose certificates are revoked, expired, not bound, or of an unknown CA.
"""

import datetime
import socket
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from argo_ams_library import AmsException, AmsMessage, AmsServiceException, ArgoMessagingService
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import crypto

from ams.client import Client, wire
from ams.client.wire import UserDetails, authn
from ams.core.distinguished_names import of_certificate
from demo import service, site
from demo.service import Service, trust_of_library
from demo.site import PROJECT, SUBSCRIPTION, TOPIC

_HOUR = datetime.timedelta(hours=1)
_YEAR = datetime.timedelta(days=365)


class Credentials(NamedTuple):
    """A certificate with its key, and the files they are in, as the library needs them."""

    certificate: x509.Certificate
    cert: str
    key: str


class Authority:
    """Signs certificates of hosts, and withdraws them; all in ECDSA."""

    def __init__(self, name: str, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = self._builder(self._name, self._key, _now() + _YEAR)
        self.certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(
            self._key, hashes.SHA256()
        )

    def certificate_of(self, name: str, *, expired: bool = False) -> Credentials:
        host = f"{name}.example.org"
        key = ec.generate_private_key(ec.SECP256R1())
        until = _now() - _HOUR if expired else _now() + _YEAR
        certificate = (
            self._builder(_name(f"host/{host}"), key, until)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), critical=False)
            .add_extension(x509.SubjectAlternativeName([x509.DNSName(host)]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        cert, private = self._folder / f"{host}.pem", self._folder / f"{host}.key"
        cert.write_bytes(certificate.public_bytes(Encoding.PEM))
        private.touch(mode=0o600)
        private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        return Credentials(certificate, str(cert), str(private))

    def publish(self, folder: Path, withdrawn: Sequence[x509.Certificate] = ()) -> None:
        """Write certificate and list of the withdrawn as `HASH.0` and `HASH.r0`, the names that OpenSSL looks for."""
        folder.mkdir(exist_ok=True)
        hashed = f"{crypto.X509.from_cryptography(self.certificate).subject_name_hash():08x}"
        (folder / f"{hashed}.0").write_bytes(self.certificate.public_bytes(Encoding.PEM))
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(_now() - _HOUR).next_update(_now() + _YEAR)
        for each in withdrawn:
            entry = x509.RevokedCertificateBuilder().serial_number(each.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(_now() - _HOUR).build())
        revoked = builder.sign(self._key, hashes.SHA256())
        (folder / f"{hashed}.r0").write_bytes(revoked.public_bytes(Encoding.PEM))

    def _builder(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, until: datetime.datetime
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(_now() - _YEAR)
            .not_valid_after(until)
        )


def _name(common: str) -> x509.Name:
    parts = (
        (NameOID.DOMAIN_COMPONENT, "org"),
        (NameOID.DOMAIN_COMPONENT, "example-grid"),
        (NameOID.ORGANIZATION_NAME, "Example Federation"),
        (NameOID.COMMON_NAME, common),
    )
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])


def _now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


CONSUMER = "collector"
REFUSED = {
    "withdrawn": (403, "Your certificate has been revoked"),
    "expired": (403, "Your certificate has expired"),
    "unbound": (404, "Binding was not found"),
    "stranger": (403, "Your certificate is not of a CA that is trusted here"),
}
"""Clients that are refused, the code, and the beginning of the message."""
SERVICE_TYPE = "ams"
HOST = "localhost"  # the name of both services, as the library uses one name for both
HTTPS = 443


class Ports(NamedTuple):
    ams: int
    authn: int


def play(folder: Path, options: Namespace) -> bool:
    sites = [f"site-{number}" for number in range(options.sites)]
    with service.running(folder / "ams-data", _ams_port(), "--ops-port", "0") as ams:
        began = perf_counter()
        certificates = _make_certificates(folder, sites)
        uuids = _make_users(ams, sites)
        flags = (
            *("--cert", str(ams.data / "server.pem"), "--key", str(ams.data / "server.key"), "--ops-port", "0"),
            *("--client-ca", str(folder / "authorities"), "--service-ca", str(ams.ca)),
        )
        with service.started("authn serve", folder / "authn-data", 0, *flags) as certificate_service:
            print(f"AMS is ready at {ams.url}, the certificate service at {certificate_service.url}.")
            _bind(ams, certificate_service, certificates, uuids)
            trust_of_library(ams.ca)
            ports = Ports(_port(ams), _port(certificate_service))
            published = _publish(ports, certificates, sites, options.each)
            received = site.collect(_log_in(ports, certificates[CONSUMER]))
            print(f"The collector logged in and pulled {len(received)} messages.\n\nOthers try:")
            refused = sum(_is_refused(ports, certificates[name], name) for name in REFUSED)
    whole = site.is_whole("certificates-demo", published, received)
    print(
        f"certificates-demo: logins {len(sites) + 1} refused {refused} messages {len(received)} "
        f"seconds {perf_counter() - began:.1f}"
    )
    return whole and refused == len(REFUSED)


def _make_certificates(folder: Path, sites: list[str]) -> dict[str, Credentials]:
    known, unknown = Authority("Example Grid CA", folder), Authority("Unknown CA", folder)
    certificates = {name: known.certificate_of(name) for name in (*sites, CONSUMER, *REFUSED)}
    certificates["expired"] = known.certificate_of("expired", expired=True)
    certificates["stranger"] = unknown.certificate_of("stranger")
    known.publish(folder / "authorities", [certificates["withdrawn"].certificate])
    return certificates


def _make_users(ams: Service, sites: list[str]) -> dict[str, str]:
    with ams.administrator() as admin:
        site.make_federation(admin)
        uuids = {name: site.member(admin, name, "publisher").uuid for name in sites}
        uuids[CONSUMER] = site.member(admin, CONSUMER, "consumer").uuid
        admin.call(wire.modify_topic_acl(PROJECT, TOPIC, sites))
        admin.call(wire.modify_subscription_acl(PROJECT, SUBSCRIPTION, [CONSUMER]))
        return uuids


def _bind(ams: Service, certificates_at: Service, made: dict[str, Credentials], uuids: dict[str, str]) -> None:
    bound = {name: uuids.get(name, next(iter(uuids.values()))) for name in made if name != "unbound"}
    with ams.administrator() as admin:
        reader = admin.call(wire.create_user("certificates", UserDetails(service_roles=["argo_api_authn"])))
    key = (certificates_at.data / "authn.key").read_text().strip()
    with Client(certificates_at.url, key, ca=str(ams.ca)) as admin:
        ams_there = admin.call(authn.create_service_type(SERVICE_TYPE, [HOST])).uuid
        headers = {"x-api-key": reader.token}
        admin.call(authn.create_auth_method(SERVICE_TYPE, HOST, _port(ams), headers=headers))
        for name, uuid in bound.items():
            subject = of_certificate(made[name].certificate.subject)
            admin.call(authn.create_binding(name, ams_there, HOST, subject, uuid))
    print(f"{len(bound)} certificates are bound to users.\n", flush=True)


def _publish(ports: Ports, certificates: dict[str, Credentials], sites: list[str], each: int) -> list[str]:
    published: list[str] = []
    for name in sites:
        reports = site.reports(name, each)
        ams = _log_in(ports, certificates[name])
        ams.publish(TOPIC, [AmsMessage(data=report, attributes={"site": name}) for report in reports])
        published += reports
    print(
        f"{len(sites)} sites logged in, each by its certificate, and published {len(published)} messages.", flush=True
    )
    return published


def _log_in(ports: Ports, credentials: Credentials) -> ArgoMessagingService:
    """Log in by a certificate; raises `AmsServiceException`. AMS is asked at port 443, or at its own later."""
    ams = ArgoMessagingService(
        endpoint=HOST, project=PROJECT, cert=credentials.cert, key=credentials.key, authn_port=ports.authn
    )
    if ports.ams != HTTPS:
        ams.endpoint = f"{HOST}:{ports.ams}"
    return ams


def _is_refused(ports: Ports, credentials: Credentials, name: str) -> bool:
    code, text = REFUSED[name]
    try:
        _log_in(ports, credentials)
    except AmsServiceException as error:
        print(f"  {name}: {error.code} {error.msg}")
        said: str = error.msg
        return bool(error.code == code and said.startswith(f"While trying the [auth_x509]: {text}"))
    print(f"  {name} logged in")
    return False


def _ams_port() -> int:
    """Return the port the official library asks AMS at, if this machine lets us have it; else any."""
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", HTTPS))
        except OSError:
            return 0
    return HTTPS


def _port(running: Service) -> int:
    return int(running.url.rpartition(":")[2])


if __name__ == "__main__":
    sys.exit(service.run_demo("certificates", "Log in with certificates.", play, AmsException, sites=20, each=50))
