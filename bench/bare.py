"""The comparator of every HTTP case: a service that decodes and answers a publish as AMS does, and stores nothing.

It is made of uvicorn, raw ASGI, msgspec typed structs, and base64 checked by pybase64. AMS needs more time than this
for access control, names, limits, the log, and the disk. `python -m bench.bare` serves on a free port of loopback and
prints `ready URL`.
"""

import asyncio
import itertools
from typing import Any

import msgspec
import pybase64
import uvicorn
import uvloop

from ams.web.server import BACKLOG, listen


class _Message(msgspec.Struct):
    data: str = ""
    attributes: dict[str, str] = {}


class _Publish(msgspec.Struct):
    messages: list[_Message]


class _Published(msgspec.Struct, rename="camel"):
    message_ids: list[str]


_decoder = msgspec.json.Decoder(_Publish)
_encoder = msgspec.json.Encoder()
_ids = itertools.count()


async def app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    if scope["type"] != "http":
        return
    event = await receive()
    body: bytes = event["body"]
    if event.get("more_body"):
        parts = [body]
        while event.get("more_body"):
            event = await receive()
            parts.append(event.get("body", b""))
        body = b"".join(parts)
    answer = publish(body)
    headers = [(b"content-type", b"application/json; charset=utf-8"), (b"content-length", b"%d" % len(answer))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


def publish(body: bytes) -> bytes:
    """Decode a publish body, check its data and encode an answer of as many ids."""
    messages = _decoder.decode(body).messages
    for message in messages:
        pybase64.b64decode(message.data, validate=True)
    return _encoder.encode(_Published([str(next(_ids)) for _ in messages]))


async def serve() -> None:
    sock = listen("127.0.0.1", 0, "port")
    config = uvicorn.Config(
        app, http="httptools", ws="none", lifespan="off", log_config=None, access_log=False, log_level="critical",
        server_header=False, proxy_headers=False, backlog=BACKLOG, timeout_keep_alive=75,
    )  # fmt: skip
    bare = uvicorn.Server(config)
    serving = asyncio.create_task(bare.serve([sock]))
    while not bare.started:
        await asyncio.sleep(0.01)
    print(f"ready http://127.0.0.1:{sock.getsockname()[1]}", flush=True)
    await serving
    sock.close()


if __name__ == "__main__":
    uvloop.run(serve())
