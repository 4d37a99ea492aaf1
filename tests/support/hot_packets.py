"""Publishes, pulls and acknowledgements as bytes, in every form from clients, proxies and attackers."""

from collections.abc import Mapping

from tests.support.two_ways import TOKEN

PUBLISH = b"/v1/projects/P/topics/T:publish"
PULL = b"/v1/projects/P/subscriptions/S:pull"
ACKNOWLEDGE = b"/v1/projects/P/subscriptions/S:acknowledge"
STRICT = b"/v1/projects/P/topics/Strict:publish"  # to a topic with a schema
ALLOWED = b"eyJuYW1lIjoiYW5uIn0="  # data that it allows
KEY = b"x-api-key: %b\r\n" % TOKEN
MESSAGE = b'{"messages":[{"data":"aGVsbG8="}]}'
NOW = b'{"returnImmediately":"true"}'
ID = b'{"ackIds":["projects/P/subscriptions/S:0"]}'
_INNER = b"POST /v1/projects/P/topics/T:publish HTTP/1.1\r\nHost: x\r\n%bContent-Length: 34\r\n\r\n%b" % (KEY, MESSAGE)


def post_packet(path: bytes, body: bytes, headers: bytes = KEY, *, length: bytes = b"", end: bytes = b"\r\n") -> bytes:
    """Return a POST; `length` replaces the header field of the body's length."""
    length = length or b"Content-Length: %d" % len(body)
    return b"POST %b HTTP/1.1\r\nHost: x\r\n%b%b%b%b%b" % (path, headers, length, end, end, body)


def hot_chunked_packet(target: bytes, body: bytes, headers: bytes = KEY, trailer: bytes = b"") -> bytes:
    half = len(body) // 2
    coded = b"".join(b"%x\r\n%b\r\n" % (len(each), each) for each in (body[:half], body[half:])) + b"0\r\n" + trailer
    return post_packet(target, coded + b"\r\n", headers, length=b"Transfer-Encoding: chunked")


