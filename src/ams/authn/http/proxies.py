"""Clients behind a proxy: who they are when the connection is the proxy's (contract 15, A12).

A proxy that passes TLS through tells the client's address before the handshake: the PROXY protocol of haproxy, in
both its versions, which is this module. One that ends TLS itself is `ams.authn.http.relaying`. Never both.
"""

import ipaddress
import struct
from collections.abc import Iterable

Network = ipaddress.IPv4Network | ipaddress.IPv6Network

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
"""What version 2 begins with."""
_LINE_BYTES = 107
"""Most that a line of version 1 may have, with its end."""
_BINARY_BYTES = 16 + 4096
"""Most of version 2: addresses, and what proxies add to them."""
_ADDRESSES = {0x11: (4, 4), 0x21: (16, 16)}
"""Of TCP over IPv4 and IPv6: bytes of each address."""


class Malformed(Exception):
    """A connection from a proxy does not begin as it must; it is closed."""


class Preface:
    """What a proxy says before the handshake: whose connection it passes on."""

    def __init__(self) -> None:
        self._held = b""
        self.client: tuple[str, int] | None = None
        """The client; None as long as nothing is said, and where the proxy speaks for itself."""

    def feed(self, data: bytes) -> bytes | None:
        """Take what came; return what follows the preface, or None while it is not whole.

        Raises `Malformed`, at the latest when more came than a preface may have.
        """
        self._held += data
        held = self._held
        if held[: len(SIGNATURE)] == SIGNATURE[: len(held)]:
            return self._binary(held)
        if held[:6] == b"PROXY "[: len(held)]:
            return self._line(held)
        raise Malformed("no PROXY protocol")

    def _line(self, held: bytes) -> bytes | None:
        line, end, rest = held.partition(b"\r\n")
        if len(line) + 2 > _LINE_BYTES:
            raise Malformed("a line of the PROXY protocol is too long")
        if not end:
            return None
        words = line.decode("latin-1").split(" ")
        if words[1] != "UNKNOWN":
            self.client = _told(words)
        return rest

    def _binary(self, held: bytes) -> bytes | None:
        if len(held) < 16:
            return None
        command, family, length = struct.unpack_from("!BBH", held, len(SIGNATURE))
        if command not in (0x20, 0x21) or 16 + length > _BINARY_BYTES:
            raise Malformed("a preface of the PROXY protocol that is not understood")
        if len(held) < 16 + length:
            return None
        if command == 0x21 and family in _ADDRESSES:
            self.client = _packed(held[16 : 16 + length], *_ADDRESSES[family])
        return held[16 + length :]


def _told(words: list[str]) -> tuple[str, int]:
    """Read `PROXY TCP4 source destination port port`."""
    if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
        raise Malformed("a line of the PROXY protocol that is not understood")
    try:
        source, port = ipaddress.ip_address(words[2]), int(words[4])
        ipaddress.ip_address(words[3])
    except ValueError:
        raise Malformed("a line of the PROXY protocol without addresses") from None
    if source.version != int(words[1][3]) or not 0 <= port <= 65535:
        raise Malformed("a line of the PROXY protocol whose addresses are of another kind")
    return str(source), port


def _packed(block: bytes, source: int, destination: int) -> tuple[str, int]:
    if len(block) < source + destination + 4:
        raise Malformed("a preface of the PROXY protocol without addresses")
    port: int = struct.unpack_from("!H", block, source + destination)[0]
    return str(ipaddress.ip_address(block[:source])), port


def usual(address: str) -> str:
    """Return an IP address in its usual form: IPv4 in IPv6 as IPv4, without a zone; other text as it is."""
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


def is_address(text: str) -> bool:
    """Whether a text is an IP address."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


def is_within(address: str, networks: Iterable[Network]) -> bool:
    """Whether an address is in one of the networks."""
    try:
        found = ipaddress.ip_address(usual(address))
    except ValueError:
        return False
    return any(found in each for each in networks)
