"""Protection against SSRF: connections go only to public addresses and to explicitly allowed networks.

Users configure hosts for push, issuers and revocation lists, and the service connects to them from inside. So the guard
checks addresses, not names. A name is resolved once, and the connection goes to one of the checked addresses. So DNS
rebinding has no effect (contract 17.2, A12).

The same users control which names are looked up, and their name servers may be slow. So concurrent lookups of a name
share one, in dedicated threads with bounded waits. Slow names have separate threads, so they delay only each other.
"""

import asyncio
import contextlib
import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, TypeVar

from ams.core.cache import ExpiringCache, LruCache
from ams.core.coalescing import SingleFlight
from ams.core.errors import BadSettings

T = TypeVar("T")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Returns the addresses of a host, as text. Raises `OSError` if there are none."""

THREADS, SLOW_THREADS = 32, 8  # maximum for names, and for names whose last lookup was slow
SLOW_SECONDS = 1.0  # a lookup that takes longer is slow
WAIT_SECONDS = 5.0  # timeout of a lookup
KEEP_SECONDS = 3.0  # lifetime of a cached answer
MAX_CACHED_NAMES = 10_000
ALL_NETWORKS = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
"""For hosts configured by administrators, which may be private."""

_GLOBAL_UNICAST = ipaddress.ip_network("2000::/3")
"""All assigned IPv6 unicast addresses. Outside are loopback, private and link-local addresses, and those that embed
IPv4 addresses and would bypass its rules: mapped and compatible (::/96) and NAT64 (64:ff9b::/96)."""
_REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(each)
    for each in (
        "2002::/16",  # 6to4: embeds an IPv4 address
        "2001::/32",  # Teredo: likewise
        "3fff::/20",  # documentation
        "168.63.129.16/32",  # metadata service of a cloud, on a public address
        "192.88.99.0/24",  # 6to4 relays
        "192.0.0.0/24",  # protocol assignments; includes the metadata service of a cloud
    )
)


class AddressRefused(Exception):
    """The guard refuses the connection; the text may be shown to clients."""


def networks(text: str, setting: str) -> tuple[Network, ...]:
    """Parse comma-separated networks or addresses. Raises `BadSettings`, which names the `setting`."""
    try:
        return tuple(ipaddress.ip_network(each.strip()) for each in text.split(",") if each.strip())
    except ValueError as error:
        raise BadSettings(f"{setting}: {error}") from None


class Guard:
    """Permits public addresses and those in `allowed`."""

    def __init__(self, allowed: Iterable[Network] = (), resolve: Resolver | None = None) -> None:
        self._allowed = tuple(allowed)
        self._resolve = resolve or Lookups()

    def permits(self, address: Address) -> bool:
        """Return whether connections to this address are permitted."""
        if any(address in network for network in self._allowed):
            return True
        if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
            return False
        return address.is_global and not address.is_multicast and not any(address in each for each in _REFUSED_NETWORKS)

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """Return the permitted addresses of a host. Raises `AddressRefused` without one, `OSError` without any."""
        found = [ipaddress.ip_address(each) for each in await self._resolve(host, port)]
        permitted = [each for each in found if self.permits(each)]
        if not permitted:
            raise AddressRefused(f"{host} is not a public address")
        return permitted


def in_thread(work: Callable[[], T], name: str, ended: Callable[[], None] = lambda: None) -> "asyncio.Future[T]":
    """Run `work` in a daemon thread, which does not block the end of the process. May raise `RuntimeError`.

    `ended` is called in the loop when the thread has ended, perhaps long after the caller stopped waiting, or if it
    could not start.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def settle(end: Callable[[Any], None], outcome: Any) -> None:
        ended()
        if not found.done():
            end(outcome)

    def run_work() -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            try:
                result = work()
            except Exception as error:
                loop.call_soon_threadsafe(settle, found.set_exception, error)
            else:
                loop.call_soon_threadsafe(settle, found.set_result, result)

    try:
        threading.Thread(target=run_work, name=name, daemon=True).start()
    except RuntimeError:
        ended()
        raise
    return found


def _system_find(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Lookups:
    """DNS lookups; a `Resolver` for the guard. `find` runs in a thread and raises `OSError` or `UnicodeError`."""

    def __init__(
        self, find: Callable[[str, int], Sequence[str]] = _system_find, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._find, self._wait_seconds = find, wait_seconds
        self._places = asyncio.Semaphore(THREADS)
        self._slow_places = asyncio.Semaphore(SLOW_THREADS)
        self._answers: ExpiringCache[str, Sequence[str]] = ExpiringCache(MAX_CACHED_NAMES, KEEP_SECONDS, time.monotonic)
        self._slow: LruCache[str, bool] = LruCache(MAX_CACHED_NAMES)
        self._going_on: SingleFlight[str, Sequence[str]] = SingleFlight()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host. Raises `OSError` if there are none, also on timeout."""
        with contextlib.suppress(ValueError):  # a name, or an address in an unusual notation, which the system parses
            ipaddress.ip_address(host)
            return [host]
        if (known := self._answers.get(host)) is not None:
            return known
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await self._going_on.result(host, lambda: self._look_up(host, port))
        except TimeoutError:
            self._slow.put(host, True)
            raise socket.gaierror(socket.EAI_AGAIN, "its name servers do not answer") from None

    async def _look_up(self, host: str, port: int) -> Sequence[str]:
        async with self._slow_places if self._slow.peek(host) else self._places:
            began = time.monotonic()
            try:
                addresses = await in_thread(lambda: self._find(host, port), "ams-lookup")
            except RuntimeError as error:
                raise socket.gaierror(socket.EAI_AGAIN, f"names cannot be looked up: {error}") from error
        if time.monotonic() - began < SLOW_SECONDS:
            self._slow.discard(host)
        else:
            self._slow.put(host, True)
        self._answers.put(host, addresses)
        return addresses


def trust(ca_file: str = "", setting: str = "", *, verify: bool = True) -> ssl.SSLContext:
    """Return a TLS context with the system's CAs and those in a PEM file; `verify=False` is for development.

    Raises `BadSettings`, which names the `setting`, if the file is unreadable.
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
