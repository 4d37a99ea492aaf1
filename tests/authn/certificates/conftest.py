"""A CA with an intermediate CA, a folder that trusts it, and a server with its lists, for the whole package."""

import ipaddress
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from ams.authn.certificates.certificate import load
from ams.authn.certificates.validation import CertificateChecks, HostCheck
from ams.authn.settings import AuthnSettings
from ams.authn.values import Presented
from ams.core.errors import CertificateRefused, Unavailable
from ams.outgoing.address_guard import Guard
from tests.support.authorities import NOW, Authority, Credentials
from tests.support.clock import ManualClock
from tests.support.publishing import Publishing

LOOPBACK = [ipaddress.ip_network("127.0.0.0/8")]
BELIEVED = "believed"
REVOKED = "refused: Your certificate has been revoked"
EXPIRED = "refused: Your certificate has expired"
Leaf = Credentials | x509.Certificate | bytes  # a certificate of a client; in DER where the library may refuse it


@dataclass(frozen=True)
class World:
    """Authorities and their certificates; made once, as keys and signatures are slow."""

    root: Authority
    below: Authority  # a CA below the root, with a list of its own in the certificate of the root's
    jane: Credentials  # signed by the root, with a list at `/root.crl`


@dataclass
class Site:
    folder: Path
    clock: ManualClock
    stack: AsyncExitStack
    root: Authority
    below: Authority
    jane: Credentials
    hosts: HostCheck | None = None
    guard: Guard = field(default_factory=lambda: Guard(LOOPBACK))

    def trusts(self, *authorities: x509.Certificate, name: str = "ca.pem") -> None:
        pems = [each.public_bytes(Encoding.PEM) for each in authorities]
        (self.folder / name).write_bytes(b"".join(pems))

    def has_list(self, data: bytes, name: str = "ca.r0") -> None:
        (self.folder / name).write_bytes(data)

    def checks(self, crl_folder: str = "", **settings: object) -> CertificateChecks:
        chosen = AuthnSettings(client_ca=str(self.folder), **settings)  # type: ignore[arg-type]
        checks = CertificateChecks(chosen, self.guard, self.clock, crl_folder, hosts=self.hosts)
        self.stack.push_async_callback(checks.close)
        return checks

    async def judge(self, leaf: Leaf, *chain: x509.Certificate | bytes, **options: object) -> str:
        return await judge_leaf(self.checks(**options), leaf, *chain, verify_host=self.hosts is not None)


async def judge_leaf(
    checks: CertificateChecks, leaf: Leaf, *chain: x509.Certificate | bytes, verify_host: bool = False
) -> str:
    """Return `believed`, the reason of a refusal, or the reason why nothing can be decided."""
    try:
        await checks.check(present_chain(leaf, *chain), "127.0.0.1", verify_host=verify_host)
    except CertificateRefused as error:
        return f"refused: {error.message}"
    except Unavailable as error:
        return f"unable: {error.message}"
    return BELIEVED


def present_chain(leaf: Leaf, *chain: x509.Certificate | bytes) -> Presented:
    shown = tuple(each if isinstance(each, bytes) else each.public_bytes(Encoding.DER) for each in chain)
    if isinstance(leaf, bytes):
        certificate, signed = load(leaf)
        return Presented(certificate, shown, signed)
    return Presented(leaf.certificate if isinstance(leaf, Credentials) else leaf, shown)


@pytest.fixture(scope="session")
def world(running_publishing: Publishing) -> World:
    root = Authority.make("Test Root")
    below = Authority.make("Test CA", issuer=root, crl_urls=[running_publishing.url("/root.crl")])
    return World(root, below, root.signs("Jane", crl_urls=[running_publishing.url("/root.crl")]))


@pytest.fixture
async def site(tmp_path: Path, world: World, publishing: Publishing) -> AsyncIterator[Site]:
    folder = tmp_path / "authorities"
    folder.mkdir()
    async with AsyncExitStack() as stack:
        clock = ManualClock(int(NOW.timestamp()) * 1000)
        made = Site(folder, clock, stack, world.root, world.below, world.jane)
        made.trusts(world.root.certificate)
        yield made
