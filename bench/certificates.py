"""Certificates of each kind that a service may have: by the kind of their keys, and by how many are shown."""

import datetime
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

PrivateKey = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
ECDSA, RSA = "ecdsa-p256", "rsa-2048"
_DAY = datetime.timedelta(days=1)


class Files(NamedTuple):
    """The authority that callers trust, and what the server shows and holds."""

    ca: Path
    chain: Path
    key: Path

    def both(self) -> Path:
        """Return a file with key and chain, as haproxy takes them."""
        path = self.chain.with_suffix(".both.pem")
        path.touch(0o600)
        path.write_bytes(self.key.read_bytes() + self.chain.read_bytes())
        return path


class _Signer(NamedTuple):
    name: x509.Name
    key: PrivateKey


def make(folder: Path, kind: str, shown: int = 1) -> Files:
    """Make an authority, `shown` - 1 intermediate ones, and a certificate for localhost, with keys of a kind."""
    folder.mkdir(parents=True, exist_ok=True)
    files = Files(folder / "ca.pem", folder / "server.pem", folder / "server.key")
    signer = _Signer(_name("authority"), _key(kind))
    files.ca.write_bytes(_pem(_signed(signer, signer)))
    chain = []
    for number in range(1, shown):
        below = _Signer(_name(f"intermediate {number}"), _key(kind))
        chain.append(_signed(below, signer))
        signer = below
    server = _Signer(_name("localhost"), _key(kind))
    chain.append(_signed(server, signer, for_server=True))
    files.chain.write_bytes(b"".join(_pem(each) for each in reversed(chain)))
    plain = serialization.NoEncryption()
    files.key.touch(0o600)
    files.key.write_bytes(
        server.key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    )
    return files


def _key(kind: str) -> PrivateKey:
    return ec.generate_private_key(ec.SECP256R1()) if kind == ECDSA else rsa.generate_private_key(65537, 2048)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _signed(subject: _Signer, issuer: _Signer, *, for_server: bool = False) -> x509.Certificate:
    now = datetime.datetime.now(datetime.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject.name)
        .issuer_name(issuer.name)
        .public_key(subject.key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + 30 * _DAY)
        .add_extension(x509.BasicConstraints(ca=not for_server, path_length=None), critical=True)
    )
    if for_server:
        builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    return builder.sign(issuer.key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
