"""Sites that sign what they send, and the authority that vouches for them; all made up."""

from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from random import Random

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs7
from cryptography.x509.oid import NameOID

_FROM, _TO = datetime(2020, 1, 1, tzinfo=UTC), datetime(2040, 1, 1, tzinfo=UTC)
_OPTIONS = (pkcs7.PKCS7Options.DetachedSignature, pkcs7.PKCS7Options.Text)


@dataclass(frozen=True, slots=True)
class Sender:
    """A site with its host's certificate."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    def signed(self, text: bytes) -> bytes:
        """Return a text in an S/MIME envelope; the same text gives another signature each time."""
        builder = pkcs7.PKCS7SignatureBuilder().set_data(text).add_signer(self.certificate, self.key, SHA256())
        return builder.sign(Encoding.SMIME, _OPTIONS)


class Senders:
    """An authority, the senders it vouches for, and the service that texts may be encrypted for."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)  # keys of nobody
        self._authority_key = self._key()
        name = _name("Example CA")
        self.authority = self._certificate(name, name, self._authority_key.public_key(), is_authority=True)

    def sender(self, organisation: str, host: str) -> Sender:
        """Return a new sender, `/DC=org/DC=example/O=ORGANISATION/CN=HOST`."""
        key = self._key()
        return Sender(self._certificate(_name(host, organisation), self.authority.subject, key.public_key()), key)

    @cached_property
    def _service(self) -> tuple[rsa.RSAPrivateKey, x509.Certificate]:
        key = rsa.generate_private_key(65537, 2048)
        return key, self._certificate(_name("accounting.example.org"), self.authority.subject, key.public_key())

    def encrypted(self, text: bytes) -> bytes:
        """Return a text in an envelope that only the service can open."""
        builder = pkcs7.PKCS7EnvelopeBuilder().set_data(text).add_recipient(self._service[1])
        return builder.encrypt(Encoding.SMIME, [pkcs7.PKCS7Options.Binary])

    def write(self, folder: Path) -> None:
        """Write `ca.pem`, and the service's `service.pem` and `service.key`, for the job that reads."""
        folder.mkdir(parents=True, exist_ok=True)
        key, certificate = self._service
        (folder / "ca.pem").write_bytes(self.authority.public_bytes(Encoding.PEM))
        (folder / "service.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
        (folder / "service.key").touch(mode=0o600)
        (folder / "service.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    def _key(self) -> ec.EllipticCurvePrivateKey:
        return ec.derive_private_key(self._random.getrandbits(255) + 1, ec.SECP256R1())

    def _certificate(
        self,
        subject: x509.Name,
        issuer: x509.Name,
        key: ec.EllipticCurvePublicKey | rsa.RSAPublicKey,
        *,
        is_authority: bool = False,
    ) -> x509.Certificate:
        constraints = x509.BasicConstraints(ca=is_authority, path_length=None)
        builder = x509.CertificateBuilder(issuer, subject, key, self._random.getrandbits(100) + 1, _FROM, _TO)
        return builder.add_extension(constraints, critical=True).sign(self._authority_key, SHA256())


def _name(host: str, organisation: str | None = None) -> x509.Name:
    parts = [(NameOID.DOMAIN_COMPONENT, "org"), (NameOID.DOMAIN_COMPONENT, "example")]
    parts += [(NameOID.ORGANIZATION_NAME, organisation)] if organisation else []
    return x509.Name([x509.NameAttribute(kind, text) for kind, text in [*parts, (NameOID.COMMON_NAME, host)]])
