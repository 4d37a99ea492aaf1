"""`python -m tests.support.receiving --folder DIR`: serve until SIGTERM; prints `ready URL CA-FILE`."""

import argparse
import asyncio
import contextlib
import signal
from collections.abc import Callable
from pathlib import Path

import uvloop

from tests.support.receiving.asking import asked
from tests.support.receiving.bad import BadEndpoints, context
from tests.support.receiving.certificates import Authority
from tests.support.receiving.protocol import Behaviour, Conversation
from tests.support.receiving.requests import Memory

BACKLOG = 2048


async def serve(folder: Path, port: int, more: int) -> None:
    """Receive until SIGTERM, on `more` further ports too."""
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, __: None)  # clients that end handshakes: what these receivers are for
    stopped = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stopped.set)
    authority = Authority(folder)
    pair = authority.issue("receiver")
    tls = context(pair)
    endpoints: dict[str, str | list[str]] = {}
    talking = _talking(Memory(), asked(endpoints))
    async with contextlib.AsyncExitStack() as stack:
        urls = []
        for each in [port, *([0] * more)]:
            server = await loop.create_server(talking, "127.0.0.1", each, ssl=tls, backlog=BACKLOG)
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
