"""What pulls for the streams of one subscription, when it fails."""

import asyncio
from collections import Counter
from unittest.mock import AsyncMock, MagicMock

from ams.core.errors import LogUnavailable
from ams.pubsub.streaming import _Spread


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
