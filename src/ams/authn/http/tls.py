"""The port of the certificate service: TLS that requests a client certificate, and the peer of a connection.

Python's `ssl` can request a certificate only if it refuses untrusted ones, and a failed handshake gives the client no
reason. The contract wants an error text (9.3). So any certificate passes here and proves only that the client has its
key: `ams.authn.certificates` validates it at each request.

A client's certificate and chain have at most 100 KiB: OpenSSL's limit, which pyOpenSSL cannot change. Beyond it the
handshake fails, and the client sees a closed connection.

The event loop calls `wrap_bio` of an `ssl.SSLContext`; ours returns a connection of pyOpenSSL.
"""

import asyncio
import contextlib
import functools
import ssl
from collections.abc import Callable
from typing import Any, cast

import structlog
from cryptography import x509
from OpenSSL import SSL, crypto

from ams.authn.certificates.certificate import issuer_of, load, subject_of
from ams.authn.http.errors import refusal
from ams.authn.http.proxies import BadPreface, Preface
from ams.authn.values import PEER, UNREADABLE, Peer, Presented
from ams.http.asgi import Application, usual_address
from ams.web.asgi_exchange import AsgiExchange
from ams.web.connection import HttpConnection, Port
from ams.web.listener import ListenerLimits
from ams.web.request_reader import RequestHead
from ams.web.server import HttpServer

logger = structlog.get_logger("ams.authn.tls")

MAX_CACHED_CERTIFICATES = 2_000  # cached parsed certificates of clients
MAX_CACHED_BYTES = 8 * 1024  # largest certificate that is cached: any client may send one of 100 kB


class AskingContext(ssl.SSLContext):
    """A server's TLS context that requests a client certificate, and accepts any, or none.

    No session resumption and no renegotiation, so the client has proved its key on this connection.
    """

    proxied: bool
    _openssl_context: SSL.Context

    @classmethod
    def make(cls, *, proxied: bool = False) -> "AskingContext":
        """Return a context without a certificate; `proxied`: each connection starts with a PROXY preface."""
        context = cls(ssl.PROTOCOL_TLS_SERVER)
        context.proxied = proxied
        return context

    def load_cert_chain(self, certfile: Any, keyfile: Any = None, password: Any = None) -> None:
        """Load the server's chain and key for new connections. On `ssl.SSLError` or `OSError` the old ones stay."""
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certfile, keyfile, password or _refuse_pass_phrase)
        try:
            self._openssl_context = _openssl_context(certfile, keyfile or certfile)
        except SSL.Error as error:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, _reason(error)) from error

    def wrap_bio(self, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, *_: Any, **__: Any) -> Any:
        """Return the server's side of a connection, for the event loop."""
        return _AskingConnection(self._openssl_context, incoming, outgoing, Preface() if self.proxied else None)


class _AskingConnection:
    """One connection, with the part of `ssl.SSLObject` that event loops use, and the client's certificates."""

    def __init__(
        self, context: SSL.Context, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, preface: Preface | None
    ) -> None:
        self._connection = SSL.Connection(context, None)
        self._connection.set_accept_state()
        self._incoming, self._outgoing, self.preface = incoming, outgoing, preface
        self._awaited = preface  # until it is complete
        self._fed = False  # True: OpenSSL may have data to decrypt
        self.context = None

    def read_presented(self) -> Presented | None:
        if (shown := self._connection.get_peer_certificate()) is None:
            return None
        presented = [shown, *(self._connection.get_peer_cert_chain() or [])]
        der, *chain = [crypto.dump_certificate(crypto.FILETYPE_ASN1, each) for each in presented]
        try:
            leaf, signed = load(der)
            leaf = _cached_certificate(leaf) if len(der) <= MAX_CACHED_BYTES else _parse_fully(leaf)
        except Exception as error:  # many kinds of errors: the data is the client's
            logger.debug("certificate.unreadable", reason=str(error))
            raise ValueError(UNREADABLE) from error
        return Presented(leaf, tuple(chain), signed)

    def do_handshake(self) -> None:
        self._call_openssl(self._connection.do_handshake)

    def read(self, size: int = 1024, buffer: Any = None) -> Any:
        data = self._call_openssl(self._connection.recv, size)
        if buffer is None:
            return data
        buffer[: len(data)] = data
        return len(data)

    def write(self, data: Any) -> int:
        taken: int = self._call_openssl(self._connection.send, bytes(data))
        return taken

    def unwrap(self) -> None:
        """Send close_notify and wait for the client's, otherwise the client could lose unread data."""
        if not self._call_openssl(self._connection.shutdown):
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "the client has not said goodbye")

    def getpeercert(self, binary_form: bool = False) -> dict[str, Any]:
        return {}

    def cipher(self) -> tuple[str, str, int] | None:
        found = self._connection
        name, version = found.get_cipher_name(), found.get_cipher_version()
        return None if name is None else (name, version or "", found.get_cipher_bits() or 0)

    def compression(self) -> None:
        return None

    def pending(self) -> int:
        """Return how many bytes can be read at once, or 1 if some are still encrypted.

        The event loop reads on only while this is positive; a request may come in one packet with the end of the
        handshake.
        """
        return self._connection.pending() or int(self._fed)

    def _call_openssl(self, act: Callable[..., Any], *arguments: Any) -> Any:
        try:
            data = self._incoming.read() if self._incoming.pending else b""
            if self._awaited is not None:
                if (rest := self._awaited.feed(data)) is None:
                    raise SSL.WantReadError
                self._awaited, data = None, rest
            if data:
                self._connection.bio_write(data)
                self._fed = True
            return act(*arguments)
        except SSL.WantReadError:
            self._fed = False
            if self._incoming.eof:
                raise ssl.SSLEOFError(ssl.SSL_ERROR_EOF, "the connection ended") from None
            raise ssl.SSLWantReadError(ssl.SSL_ERROR_WANT_READ, "more is needed") from None
        except SSL.ZeroReturnError:
            return b""
        except (SSL.Error, crypto.Error, BadPreface) as error:
            raise ssl.SSLError(ssl.SSL_ERROR_SSL, _reason(error)) from None
        finally:
            with contextlib.suppress(SSL.Error):  # until there is no more
                while True:
                    self._outgoing.write(self._connection.bio_read(65536))


