"""Plans a move, and writes it as an export: messages first, then all other lines."""

import math
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence

from ams.app.moving.exporter import Progress
from ams.app.moving.files import writing
from ams.core.clock import Milliseconds
from ams.core.errors import Unavailable
from ams.core.messages import Stored, message
from ams.core.names import Offset
from ams.migrate.conversion import Converted, Documents, KafkaBounds, MovedTopic, Oddity, convert_documents
from ams.migrate.sources import Kafka
from ams.storage.export_format import FORMAT, End, Header, Line, Log, encode_line, encoded_message, kind

SAMPLE = 10_000  # messages read to estimate the speed
STORING_FACTOR = 2  # reading and storing take so many times as long as reading; measured in November 2026


def plan(documents: Documents, kafka: Kafka, bounds: Callable[[str], KafkaBounds] | None = None) -> Converted:
    """Plan a move, read only. Raises `Unavailable` if the database or the brokers do not fit."""
    if not documents.users and not documents.projects:
        raise Unavailable("there are neither users nor projects in the old database: is its name right?")
    found = convert_documents(documents, bounds or kafka.bounds)
    if not any(topic.bounds.end for topic in found.topics) and any(each.get("msg_num") for each in documents.topics):
        raise Unavailable("nothing of any topic is in Kafka, and messages were published: are the brokers right?")
    ours = {topic.kafka for topic in found.topics}
    for name, count in sorted(kafka.other_partitions.items()):
        if name in ours:
            done = f"{count} messages outside partition 0 had no ids, and stay"
            found.oddities.append(Oddity("partitions", f"Kafka topic {name}", done))
    return found


async def seconds_to_copy(plan: Converted, kafka: Kafka) -> int:
    """Estimate the time of the first copy by reading messages of the largest topic. Raises `Unavailable`."""
    largest = max(plan.topics, key=lambda each: each.bounds.end - each.bounds.first, default=None)
    if largest is None or not plan.messages:
        return 0
    first, end = largest.bounds.first, min(largest.bounds.end, largest.bounds.first + SAMPLE)
    began = time.perf_counter()
    async for _ in kafka.batches(largest.kafka, first, end):
        """Nothing is kept of it."""
    return math.ceil(STORING_FACTOR * (time.perf_counter() - began) * plan.messages / (end - first))


async def write(plan: Converted, kafka: Kafka, path: str, progress: Progress) -> Mapping[str, int]:
    """Write the export to a new file; return lines by kind. Raises `Unusable`, `Unavailable`."""
    counts: Counter[str] = Counter()
    expected = plan.messages
    with writing(path) as file:

        def put(line: Line) -> None:
            file.write(encode_line(line))
            counts[kind(line)] += 1

        file.write(encode_line(Header(format=FORMAT, messages=expected)))
        for topic in plan.topics:
            if topic.bounds.end:
                put(Log(project=topic.line.project, topic=topic.line.name, id=topic.line.id, first=topic.bounds.first,
                        bytes=topic.bytes, retention=topic.line.retention))  # fmt: skip
                async for batch in messages_of(topic, kafka, plan.oddities):
                    file.writelines(map(encoded_message, batch))
                    counts["message"] += len(batch)
                    progress(counts["message"], expected)
        for line in plan.lines():
            put(line)
        file.write(encode_line(End(counts=dict(counts))))
    return counts


async def messages_of(topic: MovedTopic, kafka: Kafka, oddities: list[Oddity]) -> AsyncIterator[Sequence[Stored]]:
    """Yield a topic's messages. Unreadable records are holes; an empty message replaces a hole at the end."""
    first, end = topic.bounds.first, topic.bounds.end
    count, last, time = 0, first - 1, 0
    async for batch in kafka.batches(topic.kafka, first, end):
        count += len(batch)
        last, time = batch[-1].offset, batch[-1].time
        yield batch
    if count < end - first:
        oddities.append(unreadable(topic, end - first - count))
    if last + 1 < end:
        oddities.append(unreadable_end(topic))
        yield [stand_in(topic, Milliseconds(time))]


def unreadable(topic: MovedTopic, count: int) -> Oddity:
    """Return the report of unreadable records."""
    return Oddity("record", topic.what, f"{count} records cannot be read: there is nothing at their ids")


def unreadable_end(topic: MovedTopic) -> Oddity:
    """Return the report of an unreadable last record."""
    return Oddity("record", topic.what, f"an empty message stands at its end, {topic.bounds.end - 1}")


def stand_in(topic: MovedTopic, time: Milliseconds) -> Stored:
    """Return the placeholder for an unreadable last record, whose id is used."""
    return Stored(Offset(topic.bounds.end - 1), time, message("").fragment)
