"""A certificate authority as the grid has them, and a folder of authorities as services keep it."""

import datetime
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from OpenSSL import crypto

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
        """Make one; what it signs is written to `folder`."""
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name(name)
        builder = self._builder(self._name, self._key, _now() + _YEAR)
        self.certificate = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True).sign(
            self._key, hashes.SHA256()
        )

    def certificate_of(self, name: str, *, expired: bool = False) -> Credentials:
        """Sign a certificate for a host; it may be one that has expired."""
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
        (folder / f"{hashed}.r0").write_bytes(self._list(withdrawn).public_bytes(Encoding.PEM))

    def _list(self, withdrawn: Sequence[x509.Certificate]) -> x509.CertificateRevocationList:
        builder = x509.CertificateRevocationListBuilder().issuer_name(self._name)
        builder = builder.last_update(_now() - _HOUR).next_update(_now() + _YEAR)
        for each in withdrawn:
            entry = x509.RevokedCertificateBuilder().serial_number(each.serial_number)
            builder = builder.add_revoked_certificate(entry.revocation_date(_now() - _HOUR).build())
        return builder.sign(self._key, hashes.SHA256())

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
