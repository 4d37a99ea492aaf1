"""What pulls for the streams of one subscription, when it fails; clients that left."""

import asyncio
from collections import Counter
from unittest.mock import AsyncMock, MagicMock

import grpc
import pytest

from ams.core.errors import LogUnavailable
from ams.http.limits import ClientLeft
from ams.pubsub import protos
from ams.pubsub.streaming import _Spread, _Stream


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
