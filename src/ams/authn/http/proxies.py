"""Clients behind a proxy: their address and certificate, as stated by the proxy (contract 15, A12).

A proxy that passes TLS through states the client's address before the handshake, by haproxy's PROXY protocol, versions
1 and 2: `Preface`. A proxy that ends TLS states the client's certificate in headers: `Relaying`. Never both.

A header counts only on a connection whose certificate passes all checks and has a listed subject. Such a proxy's own
certificate is never a client's: without the header there is no client certificate.
"""

import base64
import binascii
import ipaddress
import re
import struct
import urllib.parse
from collections.abc import Sequence
from typing import Any

from cryptography import x509

from ams.authn.certificates.certificate import load, subject_of, unrepresentable
from ams.authn.certificates.validation import CertificateChecks
from ams.authn.http.errors import refusal
from ams.authn.values import PEER, UNREADABLE, Peer, Presented, without_secrets
from ams.core.distinguished_names import normalise_name, of_certificate
from ams.core.errors import AmsError, CertificateRefused
from ams.http.asgi import JSON, Application, Receive, Send, answer, usual_address
from ams.storage.audit.trail import FailedLogins

SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"  # start of version 2
_MAX_LINE_BYTES = 107  # longest line of version 1, with its end
_MAX_BINARY_BYTES = 16 + 4096  # longest version 2: addresses, and additions of proxies
_ADDRESSES = {0x11: 4, 0x21: 16}  # TCP over IPv4 and IPv6: bytes of each address

NOT_A_PROXY = "A certificate in a header is taken from listed proxies only"
FORWARDED_FOR = b"x-forwarded-for"
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


class BadPreface(Exception):
    """A connection from a proxy has no valid preface; it is closed."""


class Preface:
    """PROXY protocol before the handshake: the address of the forwarded client."""

    def __init__(self) -> None:
        self._held = b""
        self.client: tuple[str, int] | None = None  # None before it is complete, and for the proxy's own connection

    def feed(self, data: bytes) -> bytes | None:
        """Take received bytes. Returns the bytes after a complete preface, else None. Raises `BadPreface`."""
        self._held += data
        held = self._held
        if held[: len(SIGNATURE)] == SIGNATURE[: len(held)]:
            return self._read_binary(held)
        if held[:6] == b"PROXY "[: len(held)]:
            return self._read_line(held)
        raise BadPreface("no PROXY protocol")

    def _read_line(self, held: bytes) -> bytes | None:
        line, end, rest = held.partition(b"\r\n")
        if len(line) + 2 > _MAX_LINE_BYTES:
            raise BadPreface("a line of the PROXY protocol is too long")
        if not end:
            return None
        words = line.decode("latin-1").split(" ")
        if words[1] != "UNKNOWN":
            if len(words) != 6 or words[1] not in ("TCP4", "TCP6"):
                raise BadPreface("a line of the PROXY protocol that is not understood")
            try:  # PROXY TCP4 source destination port port
                source, port = ipaddress.ip_address(words[2]), int(words[4])
                ipaddress.ip_address(words[3])
            except ValueError:
                raise BadPreface("a line of the PROXY protocol without addresses") from None
            if source.version != int(words[1][3]) or not 0 <= port <= 65535:
                raise BadPreface("a line of the PROXY protocol whose addresses are of another kind")
            self.client = str(source), port
        return rest

    def _read_binary(self, held: bytes) -> bytes | None:
        if len(held) < 16:
            return None
        command, family, length = struct.unpack_from("!BBH", held, len(SIGNATURE))
        if command not in (0x20, 0x21) or 16 + length > _MAX_BINARY_BYTES:
            raise BadPreface("a preface of the PROXY protocol that is not understood")
        if len(held) < 16 + length:
            return None
        if command == 0x21 and family in _ADDRESSES:
            size, block = _ADDRESSES[family], held[16 : 16 + length]
            if length < 2 * size + 4:
                raise BadPreface("a preface of the PROXY protocol without addresses")
            port: int = struct.unpack_from("!H", block, 2 * size)[0]
            self.client = str(ipaddress.ip_address(block[:size])), port
        return held[16 + length :]


class Relaying:
    """Wraps an application: takes the client's certificate and address from listed proxies."""

    def __init__(
        self, app: Application, header: str, names: Sequence[str], checks: CertificateChecks, failures: FailedLogins
    ) -> None:
        self._app, self._checks, self._failures = app, checks, failures
        self._header = header.lower().encode()
        self._names = frozenset(normalise_name(each) for each in names)

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request on with its client; refuse one whose header is not from a listed proxy."""
        peer: Peer = scope[PEER]
        try:
            scope[PEER] = await self._client(peer, scope["headers"])
        except AmsError as error:
            refused = refusal(error)
            said = {"reason": error.message, "resource": without_secrets(scope["path"].removeprefix("/v1"))}
            is_counted = refused.code < 500
            await self._failures.record_failure(peer.address, code=refused.code, is_counted=is_counted, **said)
            await answer(send, refused.code, refused.body, [JSON])
            return
        await self._app(scope, receive, send)

    async def _client(self, peer: Peer, headers: list[tuple[bytes, bytes]]) -> Peer:
        shown = [value for name, value in headers if name == self._header]
        if not peer.presented or not self._is_listed(peer.presented):
            if shown:
                raise CertificateRefused(NOT_A_PROXY)
            return peer
        await self._checks.check(peer.presented, peer.address, verify_host=False)
        if len(shown) > 1:
            raise CertificateRefused("More than one certificate in the header of a proxy")
        # The proxy itself has added the last address.
        forwarded = [value for name, value in headers if name == FORWARDED_FOR]
        said = forwarded[-1].decode("latin-1").rpartition(",")[2].strip() if forwarded else ""
        address = usual_address(said) or peer.address
        if not shown or not shown[0].strip():
            return Peer(address)
        chain = b"".join(value for name, value in headers if name == self._header + b"-chain")
        try:
            [(leaf, signed, _), *rest] = _certificates(shown[0])
            rest += _certificates(chain) if chain.strip() else []
            return Peer(address, Presented(leaf, tuple(der for _, _, der in rest), signed))
        except ValueError as error:
            return Peer(address, unreadable=str(error))

    def _is_listed(self, presented: Presented) -> bool:
        try:
            subject = subject_of(presented.leaf)
            # A subject equal to a listed one only in normal form could pose as every site (15, A8).
            return of_certificate(subject) in self._names and unrepresentable(subject) is None
        except Exception:  # an unreadable encoding is on no list
            return False


def _certificates(value: bytes) -> list[tuple[x509.Certificate, bytes, bytes]]:
    """Load certificates as `load`, and return the DER of each. Raises `ValueError`.

    They are base64 of DER (haproxy's `%[ssl_c_der,base64]`), or escaped PEM (nginx), or several.
    """
    text = urllib.parse.unquote(value.decode("latin-1")).strip()
    blocks = _PEM.findall(text) or [text]
    try:
        found = [base64.b64decode("".join(each.split()), validate=True) for each in blocks]
        return [(*load(each), each) for each in found]
    except binascii.Error:
        raise ValueError("The certificate in the header of the proxy cannot be read") from None
    except Exception as error:  # many kinds of errors: the data is the proxy's
        raise ValueError(UNREADABLE) from error