_BODIES = {
    "publish of nothing": (PUBLISH, b'{"messages":[]}'),
    "publish of two": (PUBLISH, b'{"messages":[{"data":"YQ=="},{"attributes":{"a":"b"}}]}'),
    "publish that is no JSON": (PUBLISH, b"{"), "publish that is no object": (PUBLISH, b"[]"),
    "publish of no base64": (PUBLISH, b'{"messages":[{"data":"aGVsbG8"}]}'),
    "publish of an empty message": (PUBLISH, b'{"messages":[{"data":"YQ=="},{}]}'),
    "publish of a request": (PUBLISH, _INNER),
    "publish that a schema allows": (STRICT, b'{"messages":[{"data":"%b"}]}' % ALLOWED),
    "publish that a schema allows, of two": (
        STRICT, b'{"messages":[{"data":"%b"},{"data":"%b"}]}' % (ALLOWED, ALLOWED),
    ),
    "publish that a schema does not allow": (STRICT, b'{"messages":[{"data":"e30="}]}'),
    "publish that a schema allows in part": (STRICT, b'{"messages":[{"data":"%b"},{"data":"e30="}]}' % ALLOWED),
    "publish of no JSON to a schema": (STRICT, MESSAGE),
    "publish of no base64 to a schema": (STRICT, b'{"messages":[{"data":"eyJ"}]}'),
    "publish of attributes to a schema": (STRICT, b'{"messages":[{"attributes":{"a":"b"}}]}'),
    "publish of nothing to a schema": (STRICT, b'{"messages":[]}'),
    "publish that is no JSON to a schema": (STRICT, b"{"),
    "pull of many": (PULL, b'{"maxMessages":"3","returnImmediately":"true"}'), "pull that would wait": (PULL, b"{}"),
    "pull that is no JSON": (PULL, b'{"maxMessages":'), "acknowledgement of no id": (ACKNOWLEDGE, b'{"ackIds":[]}'),
    "acknowledgement of what never was": (ACKNOWLEDGE, b'{"ackIds":["projects/P/subscriptions/S:999999"]}'),
    "acknowledgement of another's": (ACKNOWLEDGE, b'{"ackIds":["projects/P/subscriptions/X:0"]}'),
    "acknowledgement that is no JSON": (ACKNOWLEDGE, b"\xff"),
}  # fmt: skip
_TARGETS = {
    "unknown topic": b"/v1/projects/P/topics/None:publish", "unknown project": b"/v1/projects/None/topics/T:publish",
    "bad name": b"/v1/projects/P/topics/a%20b:publish", "escaped name": b"/v1/projects/P/topics/%54:publish",
    "no name": b"/v1/projects/P/topics/:publish", "unknown verb": b"/v1/projects/P/topics/T:publishes",
    "doubled slash": b"/v1/projects//P/topics/T:publish", "a query": PUBLISH + b"?a=b",
    "a long query": PUBLISH + b"?" + b"a=b&" * 150, "a fragment": PUBLISH + b"#x", "a whole URL": b"http://x" + PUBLISH,
    "no access": b"/v1/projects/P/topics/Other:publish",
}  # fmt: skip
_TOKENS = {
    "no token": b"", "wrong token": b"x-api-key: wrong\r\n", "token as Bearer": b"Authorization: Bearer %b\r\n" % TOKEN,
    "token as another scheme": b"Authorization: Basic %b\r\n" % TOKEN,
    "wrong token and right Bearer": b"x-api-key: wrong\r\nAuthorization: Bearer %b\r\n" % TOKEN,
    "empty token and right Bearer": b"x-api-key:\r\nAuthorization: Bearer %b\r\n" % TOKEN,
    "right token, then a wrong one": KEY + b"x-api-key: wrong\r\n",
    "wrong token, then the right one": b"x-api-key: wrong\r\n" + KEY,
}  # fmt: skip
_HEADERS = {
    "upper case": b"X-API-KEY: %b\r\n" % TOKEN, "blanks around a value": b"x-api-key: \t %b \t \r\n" % TOKEN,
    "no blank before a value": b"x-api-key:%b\r\n" % TOKEN, "a field that goes on": KEY + b"a: b\r\n c\r\n",
    "an empty field": KEY + b"a:\r\n", "a field twice": KEY + b"a: b\r\na: b\r\n",
    "a field without a name": KEY + b": b\r\n", "a blank in a name": KEY + b"a b: c\r\n",
    "a zero byte": KEY + b"a: b\0c\r\n", "bytes over 127": KEY + b"a: \xc3\xa9\xff\r\n",
    "per cent signs": KEY + b"a: %s%d%b\r\n", "a request id": KEY + b"X-Request-Id: mine-7\r\n",
    "a request id of per cent signs": KEY + b"X-Request-Id: %d%b%%\r\n",
    "a request id with a blank": KEY + b"X-Request-Id: mine 7\r\n",
    "a request id that is too long": KEY + b"X-Request-Id: %b\r\n" % (b"i" * 129),
    "an empty request id": KEY + b"X-Request-Id:\r\n",
    "a bad request id, then a good one": KEY + b"X-Request-Id: \xff\r\nx-request-id: b\r\n",
    "two request ids": KEY + b"X-Request-Id: a\r\nX-Request-Id: b\r\n",
    "keep-alive": KEY + b"Connection: keep-alive\r\n", "close": KEY + b"Connection: close\r\n",
    "close among others": KEY + b"Connection: keep-alive, close\r\n",
    "a connection field that is unknown": KEY + b"Connection: x-api-key\r\n",
    "upgrade that is not offered": KEY + b"Connection: Upgrade\r\n",
    "an offer": KEY + b"Connection: Upgrade\r\nUpgrade: h2c\r\n",
    "an offer that is not in Connection": KEY + b"Upgrade: h2c\r\n", "expecting": KEY + b"Expect: 100-continue\r\n",
    "expecting something": KEY + b"Expect: something\r\n", "an origin": KEY + b"Origin: https://example.org\r\n",
    "a key": KEY + b"Idempotency-Key: k\r\n", "two keys": KEY + b"Idempotency-Key: k\r\nIdempotency-Key: l\r\n",
    "an empty key": KEY + b"Idempotency-Key:\r\n", "a long key": KEY + b"Idempotency-Key: %b\r\n" % (b"k" * 256),
    "a bad key": KEY + b"Idempotency-Key: \xff\r\n", "a content type": KEY + b"Content-Type: application/json\r\n",
    "another host": KEY + b"Host: y\r\n", "an encoding that is not there": KEY + b"Transfer-Encoding: identity\r\n",
    "two framings": KEY + b"Transfer-Encoding: chunked\r\n", "a length before": KEY + b"Content-Length: 34\r\n",
    "another length before": KEY + b"Content-Length: 3\r\n",
    "many fields": KEY + b"".join(b"a%d: b\r\n" % number for number in range(96)),
    "too many fields": KEY + b"".join(b"a%d: b\r\n" % number for number in range(98)),
    "a long field": KEY + b"a: %b\r\n" % (b"b" * 5000),
}  # fmt: skip
_LENGTHS = {
    "no length": b"a: b", "length 0": b"Content-Length: 0", "length that is too small": b"Content-Length: 33",
    "length with zeros before": b"Content-Length: 0034",
    "length with many zeros before": b"Content-Length: %b34" % (b"0" * 5000),
    "length with a sign": b"Content-Length: +34", "negative length": b"Content-Length: -34",
    "length with a blank behind": b"Content-Length: 34 ", "length that is no number": b"Content-Length: 34x",
    "length that is hexadecimal": b"Content-Length: 0x22", "length in another script": "Content-Length: ٣٤".encode(),
    "length over 64 bits": b"Content-Length: 18446744073709551650", "length list": b"Content-Length: 34, 34",
    "empty length": b"Content-Length:", "length that is too large for any body": b"Content-Length: 17000000",
}  # fmt: skip
_PLAIN = post_packet(PUBLISH, MESSAGE)


