"""Request reader: parses the bytes of one connection to requests, within limits. Needs no event loop and no socket.

Only llhttp decides where a head or a body ends: no byte is searched for or changed before it. Once a message is
complete, this module alone decides if the connection goes on.
"""

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import httptools

from ams.core.errors import BadRequest
from ams.web.answers import Header

if TYPE_CHECKING:
    from ams.web.connection import HttpConnection

MAX_HEADER_FIELDS = 100  # in a request; the same as common servers
MAX_TRAILER_BYTES = 8 * 1024  # behind the head, outside the body: sizes of chunks, and trailers
MAX_FRAMING_BYTES = 16 * 1024  # of a chunked body, in addition to twice its data
MAX_QUERY_BYTES = 8 * 1024
MAX_QUERY_FIELDS = 100
MAX_LENGTH_DIGITS = 20  # of a `Content-Length`: the parser takes any number of zeros, Python does not
SLICE_BYTES = 4 * 1024  # fed to the parser at once, of a packet with many chunks or requests
MAX_PARTS_PER_TURN = 256  # approximate parts of bodies read in one call: a packet may hold 40,000 chunks of one byte
_PARTS_PER_REQUEST = 16  # weight of a request in parts
_CHECKED_FIELDS = frozenset({b"host", b"expect", b"transfer-encoding", b"content-length"})


class RequestHead(NamedTuple):
    """The head of a request, as received."""

    method: bytes
    target: bytes
    headers: list[Header]  # names in lower case
    version: str  # 1.0 or 1.1
    keep_alive: bool  # True: the head allows another request on the connection
    expects_continue: bool
    is_chunked: bool
    is_alone: bool  # True: only a few requests came before it in one packet


MAX_REQUESTS_ALONE = 8  # first requests of a packet with `is_alone`: nobody else has a turn in between


