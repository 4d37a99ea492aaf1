"""The guard: connections go to addresses of the public internet, and to networks that were allowed by name.

Whoever configures push names a host, and the service connects to it from inside. So what counts is not the name but
the address, looked at when connecting: it is resolved once, judged, and that address is connected to, so that a name
that answers differently the second time gains nothing (contract 17.2, A12).
"""

import asyncio
import ipaddress
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable, Sequence

import httpcore

from ams.errors import BadSettings

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
        "168.63.129.16/32",  # metadata of a cloud, on an address that looks public
        "192.88.99.0/24",  # relays of 6to4
        "192.0.0.0/24",  # of protocols; a cloud has its metadata in it
    )
)


class Refused(Exception):
    """The guard lets nobody connect there; the text may be shown to whoever asked."""


async def system_resolver(host: str, port: int) -> Sequence[str]:
    """Resolve as the machine does."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def networks(text: str) -> tuple[Network, ...]:
    """Read networks separated by commas, as `127.0.0.0/8,::1/128`; raise `BadSettings` for what is none."""
    try:
        return tuple(ipaddress.ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise BadSettings(f"push_allow: {error}") from None


class Guard:
    """Judges addresses: public ones pass, and those in `allowed`."""

    def __init__(self, allowed: Iterable[Network] = (), resolve: Resolver = system_resolver) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve

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


class GuardedNetwork(httpcore.AsyncNetworkBackend):
    """The network as HTTP clients see it through a guard; TLS still checks the certificate for the host's name."""

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._network = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        """Connect to one of the host's permitted addresses, the first that answers.

        `timeout` in seconds, for each. Raises `Refused`, or an `httpcore.ConnectError` or `ConnectTimeout`.
        """
        failure: Exception = httpcore.ConnectError(f"{host} has no address")
        for address in await self._permitted(host, port):
            try:
                return await self._network.connect_tcp(str(address), port, timeout, local_address, socket_options)
            except (httpcore.ConnectError, httpcore.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _permitted(self, host: str, port: int) -> Sequence[Address]:
        try:
            return await self._guard.addresses(host, port)
        except OSError as error:
            raise httpcore.ConnectError(f"{host} has no address: {error.strerror}") from error
        except UnicodeError as error:  # what can be no name, as an empty label
            raise httpcore.ConnectError(f"{host} has no address: it is no host name") from error


def pool(network: httpcore.AsyncNetworkBackend, trust: ssl.SSLContext) -> httpcore.AsyncConnectionPool:
    """Return a pool of connections through a guarded network. It follows no redirects and knows no proxies."""
    return httpcore.AsyncConnectionPool(trust, network_backend=network)


def trust(ca_file: str = "") -> ssl.SSLContext:
    """Return what certificates of endpoints are checked by: the system's CAs, and those in a file (PEM).

    Raises `BadSettings` when the file cannot be read.
    """
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # an ssl.SSLError is one
            raise BadSettings(f"push_ca_file {ca_file}: {error.strerror or error}") from error
    return context
