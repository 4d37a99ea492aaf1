"""TLS: contexts that reload their certificate, and a local CA if there is no certificate yet."""

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

CHECK_SECONDS = 60  # between two checks for a changed certificate
_VALIDITY_YEARS = 5


@dataclass(slots=True)
class Certificate:
    """A certificate chain and key on disk, and the context that serves them. Changed files are reloaded."""

    chain: str
    key: str
    context: ssl.SSLContext
    stamp: tuple[tuple[int, int, int], ...]
    renew: Callable[[], object] | None = None  # recreates the files before they expire
    others: list[ssl.SSLContext] = field(default_factory=list)  # further contexts that serve it

    @classmethod
    def load(cls, chain: str, key: str, context: ssl.SSLContext | None = None) -> "Certificate":
        """Load the files into a context, given or new. Raises `BadSettings` with one line."""
        context = _serving_context(context or ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        try:
            stamp = _stamp(chain, key)  # before loading: later changes are found next time
            context.load_cert_chain(chain, key)
            return cls(chain, key, context, stamp)
        except (OSError, ssl.SSLError) as error:
            raise BadSettings(f"certificate {chain} with key {key}: {error}") from error

    @classmethod
    def local(cls, folder: str, context: ssl.SSLContext | None = None, clock: Clock | None = None) -> "Certificate":
        """Load a self-signed certificate from `folder`, created by `self_signed` and renewed before it expires."""
        _, chain, key = self_signed(folder, clock)
        certificate = cls.load(chain, key, context)
        certificate.renew = lambda: self_signed(folder, clock)
        return certificate

    def context_for(self, protocols: Sequence[str]) -> ssl.SSLContext:
        """Return a further context for the files; its clients get the first protocol they support."""
        context = _serving_context(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        context.set_alpn_protocols(list(protocols))
        context.load_cert_chain(self.chain, self.key)
        self.others.append(context)
        return context

    def reload(self, *, always: bool = False) -> None:
        """Reload changed files for new connections. A bad pair is logged and ignored."""
        try:
            if self.renew is not None:
                self.renew()
            stamp = _stamp(self.chain, self.key)
            if stamp == self.stamp and not always:
                return
            self.stamp = stamp
            # A pair that does not match would leave the serving context half changed: try a new context first.
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(self.chain, self.key)
            for context in (self.context, *self.others):
                context.load_cert_chain(self.chain, self.key)
        except (OSError, ssl.SSLError) as error:
            logger.error("certificate.unusable", chain=self.chain, reason=str(error))
        else:
            logger.info("certificate.loaded", chain=self.chain)

    async def follow(self, supervisor: Supervisor, on_demand: Callable[[], None] | None = None) -> None:
        """Reload the files when they change, and at once on SIGHUP, which also calls `on_demand`."""
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
            except Exception:  # the previous certificate stays
                supervisor.log_failure("certificate")
            hangup.clear()


def _serving_context(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Clients that open a connection for each call use no session tickets (clients.md, R14). The two tickets that a
    # server sends by default were a tenth of all work for such a call.
    context.num_tickets = 0
    return context


def _stamp(chain: str, key: str) -> tuple[tuple[int, int, int], ...]:
    """Return the identity of the files, which changes even if a file is replaced by one of the same time."""
    return tuple((found.st_mtime_ns, found.st_size, found.st_ino) for found in map(os.stat, (chain, key)))


def self_signed(folder: str, clock: Clock | None = None) -> tuple[str, str, str]:
    """Return paths of CA, certificate chain and key in `folder`; creates missing and renews expiring ones.

    ECDSA P-256: its handshakes cost a fraction of RSA's. The certificate names localhost, both loopback addresses and
    this host.
    """
    ca, chain, key = (os.path.join(folder, name) for name in ("ca.pem", "server.pem", "server.key"))
    now = datetime.datetime.fromtimestamp((clock or SystemClock()).wall() / 1000, datetime.UTC)
    if not _is_good(ca, chain, key, now):
        _make(ca, chain, key, now)
    return ca, chain, key


def _is_good(ca: str, chain: str, key: str, now: datetime.datetime) -> bool:
    """Return whether all three exist, match, and do not expire soon; a crash may have left a mix."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature

    try:
        with open(ca, "rb") as ca_file, open(chain, "rb") as chain_file:
            authority = x509.load_pem_x509_certificate(ca_file.read())
            certificate = x509.load_pem_x509_certificate(chain_file.read())
        certificate.verify_directly_issued_by(authority)
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(chain, key)
    except (OSError, ValueError, TypeError, InvalidSignature):  # ssl.SSLError is an OSError
        return False
    return certificate.not_valid_after_utc > now + datetime.timedelta(days=30)


def _make(ca: str, chain: str, key: str, now: datetime.datetime) -> None:
    # Local import: takes a tenth of a second, and is needed once in years.
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
            .not_valid_after(now + datetime.timedelta(days=365 * _VALIDITY_YEARS))
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
    # The key of the CA is not kept: nothing else can be signed with it.
    write_whole(Disk(), key, private)
    for path, public in ((chain, server), (ca, authority)):
        write_whole(Disk(), path, public.public_bytes(pem))
        os.chmod(path, 0o644)
