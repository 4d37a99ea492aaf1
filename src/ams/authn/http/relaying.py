"""Proxies that end TLS themselves, and tell in headers which certificate a client has shown to them (A12).

Such a header is worth what the connection is worth that it comes by: it is believed only on one that was made with a
certificate that passes all checks, and whose subject is listed. On such a connection the proxy's own certificate is
nobody's, and without the header there is none.
"""

import base64
import binascii
import re
import urllib.parse
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from cryptography import x509

from ams.authn.certificates.subjects import unrepresentable
from ams.authn.http.peers import PEER
from ams.authn.http.proxies import is_address, usual
from ams.authn.http.tls import UNREADABLE
from ams.authn.values import Peer, Presented
from ams.core.distinguished_names import normalised, of_certificate
from ams.core.errors import AmsError, CertificateRefused
from ams.http.asgi import JSON, Application, Receive, Send, answer
from ams.http.errors import Refusal

Check = Callable[[Presented, str], Awaitable[None]]
"""Raises for a certificate that is not to be believed; given who showed it, and its address."""
Refused = Callable[[Peer, dict[str, Any], AmsError, int], Awaitable[None]]
"""Told of a request that was refused, and how."""

NOT_A_PROXY = "A certificate in a header is taken from listed proxies only"
FORWARDED = b"x-forwarded-for"
CHAIN = b"-chain"
"""What the name of the header with the rest of the chain ends with."""
_PEM = re.compile(r"-----BEGIN CERTIFICATE-----(.+?)-----END CERTIFICATE-----", re.DOTALL)


class Relaying:
    """An application that is told the client's certificate and address where a listed proxy tells them."""

    def __init__(
        self,
        app: Application,
        *,
        header: str,
        names: Sequence[str],
        check: Check,
        refused: Refused,
        refusal: Callable[[Exception], Refusal],
    ) -> None:
        self._app = app
        self._header = header.lower().encode()
        self._names = frozenset(normalised(each) for each in names)
        self._check = check
        self._refused = refused
        self._refusal = refusal

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Pass a request on, for whom it is; or refuse one that pretends."""
        peer: Peer = scope[PEER]
        try:
            scope[PEER] = await self._client(peer, scope["headers"])
        except AmsError as error:
            found = self._refusal(error)
            await self._refused(peer, scope, error, found.code)
            await answer(send, found.code, found.body, [JSON])
            return
        await self._app(scope, receive, send)

    async def _client(self, peer: Peer, headers: list[tuple[bytes, bytes]]) -> Peer:
        shown = [value for name, value in headers if name == self._header]
        if not self._is_listed(peer.presented):
            if shown:
                raise CertificateRefused(NOT_A_PROXY)
            return peer
        assert peer.presented is not None
        await self._check(peer.presented, peer.address)
        if len(shown) > 1:
            raise CertificateRefused("More than one certificate in the header of a proxy")
        address = _forwarded(headers, peer.address)
        if not shown or not shown[0].strip():
            return Peer(address)
        chain = b"".join(value for name, value in headers if name == self._header + CHAIN)
        try:
            return Peer(address, _presented(shown[0], chain))
        except ValueError as error:
            return Peer(address, unreadable=str(error))

    def _is_listed(self, presented: Presented | None) -> bool:
        if presented is None:
            return False
        try:
            subject = presented.leaf.subject
            # A subject that only looks like a listed one in the normal form would pose as every site (15, A8).
            return of_certificate(subject) in self._names and unrepresentable(subject) is None
        except Exception:  # an encoding that cannot be read is on no list
            return False


def _forwarded(headers: list[tuple[bytes, bytes]], otherwise: str) -> str:
    """Return the address that the proxy itself has added, which is the last one, if there is one and it is one."""
    entries = [value for name, value in headers if name == FORWARDED]
    told = entries[-1].decode("latin-1").rpartition(",")[2].strip() if entries else ""
    return usual(told) if is_address(told) else otherwise


def _presented(value: bytes, chain: bytes) -> Presented:
    [leaf, *rest] = certificates(value)
    return Presented(leaf, (*rest, *(certificates(chain) if chain.strip() else ())))


def certificates(value: bytes) -> list[x509.Certificate]:
    """Read a header: base64 of DER (haproxy's `%[ssl_c_der,base64]`), or PEM with escapes (nginx), several in a row.

    Raises `ValueError` for anything else.
    """
    text = urllib.parse.unquote(value.decode("latin-1")).strip()
    blocks = _PEM.findall(text) or [text]
    try:
        found = [base64.b64decode("".join(each.split()), validate=True) for each in blocks]
        return [x509.load_der_x509_certificate(each) for each in found]
    except binascii.Error:
        raise ValueError("The certificate in the header of the proxy cannot be read") from None
    except Exception as error:  # of many classes: the encoding is somebody else's
        raise ValueError(UNREADABLE) from error
