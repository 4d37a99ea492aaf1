"""Certificate authorities for tests: they sign, revoke, and answer OCSP. All in memory; `write` makes files.

All is valid from ten years before to ten years after the test run, by default.
"""

import datetime
import ipaddress
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509 import ocsp
from cryptography.x509.oid import AuthorityInformationAccessOID, ExtendedKeyUsageOID, NameOID

NOW = datetime.datetime.now(datetime.UTC).replace(microsecond=0)  # when the tests began
HOUR = datetime.timedelta(hours=1)
DAY = datetime.timedelta(days=1)
YEARS = datetime.timedelta(days=3650)

OIDS = {
    "E": NameOID.EMAIL_ADDRESS, "SERIALNUMBER": NameOID.SERIAL_NUMBER, "CN": NameOID.COMMON_NAME,
    "OU": NameOID.ORGANIZATIONAL_UNIT_NAME, "O": NameOID.ORGANIZATION_NAME, "POSTALCODE": NameOID.POSTAL_CODE,
    "STREET": NameOID.STREET_ADDRESS, "L": NameOID.LOCALITY_NAME, "ST": NameOID.STATE_OR_PROVINCE_NAME,
    "C": NameOID.COUNTRY_NAME, "DC": NameOID.DOMAIN_COMPONENT, "UID": NameOID.USER_ID, "GN": NameOID.GIVEN_NAME,
    "TITLE": NameOID.TITLE,
}  # fmt: skip
Subject = str | Sequence[tuple[str, str]] | x509.Name
"""A common name, labels and values in encoded order, or a whole name."""
Extension = tuple[x509.ExtensionType, bool]  # the extension, and whether it is critical

CLIENT: Extension = (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH]), False)
SERVER: Extension = (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), False)
BOTH: Extension = (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]), False)
NO_CA: Extension = (x509.BasicConstraints(ca=False, path_length=None), True)


def name_of(subject: Subject) -> x509.Name:
    """Return a name; also with values that are too long or empty, as in some certificates."""
    if isinstance(subject, x509.Name):
        return subject
    pairs = [("CN", subject)] if isinstance(subject, str) else subject
    with warnings.catch_warnings(action="ignore"):
        return x509.Name([x509.NameAttribute(OIDS[label], value, _validate=False) for label, value in pairs])


def key_usage(*allowed: str) -> Extension:
    names = (
        "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
        "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
    )  # fmt: skip
    return x509.KeyUsage(**{name: name in allowed for name in names}), True


def alternative_names(*hosts: str) -> Extension:
    return x509.SubjectAlternativeName([_general(host) for host in hosts]), False


def distribution_points(*urls: str) -> Extension:
    points = [x509.DistributionPoint([x509.UniformResourceIdentifier(url)], None, None, None) for url in urls]
    return x509.CRLDistributionPoints(points), False


@dataclass(frozen=True)
class Credentials:
    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

    @property
    def pem(self) -> bytes:
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())

    def write(self, folder: Path, name: str, *chain: x509.Certificate) -> tuple[str, str]:
        certificate, key = folder / f"{name}.pem", folder / f"{name}.key"
        certificate.write_bytes(self.pem + b"".join(each.public_bytes(Encoding.PEM) for each in chain))
        key.write_bytes(self.key_pem)
        return str(certificate), str(key)


