"""`python -m tests.support.receiving --folder DIR`: serve until SIGTERM; prints `ready URL CA-FILE`.

The same ports serve paths that begin with `/_`:

    GET  /_received?path=/ok   the requests remembered
    GET  /_numbers             how many requests
    GET  /_endpoints           URLs of endpoints whose TLS is bad, by name, and of further ports (`more`)
    POST /_hash                sets the hash at `/ams_verification_hash`; `?port` for this port only
    POST /_forget              forget all requests
"""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from urllib.parse import parse_qs

import msgspec
import uvloop

from tests.support.receiving.bad import Authority, BadEndpoints, context
from tests.support.receiving.behaviours import behave
from tests.support.receiving.protocol import Behaviour, Conversation
from tests.support.receiving.requests import Memory, Received

Endpoints = Mapping[str, str | list[str]]


def make_behaviour(endpoints: Endpoints) -> Behaviour:
    def ask(conversation: Conversation, request: Received) -> Awaitable[None] | None:
        if not request.target.startswith("/_"):
            return behave(conversation, request)
        found = _answer(conversation, request, endpoints)
        conversation.answer(200, msgspec.json.encode(found), "Content-Type: application/json")
        return None

    return ask


def _answer(conversation: Conversation, request: Received, endpoints: Endpoints) -> object:
    memory = conversation.memory
    match request.path:
        case "/_received":
            path = parse_qs(request.target.partition("?")[2]).get("path", [""])[0]
            return [each for each in memory.requests if each.path.startswith(path)]
        case "/_numbers":
            return memory.numbers()
        case "/_endpoints":
            return endpoints
        case "/_hash":
            memory.hashes[conversation.port if request.target.endswith("?port") else 0] = request.body
        case "/_forget":
            memory.forget()
    return None


async def serve(folder: Path, port: int, more: int) -> None:
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, __: None)  # clients that end handshakes: what these receivers are for
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    authority = Authority(folder)
    pair = authority.issue("receiver")
    tls = context(pair)
    endpoints: dict[str, str | list[str]] = {}
    talking = _talking(Memory(), make_behaviour(endpoints))
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for each in [port, *([0] * more)]:
            server = await loop.create_server(talking, "127.0.0.1", each, ssl=tls, backlog=2048)
            stack.callback(server.close)
            urls.append(f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        endpoints |= await BadEndpoints(folder, authority, talking, stack).urls(pair)
        endpoints["more"] = urls[1:]
        print(f"ready {urls[0]} {authority.file}", flush=True)
        await stopped.wait()


def _talking(memory: Memory, behaviour: Behaviour) -> Callable[[], Conversation]:
    return lambda: Conversation(memory, behaviour)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, required=True, help="where certificates are put")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--more-ports", type=int, default=0, help="further ports: endpoints of their own")
    asked_for = parser.parse_args()
    uvloop.run(serve(asked_for.folder, asked_for.port, asked_for.more_ports))
