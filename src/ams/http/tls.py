"""TLS: contexts that follow their certificate, and a local CA for those who have none yet."""

import asyncio
import contextlib
import datetime
import ipaddress
import os
import signal
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import structlog

from ams.core.clock import Clock, SystemClock
from ams.core.errors import BadSettings
from ams.core.supervisor import Supervisor
from ams.storage.files import Disk, write_whole

logger = structlog.get_logger("ams.tls")

CHECK_SECONDS = 60  # between two looks whether a certificate changed
_YEARS = 5


@dataclass(slots=True)
class Certificate:
    """A certificate chain and key on disk, and the context that serves them; changed files are read again."""

    chain: str
    key: str
    context: ssl.SSLContext
    stamp: tuple[tuple[int, int, int], ...]
    renew: Callable[[], object] | None = None  # makes the files again when they are about to expire
    others: list[ssl.SSLContext] = field(default_factory=list)  # contexts that serve it beside that one

    @classmethod
    def load(cls, chain: str, key: str, context: ssl.SSLContext | None = None) -> "Certificate":
        """Read the files, into a context of one's own or a usual one; raise `BadSettings` with one line."""
        context = _served(context or ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        try:
            stamp = _stamp(chain, key)  # before they are read: what is written meanwhile is read the next time
            context.load_cert_chain(chain, key)
            return cls(chain, key, context, stamp)
        except (OSError, ssl.SSLError) as error:
            raise BadSettings(f"certificate {chain} with key {key}: {error}") from error

    @classmethod
    def local(cls, folder: str, context: ssl.SSLContext | None = None, clock: Clock | None = None) -> "Certificate":
        """Serve with what `self_signed` makes in `folder`, which is made again before it expires."""
        clock = clock or SystemClock()
        _, chain, key = self_signed(folder, clock)
        certificate = cls.load(chain, key, context)
        certificate.renew = lambda: self_signed(folder, clock)
        return certificate

    def context_for(self, protocols: Sequence[str]) -> ssl.SSLContext:
        """Return another context that follows the files; it agrees with clients on the first protocol they speak."""
        context = _served(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.set_alpn_protocols(list(protocols))
        context.load_cert_chain(self.chain, self.key)
        self.others.append(context)
        return context

    def reload(self, *, always: bool = False) -> None:
        """Read the files again if they changed; new connections get them, a bad pair is logged and not taken."""
        try:
            if self.renew is not None:
                self.renew()
            stamp = _stamp(self.chain, self.key)
            if stamp == self.stamp and not always:
                return
            self.stamp = stamp
            # A pair that does not match would spoil the serving context half-way: try it on a fresh one first.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.chain, self.key)
            for context in (self.context, *self.others):
                context.load_cert_chain(self.chain, self.key)
        except (OSError, ssl.SSLError) as error:
            logger.error("certificate.unusable", chain=self.chain, reason=str(error))
        else:
            logger.info("certificate.loaded", chain=self.chain)

    async def follow(self, supervisor: Supervisor, on_demand: Callable[[], None] | None = None) -> None:
        """Read the files again when they changed; at once on SIGHUP, when `on_demand` is called too."""
        hangup = asyncio.Event()
        with contextlib.suppress(ValueError):  # not the main thread: then only changes are followed
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, hangup.set)
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(hangup.wait(), CHECK_SECONDS)
            try:
                self.reload(always=hangup.is_set())
                if hangup.is_set() and on_demand is not None:
                    on_demand()
            except Exception:  # what was read before goes on
                supervisor.survive("certificate")
            hangup.clear()


def _served(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Clients that make a connection for every call begin each without a memory of the last (clients.md, R14): the
    # two tickets that a server gives by default were a tenth of all work for such a call.
    context.num_tickets = 0
    return context


def _stamp(chain: str, key: str) -> tuple[tuple[int, int, int], ...]:
    """Return what changes with the files: also with one that was renamed over another of the same time."""
    return tuple((found.st_mtime_ns, found.st_size, found.st_ino) for found in map(os.stat, (chain, key)))


def self_signed(folder: str, clock: Clock | None = None) -> tuple[str, str, str]:
    """Return paths of CA, certificate chain and key in `folder`, making what is missing or about to expire.

    ECDSA P-256, as a handshake with it costs a fraction of RSA's. The certificate names localhost, both loopback
    addresses and this host.
    """
    ca, chain, key = (os.path.join(folder, name) for name in ("ca.pem", "server.pem", "server.key"))
    now = datetime.datetime.fromtimestamp((clock or SystemClock()).wall() / 1000, datetime.UTC)
    if not _is_good(ca, chain, key, now):
        _make(ca, chain, key, now)
    return ca, chain, key


def _is_good(ca: str, chain: str, key: str, now: datetime.datetime) -> bool:
    """Return whether all three are there, belong together, and are not about to expire; a crash may have torn them."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        with open(ca, "rb") as ca_file, open(chain, "rb") as chain_file:
            authority = x509.load_pem_x509_certificate(ca_file.read())
            certificate = x509.load_pem_x509_certificate(chain_file.read())
        certificate.verify_directly_issued_by(authority)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
    except (OSError, ValueError, TypeError, InvalidSignature):  # an ssl.SSLError is an OSError
        return False
    return certificate.not_valid_after_utc > now + datetime.timedelta(days=30)


def _make(ca: str, chain: str, key: str, now: datetime.datetime) -> None:
    # Loading these takes a tenth of a second, needed once in years.
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

    def name(text: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

    ca_key, server_key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    issuer = name("AMS local CA")

    def certificate(subject: x509.Name, public: ec.EllipticCurvePublicKey, *, is_ca: bool) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=365 * _YEARS))
            .add_extension(x509.BasicConstraints(ca=is_ca, path_length=0 if is_ca else None), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(ca_key.public_key()), critical=False)
            .add_extension(
                x509.KeyUsage(
                    digital_signature=not is_ca, content_commitment=False, key_encipherment=False,
                    data_encipherment=False, key_agreement=False, key_cert_sign=is_ca, crl_sign=is_ca,
                    encipher_only=False, decipher_only=False,
                ),
                critical=True,
            )
        )  # fmt: skip

    hosts = dict.fromkeys(["localhost", socket.gethostname(), socket.getfqdn()])
    addresses = [ipaddress.ip_address("127.0.0.1"), ipaddress.ip_address("::1")]
    names = [*map(x509.DNSName, hosts), *map(x509.IPAddress, addresses)]
    authority = certificate(issuer, ca_key.public_key(), is_ca=True).sign(ca_key, hashes.SHA256())
    server = (
        certificate(name("localhost"), server_key.public_key(), is_ca=False)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(ca_key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = server_key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    # The key of the CA is thrown away: nothing else can be signed with it.
    write_whole(Disk(), key, private)
    for path, public in ((chain, server), (ca, authority)):
        write_whole(Disk(), path, public.public_bytes(pem))
        os.chmod(path, 0o644)