def _refuse_pass_phrase() -> bytes:
    # OpenSSL would prompt for it at the terminal, now and at each reload.
    raise OSError("the key has a pass phrase; give one without")


def _openssl_context(chain: str, key: str) -> SSL.Context:
    context = SSL.Context(SSL.TLS_SERVER_METHOD)
    context.set_min_proto_version(SSL.TLS1_2_VERSION)
    context.use_certificate_chain_file(chain)
    context.use_privatekey_file(key)
    # Every certificate passes; the login verifies it, and gives a reason for a refusal.
    context.set_verify(SSL.VERIFY_PEER, lambda *_: True)
    context.set_session_cache_mode(SSL.SESS_CACHE_OFF)
    context.set_session_id(b"ams authn")
    context.set_options(SSL.OP_NO_TICKET | SSL.OP_NO_RENEGOTIATION | SSL.OP_CIPHER_SERVER_PREFERENCE)
    return context


def _parse_fully(certificate: x509.Certificate) -> x509.Certificate:
    _ = subject_of(certificate), issuer_of(certificate), certificate.serial_number  # parsed on first access
    return certificate


# Equal certificates share one object: parsing is most of the work.
_cached_certificate = functools.lru_cache(maxsize=MAX_CACHED_CERTIFICATES)(_parse_fully)


def _reason(error: Exception) -> str:
    found = error.args[0] if error.args else ""
    if isinstance(found, list):
        return "; ".join(str(each[-1]) for each in found) or "the handshake failed"
    return str(found)


def new_server(
    app: Application, context: AskingContext, limits: ListenerLimits, *,
    head_seconds: float = 5.0, read_seconds: float = 5.0, idle_seconds: float = 60.0,
) -> HttpServer:  # fmt: skip
    """Return the server of an application, which finds a `Peer` in the scope of each request.

    Read seconds apply to a whole request, and again to its body (contract 11).
    """

    def open_exchange(connection: HttpConnection, request: RequestHead) -> AsgiExchange:
        peer = cast("_PeerConnection", connection).peer
        return AsgiExchange(connection, app, request, extensions={PEER: peer})

    head_seconds = min(head_seconds, read_seconds)
    port = Port(open_exchange, refusal, head_seconds=head_seconds, body_seconds=read_seconds, idle_seconds=idle_seconds)
    return HttpServer("api", port, limits, context=context, connection=_PeerConnection)


class _PeerConnection(HttpConnection):
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as of every stream
        super().connection_made(transport)
        if (preface := self._tls.preface) is not None and preface.client is not None:
            self.client = preface.client

    @functools.cached_property
    def peer(self) -> Peer:
        address = (usual_address(self.client[0]) or self.client[0]) if self.client else ""
        try:
            return Peer(address, self._tls.read_presented())
        except ValueError as error:
            return Peer(address, unreadable=str(error))

    @property
    def _tls(self) -> _AskingConnection:
        return cast("_AskingConnection", self.transport.get_extra_info("ssl_object"))
