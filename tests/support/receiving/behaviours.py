"""Behaviours of receivers, by path. Further words of a path name the endpoint and change nothing: `/ok/a`.

/ok /created /accepted /empty     200, 201, 202, 204; `?quiet` counts the request but does not remember it
/status/503?retry-after=1         that status; `body=WORDS` too
/gone                             410
/fail/N                           503 N times for each target, then 200
/refuse/WORD                      422 for messages whose data has the word in it, 200 for others
/slow/MS  /hang                   200 after milliseconds; nothing, ever
/drip                             the answer a byte a second; `?every=0.1` likewise
/endless  /huge                   a body in chunks without an end; 10 GB, announced
/long/BYTES                       200 with a body of that size
/garbage  /half  /nothing         no HTTP; half a status line; the connection closed without a word
/mute/N                           as /nothing N times for each target, with `?hang` then once as /hang, then 200
/big-head  /interim  /upgrade     megabytes of head; answers of status 1xx for ever; 101
/redirect                         307 to /ok
/close  /stale                    closes after the answer and says so; closes a moment after it and does not say so
/bomb                             10 MB of nothing, compressed to 10 KB, as 500
/ams_verification_hash            what was set for this port, else for all
"""

import asyncio
import gzip
import json
from collections.abc import Awaitable, Callable, Sequence
from urllib.parse import parse_qs

import pybase64

from tests.support.receiving.protocol import Conversation
from tests.support.receiving.requests import Received

Words = Sequence[str]  # of the path, after the first
Doing = Callable[[Conversation, Received, Words], Awaitable[None] | None]

PIECE = b"a" * 65536
BOMB = gzip.compress(bytes(10_000_000))
STALE_SECONDS = 0.05


def _query(request: Received, name: str, default: str) -> str:
    return parse_qs(request.target.partition("?")[2]).get(name, [default])[0]


def _always(status: int, body: bytes = b"", *headers: str) -> Doing:
    return lambda conversation, request, words: conversation.answer(status, body, *headers)


def _raw(raw: bytes, *, close: bool = True) -> Doing:
    def send(conversation: Conversation, request: Received, words: Words) -> None:
        conversation.send(raw)
        if close:
            conversation.close()

    return send


def _status(conversation: Conversation, request: Received, words: Words) -> None:
    wait = _query(request, "retry-after", "")
    headers = [f"Retry-After: {wait}"] if wait else []
    conversation.answer(int(words[0]), _query(request, "body", "").encode(), *headers)


def _fail(conversation: Conversation, request: Received, words: Words) -> None:
    failures = conversation.memory.failures
    failures[request.target] += 1
    conversation.answer(503 if failures[request.target] <= int(words[0]) else 200, b"fail")


def _mute(conversation: Conversation, request: Received, words: Words) -> None:
    asked = conversation.memory.failures
    asked[request.target] += 1
    if asked[request.target] <= int(words[0]):
        conversation.close()
    elif not request.target.endswith("?hang") or asked[request.target] > int(words[0]) + 1:
        conversation.answer(200)


def _refuse(conversation: Conversation, request: Received, words: Words) -> None:
    refused = any(words[0] in data for data in data_of(request.body))
    conversation.answer(422 if refused else 200, b"refused" if refused else b"")


def data_of(body: str) -> list[str]:
    """Return the data of a delivery's messages, decoded where it is base64 of text."""
    delivery = json.loads(body)
    return [_decode_data(item["message"]["data"]) for item in delivery.get("messages", [delivery])]


def _decode_data(data: str) -> str:
    try:
        return pybase64.b64decode(data, validate=True).decode()
    except ValueError:
        return data


async def _slow(conversation: Conversation, request: Received, words: Words) -> None:
    await asyncio.sleep(int(words[0]) / 1000)
    conversation.answer(200)


async def _hang(conversation: Conversation, request: Received, words: Words) -> None:
    await asyncio.Event().wait()


async def _drip(conversation: Conversation, request: Received, words: Words) -> None:
    every = float(_query(request, "every", "1"))
    for byte in b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + PIECE:
        conversation.send(bytes([byte]))
        await asyncio.sleep(every)


def _without_end(head: bytes, piece: bytes) -> Doing:
    async def send(conversation: Conversation, request: Received, words: Words) -> None:
        conversation.send(head)
        while not conversation.is_over:
            conversation.send(piece)
            await conversation.drain()
            await asyncio.sleep(0)

    return send


def _long(conversation: Conversation, request: Received, words: Words) -> None:
    conversation.answer(200, b"a" * int(words[0]))


def _close(conversation: Conversation, request: Received, words: Words) -> None:
    conversation.answer(200, b"", "Connection: close")
    conversation.close()


def _nothing(conversation: Conversation, request: Received, words: Words) -> None:
    conversation.close()


def _stale(conversation: Conversation, request: Received, words: Words) -> None:
    conversation.answer(200)
    asyncio.get_running_loop().call_later(STALE_SECONDS, conversation.close)


def _verification_hash(conversation: Conversation, request: Received, words: Words) -> None:
    hashes = conversation.memory.hashes
    shown = hashes.get(conversation.port) or hashes.get(0)
    conversation.answer(200 if shown else 404, (shown or "").encode(), "Content-Type: text/plain")


BEHAVIOURS: dict[str, Doing] = {
    "ok": _always(200), "created": _always(201), "accepted": _always(202), "empty": _always(204),
    "gone": _always(410, b"gone"), "status": _status, "fail": _fail, "mute": _mute, "refuse": _refuse, "slow": _slow,
    "hang": _hang, "drip": _drip,
    "endless": _without_end(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + PIECE + b"\r\n"),
    "huge": _without_end(b"HTTP/1.1 200 OK\r\nContent-Length: 10000000000\r\n\r\n", PIECE), "long": _long,
    "garbage": _raw(b"\x00\x01garbage \xff\r\n\r\n" * 50), "half": _raw(b"HTTP/1.1 2"), "nothing": _nothing,
    "big-head": _without_end(b"HTTP/1.1 200 OK\r\n", b"X-Big: " + PIECE[:2000] + b"\r\n"),
    "interim": _without_end(b"", b"HTTP/1.1 103 Early Hints\r\nX: y\r\n\r\n" * 1000),
    "upgrade": _raw(b"HTTP/1.1 101 Switching\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", close=False),
    "redirect": _always(307, b"", "Location: /ok"), "close": _close, "stale": _stale,
    "bomb": _always(500, BOMB, "Content-Encoding: gzip"), "ams_verification_hash": _verification_hash,
}  # fmt: skip


def behave(conversation: Conversation, request: Received) -> Awaitable[None] | None:
    """Record a request and act by its path; 404 for an unknown path."""
    conversation.memory.note(request, whole="quiet" not in request.target.partition("?")[2])
    name, *words = request.path.lstrip("/").split("/")
    doing = BEHAVIOURS.get(name)
    if doing is None:
        conversation.answer(404, b"no such behaviour")
        return None
    return doing(conversation, request, words)