@dataclass(frozen=True)
class Authority(Credentials):
    chain: tuple[x509.Certificate, ...] = ()  # the CAs above it, the root last

    @classmethod
    def make(
        cls, name: Subject = "Test Root", *, issuer: "Authority | None" = None, path_length: int | None = None,
        crl_urls: Sequence[str] = (), usage: Sequence[str] = ("key_cert_sign", "crl_sign"),
        extensions: Sequence[Extension] = (), **dates: datetime.datetime,
    ) -> "Authority":  # fmt: skip
        """Make a root, or a CA below `issuer`; `dates` are `not_before` and `not_after`."""
        key = ec.generate_private_key(ec.SECP256R1())
        basic = (x509.BasicConstraints(ca=True, path_length=path_length), True)
        chosen: list[Extension] = [basic, key_usage(*usage), *extensions]
        if crl_urls:
            chosen.append(distribution_points(*crl_urls))
        certificate = _sign_certificate(key, name_of(name), issuer, chosen, **dates)
        return cls(certificate, key, (issuer.certificate, *issuer.chain) if issuer else ())

    def signs(
        self, subject: Subject = "Jane", *, extensions: Sequence[Extension] = (NO_CA,), hosts: Sequence[str] = (),
        crl_urls: Sequence[str] = (), ocsp_urls: Sequence[str] = (), serial: int | None = None,
        key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey | None = None, **dates: datetime.datetime,
    ) -> Credentials:  # fmt: skip
        key = key or ec.generate_private_key(ec.SECP256R1())
        chosen = list(extensions)
        if hosts:
            chosen.append(alternative_names(*hosts))
        if crl_urls:
            chosen.append(distribution_points(*crl_urls))
        if ocsp_urls:
            chosen.append((_responders(ocsp_urls), False))
        return Credentials(_sign_certificate(key, name_of(subject), self, chosen, serial, **dates), key)

    def signs_changed(self, certificate: x509.Certificate, old: bytes, new: bytes) -> x509.Certificate:
        """Return a certificate with some bytes replaced by as many others, signed again: libraries cannot make it."""
        return x509.load_der_x509_certificate(self.signs_bytes(certificate, old, new))

    def signs_bytes(self, signed: x509.Certificate | x509.CertificateRevocationList, old: bytes, new: bytes) -> bytes:
        """Return such a certificate or list, in DER, which the library may refuse."""
        assert len(old) == len(new)
        body = signed.tbs_certificate_bytes if isinstance(signed, x509.Certificate) else signed.tbs_certlist_bytes
        assert old in body
        body = body.replace(old, new)
        whole = signed.public_bytes(Encoding.DER)
        algorithm = bytes.fromhex("300a06082a8648ce3d040302")  # ecdsa-with-SHA256
        assert algorithm in whole
        assert isinstance(self.key, ec.EllipticCurvePrivateKey)
        signature = self.key.sign(body, ec.ECDSA(hashes.SHA256()))
        return der(0x30, body + algorithm + der(0x03, b"\x00" + signature))

    def signs_with_sha1(self, certificate: x509.Certificate) -> x509.Certificate:
        """Return a certificate signed with SHA-1, which libraries do not make any more."""
        now, once = (bytes.fromhex(each) for each in ("300a06082a8648ce3d040302", "300906072a8648ce3d0401"))
        old = certificate.tbs_certificate_bytes
        head = 2 if old[1] < 0x80 else 2 + (old[1] & 0x7F)
        body = der(0x30, old[head:].replace(now, once))
        assert isinstance(self.key, ec.EllipticCurvePrivateKey)
        signature = self.key.sign(body, ec.ECDSA(hashes.SHA1()))  # that is the point
        return x509.load_der_x509_certificate(der(0x30, body + once + der(0x03, b"\x00" + signature)))

    def crl(
        self, revoked: Iterable[x509.Certificate | int] = (), *, this_update: datetime.datetime = NOW - HOUR,
        next_update: datetime.datetime = NOW + DAY, number: int = 1, reason: x509.ReasonFlags | None = None,
        extensions: Sequence[Extension] = (), signer: "Authority | None" = None,
    ) -> bytes:  # fmt: skip
        builder = (
            x509.CertificateRevocationListBuilder().issuer_name(self.certificate.subject).last_update(this_update)
            .next_update(next_update).add_extension(x509.CRLNumber(number), critical=False)
        )  # fmt: skip
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        for each in revoked:
            serial = each if isinstance(each, int) else each.serial_number
            entry = x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(this_update)
            if reason is not None:
                entry = entry.add_extension(x509.CRLReason(reason), critical=False)
            builder = builder.add_revoked_certificate(entry.build())
        return builder.sign((signer or self).key, hashes.SHA256()).public_bytes(Encoding.DER)

    def ocsp_responder(self, *, not_after: datetime.datetime = NOW + YEARS, purpose: bool = True) -> Credentials:
        """Return a delegated responder of this CA; without `purpose` its certificate does not say so."""
        use: Extension = (x509.ExtendedKeyUsage([ExtendedKeyUsageOID.OCSP_SIGNING]), False)
        return self.signs("OCSP responder", not_after=not_after, extensions=[NO_CA, use] if purpose else [NO_CA])

    def ocsp(
        self, certificate: x509.Certificate, status: ocsp.OCSPCertStatus = ocsp.OCSPCertStatus.GOOD, *,
        this_update: datetime.datetime = NOW - HOUR, next_update: datetime.datetime | None = NOW + DAY,
        responder: Credentials | None = None,
    ) -> bytes:  # fmt: skip
        """Return an answer about a certificate, signed by this CA or by `responder`."""
        signer = responder or self
        is_revoked = status is ocsp.OCSPCertStatus.REVOKED
        builder = (
            ocsp.OCSPResponseBuilder()
            .add_response(
                cert=certificate,
                issuer=self.certificate,
                algorithm=hashes.SHA1(),  # as those who ask do
                cert_status=status,
                this_update=this_update,
                next_update=next_update,
                revocation_time=this_update if is_revoked else None,
                revocation_reason=None,
            )
            .responder_id(ocsp.OCSPResponderEncoding.HASH, signer.certificate)
        )
        if responder is not None:
            builder = builder.certificates([responder.certificate])
        return builder.sign(signer.key, hashes.SHA256()).public_bytes(Encoding.DER)


def pem_list(data: bytes) -> bytes:
    return x509.load_der_x509_crl(data).public_bytes(Encoding.PEM)


def der(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes([tag, size]) + content
    length = size.to_bytes((size.bit_length() + 7) // 8, "big")
    return bytes([tag, 0x80 | len(length)]) + length + content


def _sign_certificate(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, subject: x509.Name, issuer: Authority | None,
    extensions: Sequence[Extension], serial: int | None = None, *, not_before: datetime.datetime = NOW - YEARS,
    not_after: datetime.datetime = NOW + YEARS,
) -> x509.Certificate:  # fmt: skip
    builder = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(issuer.certificate.subject if issuer else subject)
        .public_key(key.public_key()).serial_number(serial or x509.random_serial_number()).not_valid_before(not_before)
        .not_valid_after(not_after)
    )  # fmt: skip
    for extension, critical in extensions:
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(issuer.key if issuer else key, hashes.SHA256())


def _responders(urls: Sequence[str]) -> x509.AuthorityInformationAccess:
    method = AuthorityInformationAccessOID.OCSP
    return x509.AuthorityInformationAccess(
        [x509.AccessDescription(method, x509.UniformResourceIdentifier(url)) for url in urls]
    )


def _general(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
