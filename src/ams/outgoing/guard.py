"""The guard: connections go to addresses of the public internet, and to networks that were allowed by name.

Users who configure push, an issuer or a list of revoked certificates name a host, and the service connects to it from
inside. So the address counts and not the name, looked at when connecting: it is resolved once, judged, and that
address is connected to, so that a name that answers differently the second time gains nothing (contract 17.2, A12).

The same users say which names are looked up, and a name server of theirs may take its time. So a name is looked up once
for all who ask, in threads of their own. Waits for its answer are bounded, and names that were slow have threads apart:
they cost each other time, and no other names.
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
from ams.core.coalescing import Shared
from ams.core.errors import BadSettings

T = TypeVar("T")
Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Finds the addresses of a host, as text; raises `OSError` when there are none."""

THREADS, SLOW_THREADS = 32, 8  # at most, for names, and for those that were slow the last time
SLOW_SECONDS = 1.0  # from here on a name counts as slow
WAIT_SECONDS = 5.0  # most that is waited for a name
KEEP_SECONDS = 3.0  # how long an answer is used again
REMEMBERED = 10_000  # most names whose answers or slowness are remembered
EVERYWHERE = (ipaddress.ip_network("0.0.0.0/0"), ipaddress.ip_network("::/0"))
"""Allowed where administrators name the hosts, private ones too."""

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
        """Return whether connecting to this address is fine."""
        if any(address in network for network in self._allowed):
            return True
        if isinstance(address, ipaddress.IPv6Address) and address not in _GLOBAL_UNICAST:
            return False
        return address.is_global and not address.is_multicast and not any(address in each for each in _REFUSED)

    async def addresses(self, host: str, port: int) -> Sequence[Address]:
        """Return where `host` may be connected to; raise `Refused` when nowhere, `OSError` when it has no address."""
        found = [ipaddress.ip_address(each) for each in await self._resolve(host, port)]
        permitted = [each for each in found if self.permits(each)]
        if not permitted:
            raise Refused(f"{host} is not a public address")
        return permitted


def in_thread(work: Callable[[], T], name: str, ended: Callable[[], None] = lambda: None) -> "asyncio.Future[T]":
    """Work in a thread that keeps no process from ending, as those of an executor would; may raise `RuntimeError`.

    `ended` is called in the loop when the thread has ended, perhaps long after its result is waited for, or never
    began.
    """
    loop = asyncio.get_running_loop()
    found: asyncio.Future[T] = loop.create_future()

    def settle(result: Any, error: Exception | None) -> None:
        ended()
        if found.done():
            return
        if error is None:
            found.set_result(result)
        else:
            found.set_exception(error)

    def run() -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended meanwhile
            try:
                result = work()
            except Exception as error:
                loop.call_soon_threadsafe(settle, None, error)
            else:
                loop.call_soon_threadsafe(settle, result, None)

    try:
        threading.Thread(target=run, name=name, daemon=True).start()
    except RuntimeError:
        ended()
        raise
    return found


def _system_find(host: str, port: int) -> Sequence[str]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


class Lookups:
    """Looks names up; a `Resolver` for the guard. `find` runs in a thread, and raises `OSError` or `UnicodeError`."""

    def __init__(
        self, find: Callable[[str, int], Sequence[str]] = _system_find, wait_seconds: float = WAIT_SECONDS
    ) -> None:
        self._find, self._wait_seconds = find, wait_seconds
        self._places = asyncio.Semaphore(THREADS)
        self._slow_places = asyncio.Semaphore(SLOW_THREADS)
        self._answers: ExpiringCache[str, Sequence[str]] = ExpiringCache(REMEMBERED, KEEP_SECONDS, time.monotonic)
        self._slow: LruCache[str, bool] = LruCache(REMEMBERED)
        self._going_on: Shared[str, Sequence[str]] = Shared()

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        """Return the addresses of a host; raise `OSError` when there are none, or none in time."""
        with contextlib.suppress(ValueError):  # a name, or an address in an odd notation: the machine says which
            ipaddress.ip_address(host)
            return [host]
        known = self._answers.get(host)
        if known is not None:
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
    """Return a context by the system's CAs and those in a file (PEM); `verify=False` is for development.

    Raises `BadSettings`, which names the `setting`, when the file cannot be read.
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
