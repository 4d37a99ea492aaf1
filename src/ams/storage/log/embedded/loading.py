"""Loading: messages that have their offsets and publish times from another log, as appends of the committer."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.messages import Stored
from ams.core.names import Offset
from ams.storage.log.base import Appended
from ams.storage.log.embedded.record import RECORD_BYTES
from ams.storage.log.embedded.topic import TopicState
from ams.storage.log.embedded.work import Append, Given

NewAnswer = Callable[[], "asyncio.Future[Appended]"]


def loads(topic: TopicState, batch: Sequence[Stored], answer: NewAnswer) -> Iterator[Append]:
    """Yield an append for each run of a batch; raise `InvalidInput` for messages that cannot follow those before."""
    _check(topic, batch)
    for run in _runs(batch):
        fragments = [each.fragment for each in run]
        # No data bytes: what was published elsewhere is known since the topic was created.
        yield Append(
            topic, fragments, sum(map(len, fragments)), 0, answer(), given=Given(run[0].offset, run[0].time)
        )  # fmt: skip


def _check(topic: TopicState, batch: Sequence[Stored]) -> None:
    end, time = topic.end, topic.tail.time
    for each in batch:
        if each.offset < end:
            raise InvalidInput(f"offset {each.offset} was given before: the next one is {end}")
        if each.time < time:
            raise InvalidInput(f"the publish time of offset {each.offset} is before that of the message before it")
        end, time = Offset(each.offset + 1), each.time


def _runs(batch: Sequence[Stored]) -> Iterator[list[Stored]]:
    """Cut a batch into what may share a record: messages of one time, without a hole."""
    run: list[Stored] = []
    size, end, time = 0, Offset(-1), Milliseconds(-1)
    for each in batch:
        if run and (each.offset != end or each.time != time or size + len(each.fragment) > RECORD_BYTES):
            yield run
            run, size = [], 0
        run.append(each)
        size += len(each.fragment)
        end, time = Offset(each.offset + 1), each.time
    if run:
        yield run
