"""Certificates for loopback: an authority and certificates that it signs, as PEM files, new for each run."""

import datetime
import ipaddress
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

DAYS = 30


class Certificate(NamedTuple):
    """A private key and its certificate, in files of their own and, `both`, in one file (key first)."""

    key: Path
    certificate: Path
    both: Path


class Authority:
    """A certificate authority; clients trust the file `ca`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.ca = folder / "ca.pem"
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("AMS cluster on loopback")
        self._certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        self.ca.write_bytes(self._certificate.public_bytes(serialization.Encoding.PEM))

    def sign(self, name: str) -> Certificate:
        """Return a certificate for servers and clients called `name`, good for 127.0.0.1 and localhost."""
        key = ec.generate_private_key(ec.SECP256R1())
        public = self._key.public_key()
        certificate = (
            _builder(_name(name), self._name, key)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(_here(), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(public), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        return self._write(name, key, certificate)

    def _write(self, name: str, key: ec.EllipticCurvePrivateKey, certificate: x509.Certificate) -> Certificate:
        plain = serialization.NoEncryption()
        secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
        public = certificate.public_bytes(serialization.Encoding.PEM)
        files = Certificate(*(self.folder / f"{name}.{ending}" for ending in ("key", "pem", "both.pem")))
        for file, content in zip(files, (secret, public, secret + public), strict=True):
            file.touch(mode=0o600)
            file.write_bytes(content)
        return files


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _here() -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _builder(subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=DAYS))
    )
