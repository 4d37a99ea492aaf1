"""Hosts: whether the address a client comes from has a name that its certificate has too (contract 9.2; 15, A12).

A name found for an address counts only if that name leads back to the address: the owner of an address says which names
it has.
"""

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence

from cryptography import x509
from cryptography.x509.oid import NameOID

from ams.authn.certificates.reading import Facts, Refusal
from ams.outgoing.lookups import Lookups, in_thread

WAIT_SECONDS = 4.0
"""Most that a login waits for the names of its address."""
THREADS = 16
"""Look-ups at once; more of them wait."""
_MOST_NAMES = 8
"""Of one address that are looked at."""


class SystemNames:
    """Names as the machine finds them, in threads of their own."""

    def __init__(self, find: Callable[[str], Sequence[str]] | None = None, wait_seconds: float = WAIT_SECONDS) -> None:
        self._find = find or _system_names
        self._wait_seconds = wait_seconds
        self._places = asyncio.Semaphore(THREADS)

    async def of(self, address: str) -> Sequence[str]:
        """Return the names of an address, without final dots; raise `OSError` when there are none, or not in time.

        A place is free again when its thread has ended, however long that takes.
        """
        try:
            async with asyncio.timeout(self._wait_seconds):
                await self._places.acquire()
                return await in_thread(lambda: self._find(address), "ams-authn-names", self._places.release)
        except TimeoutError:
            raise socket.herror(socket.EAI_AGAIN, "the name servers do not answer") from None
        except RuntimeError as error:
            raise socket.herror(socket.EAI_AGAIN, f"names cannot be looked up: {error}") from error


class HostCheck:
    """Compares the names of an address with those of a certificate."""

    def __init__(
        self, names: SystemNames | None = None, addresses: Callable[[str, int], Awaitable[Sequence[str]]] | None = None
    ) -> None:
        self._names = names or SystemNames()
        self._addresses = addresses or Lookups()

    async def check(self, leaf: Facts, address: str) -> None:
        """Raise `Refusal` when no name of the address is one of the certificate's (contract 9.3, always 403)."""
        try:
            ip = ipaddress.ip_address(address)
        except ValueError:
            raise Refusal("host", f"lookup {address}: unrecognized address") from None
        names = await self._confirmed(ip)
        if any(matches(name, pattern) for name in names for pattern in dns_names(leaf)):
            return
        raise Refusal("host", mismatch(leaf, names[0]))

    async def _confirmed(self, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[str]:
        """Return the names of an address that lead back to it; raise `Refusal` when there are none."""
        try:
            found = list(await self._names.of(str(ip)))[:_MOST_NAMES]
        except (OSError, UnicodeError) as error:
            raise Refusal("host", f"lookup {ip.reverse_pointer}.: {_said(error)}") from error
        if not found:
            raise Refusal("host", f"lookup {ip.reverse_pointer}.: no such host")
        confirmed = [name for name in found if await self._leads_to(name, ip)]
        if not confirmed:
            raise Refusal("host", f"lookup {found[0]}.: its addresses do not include {ip}")
        return confirmed

    async def _leads_to(self, name: str, ip: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
        try:
            addresses = await self._addresses(name, 0)
        except (OSError, UnicodeError):
            return False
        return any(ipaddress.ip_address(each) == ip for each in addresses)


def dns_names(leaf: Facts) -> list[str]:
    """Return a certificate's DNS names; its common name is none."""
    extension = leaf.extension(x509.SubjectAlternativeName)
    return extension.get_values_for_type(x509.DNSName) if extension is not None else []


def matches(name: str, pattern: str) -> bool:
    """Whether a host name is that of a certificate: case and a final dot do not count, `*` is one whole first label.

    >>> matches("A.example.org.", "a.example.org"), matches("a.example.org", "*.Example.org")
    (True, True)
    >>> matches("a.b.example.org", "*.example.org"), matches("example.org", "*.example.org")
    (False, False)
    """
    host, wanted = (each.lower().removesuffix(".").split(".") for each in (name, pattern))
    if len(host) != len(wanted) or not all(host) or not all(wanted):
        return False
    if wanted[0] == "*" and len(wanted) > 1:
        return host[1:] == wanted[1:]
    return host == wanted


def mismatch(leaf: Facts, name: str) -> str:
    """Return what is said of a certificate without a host's name (contract 9.3); such names end with a dot there."""
    names = dns_names(leaf)
    if names:
        return f"x509: certificate is valid for {', '.join(names)}, not {name}."
    commons = [str(each.value) for each in leaf.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
    has_names = leaf.extension(x509.SubjectAlternativeName) is not None
    if commons and not has_names and matches(name, commons[-1]):
        return "x509: certificate relies on legacy Common Name field, use SANs instead"
    return f"x509: certificate is not valid for any names, but wanted to match {name}."


def _said(error: Exception) -> str:
    if isinstance(error, socket.herror | socket.gaierror) and error.errno == socket.EAI_AGAIN:
        return str(error.strerror)
    return "no such host"


def _system_names(address: str) -> Sequence[str]:
    name, aliases, _ = socket.gethostbyaddr(address)
    return list(dict.fromkeys(each.removesuffix(".") for each in (name, *aliases) if each))