class RequestReader:
    """Parses requests fed by `feed`, until `stop`.

    Calls `begin_request`, `take_body` and `end_request` of its connection, in the order of the bytes.
    """

    def __init__(self, receiver: "HttpConnection", max_header_bytes: int) -> None:
        self._receiver, self._max_header_bytes = receiver, max_header_bytes
        self._parser = _new_parser(self)
        self.is_stopped = False  # True: further bytes are dropped
        self.is_in_request = False  # True: a request is incomplete
        self.is_in_head = False  # True: its head is incomplete too
        self.target = b""  # of the current request, or of the last one
        self._headers: list[Header] = []
        self._hosts = 0
        self._trailers = 0
        self._expects_continue = self._is_chunked = False
        self._reads_on = True  # True: by its head, the parser reads on after this request
        self._head_bytes = 0  # bytes of the head in earlier slices
        self._head_start = b""  # the bytes of those slices
        self._slice = b""
        self._slice_heads = 0  # heads that began in this slice
        self._slice_body_bytes = 0
        self.packet_heads = 0  # heads that began in this packet
        self._parts = 0
        self._body_bytes = 0  # bytes received of the body
        self._body_left = 0  # bytes left of a body with a length
        self._framing_bytes = 0
        self._trailer_bytes = 0
        self._body_after_offer = b""  # length field of a request that offers an upgrade
        self._is_target_bad = False  # True: the parser stopped in the target, after the method

    def stop(self) -> None:
        """Drop all further bytes."""
        self.is_stopped = True

    def forget(self) -> None:
        """Stop, and break the reference cycle with the parser and the receiver."""
        self.is_stopped = True
        del self._parser, self._receiver

    @property
    def is_in_head_request(self) -> bool:
        """True if the current request is known to be a HEAD."""
        has_method = self.is_in_request and (self.target or self._is_target_bad)
        return bool(has_method) and self._parser.get_method() == b"HEAD"

    def feed(self, data: bytes) -> bytes:
        """Parse a packet. Returns the rest that would take long, for another iteration of the event loop.

        A body with a length is one part, however large. Chunks and requests may be tiny, so they are counted.
        Raises the `AmsError` that refuses the current request; nothing after it can be read.
        """
        self._parts = self.packet_heads = 0
        size = len(data)
        if size <= SLICE_BYTES:
            self._feed_slice(data)
            return b""
        at = 0
        while at < size:
            if self._parts >= MAX_PARTS_PER_TURN:
                return data[at:]
            end = at + max(SLICE_BYTES, self._body_left)
            self._feed_slice(data[at:end])
            at = end
        return b""

    def _feed_slice(self, data: bytes) -> None:
        if self.is_stopped:
            return
        was_in_request, was_in_head = self.is_in_request, self.is_in_head
        self._slice, self._slice_heads, self._slice_body_bytes = data, 0, 0
        self._feed_parser(data)
        self._slice = b""
        if self.is_stopped or not self.is_in_request:
            return
        if self.is_in_head:
            is_all_head = not self._slice_heads if was_in_head else not was_in_request and self._slice_heads == 1
            self._head_bytes += len(data) if is_all_head else self._parsed_head_bytes()
            if self._head_bytes > self._max_header_bytes:
                raise _too_large()
            self._head_start += data
        elif was_in_request and not (was_in_head or self._slice_heads):
            self._count_framing(len(data))

    def _count_framing(self, size: int) -> None:
        """Count a slice within one body: everything that is not data is framing."""
        if not self._slice_body_bytes:
            self._trailer_bytes += size
            if self._trailer_bytes > MAX_TRAILER_BYTES:
                raise BadRequest("Request trailer is too large")
        self._framing_bytes += size - self._slice_body_bytes
        if self._is_chunked and self._framing_bytes > MAX_FRAMING_BYTES + 2 * self._body_bytes:
            raise BadRequest("Request body has more framing than data: send larger chunks")

    def _feed_parser(self, data: bytes) -> None:
        try:
            while data:
                try:
                    self._parser.feed_data(data)
                except httptools.HttpParserUpgrade as offer:
                    data = data[offer.args[0] :]
                    if self._body_after_offer:
                        self._read_body_after_offer()
                else:
                    return
        except httptools.HttpParserCallbackError as failure:
            raise (failure.__context__ or failure) from None
        except httptools.HttpParserError as error:
            self._is_target_bad = isinstance(error, httptools.HttpParserInvalidURLError)
            raise BadRequest("Invalid HTTP request") from None

    def _read_body_after_offer(self) -> None:
        """Use a second parser for the body of a request that offers an upgrade.

        A server may ignore the offer (RFC 9110, 7.8), but the parser takes what follows for the other protocol. It has
        reported exactly where the head ends; the second parser gets a head with the length of the body.
        """
        self._parser = _new_parser(_BodyOnly(self))
        close = b"" if self._reads_on else b"connection: close\r\n"
        self._parser.feed_data(b"POST / HTTP/1.1\r\n%b%b\r\n\r\n" % (close, self._body_after_offer))
        self._body_after_offer = b""

    # Callbacks of the parser

    def on_message_begin(self) -> None:
        self.is_in_request = self.is_in_head = True
        self._head_bytes = self._trailer_bytes = self._trailers = self._hosts = self._body_left = 0
        self._slice_heads += 1
        self.packet_heads += 1
        self._parts += _PARTS_PER_REQUEST
        self.target, self._headers = b"", []
        self._is_chunked = self._expects_continue = False

    def on_url(self, url: bytes) -> None:
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a header field. Trailers are not header fields: proxies have not checked them (RFC 9110, 6.5.1)."""
        if not self.is_in_head:
            self._trailers += 1
            if self._trailers > MAX_HEADER_FIELDS:
                raise BadRequest("Request trailer is too large")
            return
        headers = self._headers
        if len(headers) >= MAX_HEADER_FIELDS:
            raise _too_large()
        name = name.lower()
        if name in _CHECKED_FIELDS:
            self._check_field(name, value)
        headers.append((name, value))

    def _check_field(self, name: bytes, value: bytes) -> None:
        if name == b"host":
            self._hosts += 1
        elif name == b"expect":
            self._expects_continue = self._expects_continue or value.lower() == b"100-continue"
        elif name == b"content-length":
            if len(value) > MAX_LENGTH_DIGITS:
                raise BadRequest("Invalid HTTP request")
            self._body_left = int(value)  # digits: the parser checked that
        elif value.lower() != b"chunked":  # another coding would reach us undecoded
            raise BadRequest("Transfer-Encoding can only be chunked")
        else:
            self._is_chunked = True
            self._body_bytes = self._framing_bytes = 0

    def on_headers_complete(self) -> None:
        parser = self._parser
        version, method = parser.get_http_version(), parser.get_method()
        if version not in ("1.0", "1.1") or self._is_other_protocol(method):
            raise BadRequest("Only HTTP/1.0 and HTTP/1.1 are served here")
        self._head_start = b""
        if self._head_bytes + len(self._slice) > self._max_header_bytes < self._parsed_head_bytes():
            raise _too_large()
        if b"?" in self.target:
            self._check_query(self.target.partition(b"?")[2])
        if self._hosts != 1 and (self._hosts or version != "1.0"):  # RFC 9112, 3.2
            raise BadRequest("Host must be given once")
        if parser.should_upgrade():
            self._body_after_offer = self._length_field_of_offer(method)
        self._reads_on = parser.should_keep_alive()
        head = RequestHead(
            method,
            self.target,
            self._headers,
            version,
            self._reads_on and version != "1.0",
            self._expects_continue and version != "1.0",  # RFC 9110, 10.1.1
            self._is_chunked,
            self.packet_heads <= MAX_REQUESTS_ALONE,
        )
        self._receiver.begin_request(head)
        self.is_in_head = False

    def on_body(self, body: bytes) -> None:
        size = len(body)
        self._parts += 1
        self._slice_body_bytes += size
        self._body_bytes += size
        self._body_left -= size
        self._trailer_bytes = 0
        self._receiver.take_body(body)

    def on_message_complete(self) -> None:
        if self._body_after_offer:  # the parser stopped at the offer, before the body
            return
        self.is_in_request = False
        # A trailer such as `Connection: close` ends the connection for the parser, which then reads no byte.
        self._receiver.end_request(is_last=self._reads_on and not self._parser.should_keep_alive())

    # Checks

    def _parsed_head_bytes(self) -> int:
        return len(self.target) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _is_other_protocol(self, method: bytes) -> bool:
        """Return whether the request is of RTSP or ICE, which the parser accepts; may refuse similar ones."""
        text = self._head_start + self._slice if self._head_start else self._slice
        if b"RTSP/" not in text and b"ICE/" not in text:
            return False
        return bool(re.search(re.escape(method) + b" +" + re.escape(self.target) + b" +(?:RTSP|ICE)/", text))

    def _check_query(self, query: bytes) -> None:
        if len(query) > MAX_QUERY_BYTES:
            raise BadRequest(f"Query is too long: at most {MAX_QUERY_BYTES} bytes")
        if query.count(b"&") >= MAX_QUERY_FIELDS:
            raise BadRequest(f"Query has too many fields: at most {MAX_QUERY_FIELDS}")

    def _length_field_of_offer(self, method: bytes) -> bytes:
        """Return the length field for the body of a request that offers an upgrade; empty without a body."""
        if method == b"CONNECT":
            raise BadRequest("CONNECT is not served here")
        found = [each for each in self._headers if each[0] in (b"content-length", b"transfer-encoding")]
        if not found:
            return b""
        name, value = found[0]
        is_plain = value.isdigit() if name == b"content-length" else value.lower() == b"chunked"
        if len(found) > 1 or not is_plain:
            raise BadRequest("Invalid HTTP request")
        return b"" if name == b"content-length" and not int(value) else name + b": " + value


def _new_parser(callbacks: object) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # such data is dropped; a strict parser refuses all
    return parser


def _too_large() -> BadRequest:
    return BadRequest("Request header is too large")


class _BodyOnly:
    """Passes on the callbacks of a parser, except those of its first head."""

    def __init__(self, reader: RequestReader) -> None:
        self._reader, self._has_head = reader, False
        self.on_body, self.on_message_complete = reader.on_body, reader.on_message_complete
        for name in ("on_message_begin", "on_url", "on_header"):
            setattr(self, name, partial(self._pass_on, getattr(reader, name)))

    def _pass_on(self, callback: Callable[..., None], *arguments: bytes) -> None:
        if self._has_head:
            callback(*arguments)

    def on_headers_complete(self) -> None:
        self._pass_on(self._reader.on_headers_complete)
        self._has_head = True
