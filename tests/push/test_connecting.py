"""Connecting: names are resolved once and judged, and what goes wrong is said by its step and cause."""

import asyncio
import ipaddress
import threading
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from ams.outgoing.guard import Guard, Refused, Resolver, networks, trust
from ams.push import streams
from ams.push.connecting import Connection, Connector, Endpoint
from ams.push.streams import Progress, Unreachable
from tests.support.receiver import receiver
from tests.support.receiving import Receiving


class Changing:
    """A resolver that answers something else each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        return self.answers.pop(0)


async def connected(receiving: Receiving, resolve: Resolver, allowed: str = "127.0.0.1/32") -> Connection:
    connector = Connector(Guard(networks(allowed, "push_allow"), resolve), trust(receiving.ca))
    until = asyncio.get_running_loop().time() + 5
    return await connector.connect(Endpoint("receiver.example", receiving.port), Progress(), until)


async def asked(connection: Connection) -> int:
    reply = await connection.ask("POST", "/ok", [], b"{}", keep=0, progress=Progress())
    await connection.abort()
    return reply.status


async def test_a_name_is_resolved_once_and_refused_when_it_changes_to_a_refused_address(receiving: Receiving) -> None:
    resolve = Changing(["127.0.0.1"], ["127.0.0.2"])

    assert await asked(await connected(receiving, resolve)) == 200

    assert resolve.answers == [["127.0.0.2"]]
    assert receiving.requests("/ok")[0].headers["host"] == f"receiver.example:{receiving.port}"
    with pytest.raises(Refused, match=r"^receiver.example is not a public address$"):
        await connected(receiving, resolve)


async def test_of_several_addresses_the_refused_ones_are_left_out_and_dead_ones_passed_over(
    receiving: Receiving,
) -> None:
    resolve = Changing(["10.0.0.1", "127.0.0.3", "127.0.0.1"])

    assert await asked(await connected(receiving, resolve, "127.0.0.0/8")) == 200


async def test_an_address_that_swallows_connects_leaves_time_for_the_next(receiving: Receiving) -> None:
    swallowing = urlsplit(receiving.bad("swallow")).port or 0
    connector = Connector(
        Guard(networks("127.0.0.0/8", "push_allow"), Changing(["127.0.0.1", "127.0.0.2"])), trust(receiving.ca)
    )
    until = asyncio.get_running_loop().time() + 0.4

    with pytest.raises(Unreachable, match=r"^The connection was refused$"):  # by the second: nobody listens there
        await connector.connect(Endpoint("receiver.example", swallowing), Progress(), until)


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(-2, "Name or service not known"), r"^receiver.example has no address: Name or service not known$"),
        (UnicodeError("label empty"), r"^receiver.example has no address"),
    ],
    ids=["unknown", "no host name"],
)
async def test_a_name_without_an_address_is_told(receiving: Receiving, error: Exception, said: str) -> None:
    async def resolve(host: str, port: int) -> Sequence[str]:
        raise error

    with pytest.raises(Unreachable, match=said):
        await connected(receiving, resolve)


def _wait(over: threading.Event) -> None:
    over.wait(20)


async def test_of_a_body_that_is_not_taken_only_a_piece_is_kept_besides(tmp_path: Path) -> None:
    body, over = bytes(16 * 2**20), threading.Event()
    with receiver(tmp_path, lambda _: _wait(over)) as silent:
        plain = await streams.connected(ipaddress.ip_address("127.0.0.1"), silent.port)
        stream = await streams.secured(plain, trust(silent.ca), "localhost")
        await stream._wire.write(b"POST / HTTP/1.1\r\n\r\n")
        tracemalloc.start()
        try:
            sending = asyncio.create_task(stream.write(body))
            await asyncio.wait({sending}, timeout=0.5)
            _, most = tracemalloc.get_traced_memory()
            kept = stream._wire.transport.get_write_buffer_size()
        finally:
            tracemalloc.stop()
        assert not sending.done()
        sending.cancel()
        await stream.aclose()
        over.set()

    assert kept <= 256 * 1024
    assert most < 2**20
