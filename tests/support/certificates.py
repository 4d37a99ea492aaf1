"""Certificates for tests: a CA, and what it signs, in files."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

OIDS = {"CN": NameOID.COMMON_NAME, "O": NameOID.ORGANIZATION_NAME, "C": NameOID.COUNTRY_NAME, "UID": NameOID.USER_ID}


@dataclass(frozen=True)
class Pair:
    """A certificate and its key, and the files they are in."""

    certificate: x509.Certificate
    private: ec.EllipticCurvePrivateKey
    chain: str
    key: str

    @property
    def pem(self) -> bytes:
        return Path(self.chain).read_bytes()

    @property
    def key_pem(self) -> bytes:
        return Path(self.key).read_bytes()


@dataclass(frozen=True)
class Authority:
    """A CA; `folder` holds its certificate alone, as a folder of authorities does."""

    pair: Pair
    folder: Path
    files: Path

    @classmethod
    def make(cls, files: Path, name: str = "authority") -> "Authority":
        folder = files / f"{name}-authorities"
        folder.mkdir(parents=True)
        pair = _made(folder, name, [("CN", name)], None, is_ca=True)
        return cls(pair, folder, files)

    def signs(self, name: str, *subject: tuple[str, str], hosts: Sequence[str] = ()) -> Pair:
        """Return a certificate for a subject, in encoded order; without one its common name is `name`."""
        return _made(self.files, name, list(subject) or [("CN", name)], self.pair, hosts=hosts)


def _made(
    folder: Path,
    name: str,
    subject: Sequence[tuple[str, str]],
    issuer: Pair | None,
    *,
    is_ca: bool = False,
    hosts: Sequence[str] = (),
) -> Pair:
    key = ec.generate_private_key(ec.SECP256R1())
    shown = x509.Name([x509.NameAttribute(OIDS[label], value) for label, value in subject])
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(shown)
        .issuer_name(issuer.certificate.subject if issuer else shown)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
    )
    if hosts:
        builder = builder.add_extension(x509.SubjectAlternativeName([_general(host) for host in hosts]), critical=False)
    certificate = builder.sign(issuer.private if issuer else key, hashes.SHA256())
    chain, private = folder / f"{name}.pem", folder / f"{name}.key"
    chain.write_bytes(certificate.public_bytes(Encoding.PEM))
    private.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    return Pair(certificate, key, str(chain), str(private))


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
