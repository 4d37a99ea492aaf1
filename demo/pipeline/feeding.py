"""Publishing to the project: topics are made as they are met, and messages go out a hundred at a time."""

from collections import defaultdict
from collections.abc import Callable, Iterable

from ams.client import Client, Message, wire
from demo.pipeline.samples import Sample

BULK = 100
"""Messages of a request; large ones go alone."""
LARGE = 100_000


def feed(client: Client, project: str, samples: Iterable[Sample], progress: Callable[[int], None]) -> int:
    """Publish everything to the project, in order for each topic; return how many messages."""
    waiting: defaultdict[str, list[Message]] = defaultdict(list)
    made = {each.name.rpartition("/")[2] for each in client.call(wire.list_topics(project)).topics}
    count = 0

    def publish(topic: str) -> None:
        nonlocal count
        count += len(client.project(project).topic(topic).publish(waiting.pop(topic)))
        progress(count)

    for sample in samples:
        if sample.topic not in made:
            client.project(project).topic(sample.topic).create()
            made.add(sample.topic)
        waiting[sample.topic].append(Message(sample.data, dict(sample.attributes)))
        if len(waiting[sample.topic]) == BULK or len(sample.data) > LARGE:
            publish(sample.topic)
    for topic in list(waiting):
        publish(topic)
    return count
