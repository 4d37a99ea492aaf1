"""Plan a move, and write all that moves as an export: messages as they are read, then what exists."""

from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass

from ams.app.moving.files import writing
from ams.migrate.converting import Converted, MovedTopic, converted
from ams.migrate.documents import Documents, Oddity
from ams.migrate.sources import Messages
from ams.storage.export_format import FORMAT, End, Header, Line, Log, Message, encoded, kind

Progress = Callable[[int, int | None], None]
"""Told how many messages are done, and of how many."""
EVERY = 10_000


@dataclass(frozen=True, slots=True)
class Plan:
    """What moves."""

    found: Converted
    messages: int
    """At most: holes are counted."""

    @property
    def counts(self) -> Mapping[str, int]:
        """How many lines of each kind there will be, but for messages."""
        return Counter(kind(each) for each in self.found.lines())


def plan(documents: Documents, kafka: Messages) -> Plan:
    """Look at everything and change nothing."""
    found = converted(documents, kafka.bounds)
    ours = {topic.kafka for topic in found.topics}
    for name, count in sorted(kafka.other_partitions.items()):
        if name in ours:
            found.oddities.append(
                Oddity(
                    "partitions", f"Kafka topic {name}", f"{count} messages outside partition 0 had no ids, and stay"
                )
            )
    return Plan(found, sum(topic.bounds.end - topic.bounds.first for topic in found.topics))


async def write(plan: Plan, kafka: Messages, path: str, progress: Progress) -> Mapping[str, int]:
    """Write all that moves into a new file; return how many lines of each kind. Raises `Unusable`, `Unavailable`."""
    counts: Counter[str] = Counter()
    with writing(path) as file:

        def put(line: Line) -> None:
            file.write(encoded(line))
            counts[kind(line)] += 1

        file.write(encoded(Header(format=FORMAT, messages=plan.messages)))
        for topic in plan.found.topics:
            if topic.bounds.end:
                put(Log(project=topic.line.project, topic=topic.line.name, id=topic.line.id, first=topic.bounds.first,
                        bytes=topic.bytes, retention=topic.line.retention))  # fmt: skip
                async for message in messages_of(topic, kafka, plan.found.oddities):
                    put(message)
                    if counts["message"] % EVERY == 0:
                        progress(counts["message"], plan.messages)
        for line in plan.found.lines():
            put(line)
        file.write(encoded(End(counts=dict(counts))))
    return counts


async def messages_of(topic: MovedTopic, kafka: Messages, oddities: list[Oddity]) -> AsyncIterator[Message]:
    """Yield the messages of a topic. What cannot be read is a hole; an empty message stands where one would be last."""
    name = f"topic {topic.line.project}/{topic.line.name}"
    holes, last, time = 0, topic.bounds.first - 1, 0
    async for each in kafka.messages(topic.kafka, topic.bounds):
        if isinstance(each, int):
            holes += 1
            continue
        last, time = each.offset, each.time
        yield each
    if holes:
        oddities.append(Oddity("record", name, f"{holes} records cannot be read: there is nothing at their ids"))
    if last + 1 < topic.bounds.end and topic.bounds.end > topic.bounds.first:
        oddities.append(Oddity("record", name, f"an empty message stands at its end, {topic.bounds.end - 1}"))
        yield Message(offset=topic.bounds.end - 1, time=time, data="")
