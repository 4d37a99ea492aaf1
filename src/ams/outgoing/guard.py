"""The guard: connections go to addresses of the public internet, and to networks that were allowed by name.

Those who configure push, an issuer or a list of revoked certificates name a host, and the service connects to it from
inside. So what counts is not the name but the address, looked at when connecting: it is resolved once, judged, and that
address is connected to, so that a name that answers differently the second time gains nothing (contract 17.2, A12).
"""

import ipaddress
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence

from ams.core.errors import BadSettings
from ams.outgoing.lookups import Lookups

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Finds the addresses of a host, as text; raises `OSError` when there are none."""

_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""All of IPv6 that is given out. Outside are loopback, private and link-local addresses, and those that wrap IPv4 ones:
mapped and compatible (::/96) and NAT64 (64:ff9b::/96), which would lead around the rules for IPv4."""
_REFUSED = tuple(
    ipaddress.ip_network(each)
    for each in (
        "2002::/16",  # 6to4: wraps an IPv4 address
        "2001::/32",  # Teredo: likewise
        "3fff::/20",  # of documentation
        "168.63.129.16/32",  # metadata of a cloud, on an address that looks public
        "192.88.99.0/24",  # relays of 6to4
        "192.0.0.0/24",  # of protocols; a cloud has its metadata in it
    )
)


class Refused(Exception):
    """The guard permits no connection there; the text may be shown to the client."""


EVERYWHERE = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
"""Allowed where administrators name the hosts, private ones too."""


def networks(text: str, setting: str) -> tuple[Network, ...]:
    """Read networks or addresses with commas between them; raise `BadSettings`, which names the `setting`."""
    try:
        return tuple(ipaddress.ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise BadSettings(f"{setting}: {error}") from None


class Guard:
    """Judges addresses: public ones pass, and those in `allowed`."""

    def __init__(self, allowed: Iterable[Network] = (), resolve: Resolver | None = None) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve or Lookups()

    def permits(self, address: Address) -> bool:
        """Whether connecting to this address is fine."""
        return any(address in network for network in self._allowed) or _is_public(address)

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """Return where `host` may be connected to; raise `Refused` when nowhere, `OSError` when it has no address."""
        found = [ipaddress.ip_address(each) for each in await self._resolve(host, port)]
        permitted = [each for each in found if self.permits(each)]
        if not permitted:
            raise Refused(f"{host} is not a public address")
        return permitted


def _is_public(address: Address) -> bool:
    if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
        return False
    return address.is_global and not address.is_multicast and not any(address in each for each in _REFUSED)


def trust(ca_file: str = "", setting: str = "", *, verify: bool = True) -> ssl.SSLContext:
    """Return what certificates of others are checked by: the system's CAs, and those in a file (PEM).

    `verify=False` accepts any certificate; only for development. Raises `BadSettings`, which names the `setting`, when
    the file cannot be read.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # an ssl.SSLError is one
            raise BadSettings(f"{setting} {ca_file}: {error.strerror or error}") from error
    return context
