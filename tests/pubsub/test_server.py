"""The port of Google's Pub/Sub: clients that vanish or ping, streams that fail together, calls relayed to an owner."""

import asyncio
import gc
import struct
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import AsyncMock, MagicMock

import grpc
import pytest
from grpc._cython import cygrpc

from ams.core.errors import LogUnavailable, OwnedElsewhere
from ams.core.supervisor import Supervisor
from ams.http.limits import ClientLeft
from ams.pubsub import protos
from ams.pubsub.relaying import Relays
from ams.pubsub.server import answering
from ams.pubsub.streaming import _Spread, _Stream
from tests.support.service import running_service

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS, PING, GOAWAY = 4, 6, 7
ACK = 1
SECONDS = 10
"""Between pings: the least that users may set in the libraries for Go, Java and Python."""


async def _forgotten_failure(error: BaseException) -> None:
    """Let a task fail that nobody awaits, as grpcio does."""

    async def fail() -> None:
        raise error

    task = asyncio.create_task(fail())
    await asyncio.wait({task})
    del task
    gc.collect()


@pytest.mark.parametrize(
    ("error", "is_written"),
    [(cygrpc.ExecuteBatchError("Failed 'execute_batch'"), False), (grpc.aio.InternalError("the client is gone"), False),
     (RuntimeError("a defect"), True)],
)  # fmt: skip
async def test_a_client_that_vanishes_leaves_no_traceback(
    error: Exception, is_written: bool, caplog: pytest.LogCaptureFixture
) -> None:
    streams: Any = SimpleNamespace(stop=lambda: None)
    async with answering("127.0.0.1", 0, {}, streams, SimpleNamespace(), 10, Supervisor()):  # type: ignore[arg-type]  # no calls
        await _forgotten_failure(error)

    assert ("Task exception was never retrieved" in caplog.text) is is_written


def frame(kind: int, payload: bytes = b"") -> bytes:
    return struct.pack("!I", len(payload))[1:] + bytes([kind, 0]) + b"\0" * 4 + payload


@pytest.mark.long
async def test_a_client_that_pings_every_ten_seconds_stays(tmp_path: Path) -> None:
    async with running_service(tmp_path / "data", pubsub_port=0, pubsub_emulator=True) as (run, _):
        host, _, port = run.pubsub.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(PREFACE + frame(SETTINGS))
        answered = 0
        for number in range(5):
            writer.write(frame(PING, b"%08d" % number))
            await asyncio.sleep(SECONDS)
        writer.write(frame(PING, b"the last"))
        while answered < 6:
            head = await reader.readexactly(9)
            payload = await reader.readexactly(int.from_bytes(head[:3], "big"))
            assert head[3] != GOAWAY, payload
            answered += head[3] == PING and bool(head[4] & ACK)
        writer.close()


async def test_a_failure_ends_all_streams_and_the_next_stream_does_not_join_them() -> None:
    leases, stream = MagicMock(), MagicMock(may_get=True)
    leases.working.streams = Counter()
    leases.deliverer.registry.subscriptions.find = AsyncMock(side_effect=LogUnavailable)
    spread = _Spread(leases, MagicMock(), MagicMock())
    assert not spread.has_ended

    spread.add(stream)
    while not stream.fail.called:
        await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert spread.has_ended
    assert isinstance(stream.fail.call_args.args[0], LogUnavailable)


async def test_a_client_that_left_while_it_was_written_to_is_no_defect() -> None:
    context = MagicMock()
    context.write = AsyncMock(side_effect=grpc.aio.InternalError("the connection is gone"))
    first = protos.StreamingPullRequest(stream_ack_deadline_seconds=10)
    stream = _Stream(MagicMock(), MagicMock(), context, first)

    with pytest.raises(ClientLeft):
        await stream._write(MagicMock(parallel=None), ())


class Context:
    """A call that came from a proxy."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("authorization", "Bearer token"), ("x-forwarded-for", "203.0.113.9"), ("user-agent", "other"))

    def peer(self) -> str:
        return "ipv4:192.0.2.5:4711"

    def time_remaining(self) -> None:
        return None


@pytest.mark.embedded("calls between nodes have nothing to do with engines")
async def test_the_owner_is_told_the_token_and_where_and_what_the_client_is() -> None:
    async def answer(_: bytes, context: "grpc.aio.ServicerContext[bytes, bytes]") -> bytes:
        given = dict(context.invocation_metadata() or ())
        wanted = ("authorization", "x-forwarded-for", "x-ams-forwarded-by", "x-ams-user-agent")
        return "|".join(str(given[name]) for name in wanted).encode()

    handler = grpc.method_handlers_generic_handler("Service", {"Call": grpc.unary_unary_rpc_method_handler(answer)})
    server = grpc.aio.server()
    server.add_generic_rpc_handlers((handler,))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    relays = Relays("node1", lambda _: None)
    elsewhere = OwnedElsewhere(subscription="s", node="node2", pubsub=f"127.0.0.1:{port}")
    try:
        said = await relays.unary(elsewhere, "/Service/Call", b"", Context())  # type: ignore[arg-type]
    finally:
        await relays.close()
        await server.stop(None)
    assert said == b"Bearer token|203.0.113.9, 192.0.2.5|node1|other"
