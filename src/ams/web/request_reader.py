"""Request reader: turns the bytes of one connection into requests, within limits. It knows no event loop and no socket.

llhttp alone decides where a head or a body ends: no byte is searched for, and none is changed, before it. Whether the
connection goes on after a request is decided here, once, when the whole message was read.
"""

import re
from typing import NamedTuple, Protocol

import httptools

from ams.core.errors import AmsError, BadRequest
from ams.web.answers import Header

MAX_HEADER_FIELDS = 100  # in a request; common servers take as many
MAX_TRAILER_BYTES = 8 * 1024  # behind the head and no part of the body: sizes of chunks, and trailers
MAX_FRAMING_BYTES = 16 * 1024  # of a body in chunks, beside twice as many bytes as there is data
MAX_QUERY_BYTES = 8 * 1024
MAX_QUERY_FIELDS = 100
MAX_LENGTH_DIGITS = 20  # of a `Content-Length`: the parser takes any number of zeros, which Python does not read
SLICE_BYTES = 4 * 1024  # fed to the parser at a time, of a packet in which there may be many chunks, or many requests
MAX_PARTS_PER_TURN = 256  # parts of bodies read in one call, about: a packet may hold 40,000 chunks of one byte
_PARTS_PER_REQUEST = 16  # a request counts as so many parts
_CHECKED_FIELDS = frozenset({b"host", b"expect", b"transfer-encoding", b"content-length"})
_VERSIONS = frozenset({"1.0", "1.1"})


class RequestHead(NamedTuple):
    """The head of a request, as it was received."""

    method: bytes
    target: bytes
    headers: list[Header]  # names in lower case
    version: str  # 1.0 or 1.1
    keep_alive: bool  # whether the head lets the connection stay open after the answer
    expects_continue: bool
    is_chunked: bool
    is_alone: bool  # whether no more than a few requests came before it in one packet


class Receiver(Protocol):
    """Takes what was read, in the order of the bytes."""

    def begin_request(self, head: RequestHead) -> None:
        """Take a head. An `AmsError` that is raised refuses the request and ends the reading."""

    def take_body(self, body: bytes) -> None:
        """Take a part of the body of that request."""

    def end_request(self, *, is_last: bool) -> None:
        """Take note that the request is complete; `is_last`: the parser reads nothing behind it, by its trailer."""


MAX_REQUESTS_ALONE = 8  # requests of one packet that are `is_alone`: nobody else has a turn in between


