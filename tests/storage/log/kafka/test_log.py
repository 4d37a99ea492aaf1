import asyncio

import pytest

from ams.storage.log.kafka.log import KafkaLog
from tests.storage.log.engines import Kafka, all_fragments, fragments, new_topic, texts

pytestmark = pytest.mark.kafka


async def outside_a_task(log: KafkaLog, topic, messages, key):
    """Start an append in a callback, and continue in the callback of its future, as `ams.http.fast_lane` does."""
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    work = log.append(topic, messages, key=key)

    def step(_=None):
        assert asyncio.current_task() is None
        try:
            waits_for = work.send(None)
        except StopIteration as done:
            answer.set_result(done.value)
        except Exception as error:
            answer.set_exception(error)
        else:
            waits_for._asyncio_future_blocking = False
            waits_for.add_done_callback(step)
            waits.append(waits_for)

    waits: list[asyncio.Future] = []
    loop.call_soon(step)
    return await answer, len(waits)


@pytest.mark.parametrize("key", [None, "k"])
async def test_an_append_needs_no_task_and_waits_once_and_a_known_key_is_answered(key: str | None) -> None:
    async with Kafka().open_log() as log:
        topic = await new_topic(log)
        messages = texts("aaaa", "bbbb")

        appended, waits = await outside_a_task(log, topic, messages, key)

        assert (appended.first, appended.count, waits) == (0, 2, 1)
        if key:
            assert (await outside_a_task(log, topic, messages, key))[0] == appended
        assert await all_fragments(log, topic) == fragments(messages)
