"""What pulls for the streams of one subscription, when it fails; streams that say nothing; clients that left."""

import asyncio
from collections import Counter
from unittest.mock import AsyncMock, MagicMock

import grpc
import pytest

from ams.core.errors import LogUnavailable, Overloaded
from ams.http.limits import ClientLeft
from ams.pubsub import protos, streaming
from ams.pubsub.streaming import Streams, _Spread, _Stream


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


async def test_an_address_has_so_many_streams_that_say_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streaming, "MOST_SILENT", 2)
    streams, context = Streams(MagicMock(), MagicMock()), MagicMock()
    context.read = lambda: asyncio.sleep(60)
    here, there = {"client": ("192.0.2.1", 1)}, {"client": ("192.0.2.2", 1)}
    silent = [asyncio.create_task(streams.run(context, each)) for each in (here, here, there)]
    await asyncio.sleep(0.01)

    with pytest.raises(Overloaded, match="of this address"):
        await streams.run(context, here)
    assert not any(each.done() for each in silent)
    for each in silent:
        each.cancel()


async def test_a_client_that_left_while_it_was_written_to_is_no_defect() -> None:
    context = MagicMock()
    context.write = AsyncMock(side_effect=grpc.aio.InternalError("the connection is gone"))
    first = protos.StreamingPullRequest(stream_ack_deadline_seconds=10)
    stream = _Stream(MagicMock(), MagicMock(), context, first)

    with pytest.raises(ClientLeft):
        await stream._write(MagicMock(parallel=None), ())