class RequestReader:
    """Reads requests from `feed` on; `stop` ends it."""

    def __init__(self, receiver: Receiver, max_header_bytes: int) -> None:
        self._receiver, self._max_header_bytes = receiver, max_header_bytes
        self._parser = _new_parser(self)
        self.is_stopped = False  # whether bytes that still come are dropped
        self.is_in_request = False  # whether a request has begun to arrive that is not complete
        self.is_in_head = False  # whether its head is not complete either
        self.target = b""  # of the request that arrives, or of the one before it
        self._headers: list[Header] = []
        self._hosts = 0
        self._trailers = 0
        self._expects_continue = self._is_chunked = False
        self._reads_on = True  # whether the parser would read on behind this request, by its head
        self._head_bytes = 0  # bytes of the head in earlier slices
        self._head_start = b""  # the bytes of those slices
        self._slice = b""
        self._slice_heads = 0  # heads that began in this slice
        self._slice_body_bytes = 0
        self.packet_heads = 0  # heads that began in this packet
        self._parts = 0
        self._body_bytes = 0  # bytes received of the body
        self._body_left = 0  # bytes to come of a body with a length
        self._framing_bytes = 0
        self._trailer_bytes = 0
        self._body_after_offer = b""  # the field that says how long the body is, of a request that offers to upgrade
        self._error: AmsError | None = None  # why a callback of the parser stopped it
        self._is_target_bad = False  # whether the parser stopped in the target: it has read the method

    def stop(self) -> None:
        """Drop everything that still comes."""
        self.is_stopped = True

    def forget(self) -> None:
        """Stop, and break the circle of references with the parser and the receiver."""
        self.is_stopped = True
        self._error = None  # whose traceback knows the frames of callbacks
        del self._parser, self._receiver

    @property
    def is_in_head_request(self) -> bool:
        """True: the request that arrives is a HEAD, as far as that is known."""
        has_method = self.is_in_request and (self.target or self._is_target_bad)
        return bool(has_method) and self._parser.get_method() == b"HEAD"

    def feed(self, data: bytes) -> bytes:
        """Read a packet, and return what would take long of it, to be fed in another turn of the event loop.

        A body whose length was said is one part, however large. Chunks and requests may be tiny, so they are counted.

        Raises:
            AmsError: The request that arrives is refused; nothing behind it can be read.
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
        """Count a slice that belongs to one body: whatever is not data of it is framing."""
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
            raise (self._error or failure.__context__ or failure) from None
        except httptools.HttpParserError as error:
            self._is_target_bad = isinstance(error, httptools.HttpParserInvalidURLError)
            raise BadRequest("Invalid HTTP request") from None

    def _read_body_after_offer(self) -> None:
        """Let another parser read the body of a request that offers to speak another protocol.

        A server may ignore such an offer (RFC 9110, 7.8), but the parser takes what follows it for the other protocol.
        It has said exactly where the head ends; the other parser gets a head that says how long the body is.
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
        """Take a header field; one behind the body is no field of the head, which proxies checked (RFC 9110, 6.5.1)."""
        if not self.is_in_head:
            self._trailers += 1
            if self._trailers > MAX_HEADER_FIELDS:
                raise self._refused(BadRequest("Request trailer is too large"))
            return
        headers = self._headers
        if len(headers) >= MAX_HEADER_FIELDS:
            raise self._refused(_too_large())
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
                raise self._refused(BadRequest("Invalid HTTP request"))
            self._body_left = int(value)  # digits: the parser checked that
        elif value.lower() != b"chunked":  # the body would reach us as it was coded
            raise self._refused(BadRequest("Transfer-Encoding can only be chunked"))
        else:
            self._is_chunked = True
            self._body_bytes = self._framing_bytes = 0

    def on_headers_complete(self) -> None:
        parser = self._parser
        version, method = parser.get_http_version(), parser.get_method()
        if version not in _VERSIONS or self._is_other_protocol(method):
            raise self._refused(BadRequest("Only HTTP/1.0 and HTTP/1.1 are served here"))
        self._head_start = b""
        if self._head_bytes + len(self._slice) > self._max_header_bytes < self._parsed_head_bytes():
            raise self._refused(_too_large())
        if b"?" in self.target:
            self._check_query(self.target.partition(b"?")[2])
        if self._hosts != 1 and (self._hosts or version != "1.0"):  # RFC 9112, 3.2
            raise self._refused(BadRequest("Host must be given once"))
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
        try:
            self._receiver.begin_request(head)
        except AmsError as error:
            raise self._refused(error) from None
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
        if self._body_after_offer:  # the parser gave up at the offer, and the body is still to come
            return
        self.is_in_request = False
        # A trailer such as `Connection: close` ends the connection for the parser, which reads no byte after it.
        self._receiver.end_request(is_last=self._reads_on and not self._parser.should_keep_alive())

    # Checks

    def _parsed_head_bytes(self) -> int:
        return len(self.target) + sum(len(name) + len(value) + 4 for name, value in self._headers)

    def _is_other_protocol(self, method: bytes) -> bool:
        """Return whether the request is of RTSP or ICE, which the parser reads too; one like it may go with it."""
        text = self._head_start + self._slice if self._head_start else self._slice
        if b"RTSP/" not in text and b"ICE/" not in text:
            return False
        return bool(re.search(re.escape(method) + b" +" + re.escape(self.target) + b" +(?:RTSP|ICE)/", text))

    def _check_query(self, query: bytes) -> None:
        if len(query) > MAX_QUERY_BYTES:
            raise self._refused(BadRequest(f"Query is too long: at most {MAX_QUERY_BYTES} bytes"))
        if query.count(b"&") >= MAX_QUERY_FIELDS:
            raise self._refused(BadRequest(f"Query has too many fields: at most {MAX_QUERY_FIELDS}"))

    def _length_field_of_offer(self, method: bytes) -> bytes:
        """Return the field by which the body of a request that offers to upgrade is found; empty without a body."""
        if method == b"CONNECT":
            raise self._refused(BadRequest("CONNECT is not served here"))
        found = [each for each in self._headers if each[0] in (b"content-length", b"transfer-encoding")]
        if not found:
            return b""
        name, value = found[0]
        is_plain = value.isdigit() if name == b"content-length" else value.lower() == b"chunked"
        if len(found) > 1 or not is_plain:
            raise self._refused(BadRequest("Invalid HTTP request"))
        return b"" if name == b"content-length" and not int(value) else name + b": " + value

    def _refused(self, error: AmsError) -> AmsError:
        """Return an error for a callback to raise, which stops the parser."""
        self._error = error
        return error


def _new_parser(callbacks: object) -> httptools.HttpRequestParser:
    parser = httptools.HttpRequestParser(callbacks)
    parser.set_dangerous_leniencies(lenient_data_after_close=True)  # such data is dropped; a strict parser refuses all
    return parser


def _too_large() -> BadRequest:
    return BadRequest("Request header is too large")


class _BodyOnly:
    """Passes on the callbacks of a parser, but for those of its first head."""

    def __init__(self, reader: RequestReader) -> None:
        self._reader = reader
        self._has_head = False
        self.on_body = reader.on_body

    def on_message_begin(self) -> None:
        if self._has_head:
            self._reader.on_message_begin()

    def on_url(self, url: bytes) -> None:
        if self._has_head:
            self._reader.on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:
            self._reader.on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._has_head:
            self._reader.on_headers_complete()
        self._has_head = True

    def on_message_complete(self) -> None:
        self._reader.on_message_complete()