def table() -> Mapping[str, bytes]:
    found = {"publish": _PLAIN, "pull": post_packet(PULL, NOW), "acknowledgement": post_packet(ACKNOWLEDGE, ID)}
    found |= {name: post_packet(target, body) for name, (target, body) in _BODIES.items()}
    found |= {f"publish to {name}": post_packet(target, MESSAGE) for name, target in _TARGETS.items()}
    found |= {f"publish with {name}": post_packet(PUBLISH, MESSAGE, token) for name, token in _TOKENS.items()}
    found |= {f"pull with {name}": post_packet(PULL, NOW, token) for name, token in _TOKENS.items()}
    found |= {f"publish with {name}": post_packet(PUBLISH, MESSAGE, headers) for name, headers in _HEADERS.items()}
    found |= {f"pull with {name}": post_packet(PULL, NOW, headers) for name, headers in _HEADERS.items()}
    found |= {f"publish, {name}": post_packet(PUBLISH, MESSAGE, length=length) for name, length in _LENGTHS.items()}
    found |= {
        "pull with its token in the query": post_packet(PULL + b"?key=" + TOKEN, NOW, b""),
        "pull with a wrong token in the query": post_packet(PULL + b"?key=wrong", NOW, b""),
        "pull with a wrong token in the query and a right one": post_packet(PULL + b"?key=wrong", NOW),
        "publish of other messages with a key": post_packet(
            PUBLISH, b'{"messages":[{"data":"b3RoZXI="}]}', KEY + b"Idempotency-Key: k\r\n"
        ),
        "publish in chunks": hot_chunked_packet(PUBLISH, MESSAGE),
        "publish in chunks with a trailer": hot_chunked_packet(PUBLISH, MESSAGE, trailer=b"x-api-key: wrong\r\n"),
        "publish by HTTP/1.0": _PLAIN.replace(b"1.1", b"1.0"),
        "publish by HTTP/1.0 that stays": _PLAIN.replace(b"1.1\r\n", b"1.0\r\nConnection: keep-alive\r\n"),
        "publish by HTTP/1.2": _PLAIN.replace(b"1.1", b"1.2"), "publish by HTTP/2.0": _PLAIN.replace(b"1.1", b"2.0"),
        "publish by GET": _PLAIN.replace(b"POST", b"GET"), "publish by PUT": _PLAIN.replace(b"POST", b"PUT"),
        "publish by post": _PLAIN.replace(b"POST", b"post"), "publish by OPTIONS": _PLAIN.replace(b"POST", b"OPTIONS"),
        "publish without a host": _PLAIN.replace(b"Host: x\r\n", b""),
        "publish after empty lines": b"\r\n\r\n" + _PLAIN,
        "publish with bare line feeds": _PLAIN.replace(b"\r\n", b"\n"), "publish and an empty line": _PLAIN + b"\r\n",
        "publish and nonsense": _PLAIN + b"nonsense\r\n\r\n", "publish and the head of another": _PLAIN + _PLAIN[:60],
        "publish and half of another": _PLAIN + _PLAIN[:-10], "half a publish": _PLAIN[:-10],
        "pull and half of another": post_packet(PULL, NOW) + post_packet(PULL, NOW)[:-10],
        "get": b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n", "nonsense": b"nonsense\r\n\r\n",
    }  # fmt: skip
    return found
