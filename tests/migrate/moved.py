"""What was moved, without MongoDB and Kafka: the same as lines of an export and as what they were made from."""

import base64
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

from ams.core.clock import DAY, Milliseconds
from ams.core.messages import Stored
from ams.core.messages import message as made_message
from ams.core.names import Offset
from ams.migrate.converting import Bounds, Converted, MovedTopic
from ams.storage.export_format import (
    FORMAT,
    End,
    Header,
    Line,
    Log,
    Membership,
    Message,
    Project,
    Subscription,
    Tally,
    Topic,
    User,
    encoded,
    kind,
)
from tests.support.commands import PROCESS

PUBLISHED = int(time.time() * 1000) - DAY // 2


def token(number: int) -> str:
    """Return the token of the user with this number; 0 is an administrator of the service."""
    return f"{number:064x}"


def converted(*, users: int, topics: int, messages: int, projects: int = 2) -> Converted:
    """Return so many of everything: each topic has as many messages, from offset 5 on, and a subscription."""
    found = Converted()
    found.users = [User(name="root", token=token(0), service_roles=("service_admin",))]
    found.users += [User(name=f"user{number}", token=token(number)) for number in range(1, users)]
    found.projects = [Project(name=f"project{number}", description="of a day") for number in range(projects)]
    found.memberships = [
        Membership(user=f"user{number}", project=f"project{number % projects}", roles=("consumer", "publisher"))
        for number in range(1, users)
    ]
    for number in range(topics):
        project, first, end = f"project{number % projects}", 5, 5 + messages
        line = Topic(project=project, name=f"topic{number}", authorized=(f"user{1 + number % max(users - 1, 1)}",),
                     tally=Tally(messages=end), retention=30 * DAY)  # fmt: skip
        found.topics.append(MovedTopic(line, f"{project}.topic{number}", 0, Bounds(first, end, 30 * DAY)))
        found.subscriptions.append(
            Subscription(project=project, name=f"sub{number}", topic=line.name, offset=first + messages // 2)
        )
    return found


def message(topic: int, offset: int) -> Message:
    """Return the message of a topic at an offset."""
    data = base64.b64encode(f"{topic} at {offset}".encode()).decode()
    return Message(offset=offset, time=PUBLISHED + offset, data=data, attributes={"n": str(offset)})


def messages(found: Converted, number: int) -> Iterator[Message]:
    """Yield the messages of a topic."""
    bounds = found.topics[number].bounds
    return (message(number, offset) for offset in range(bounds.first, bounds.end))


def _lines(found: Converted) -> Iterator[Line]:
    for number, topic in enumerate(found.topics):
        line = topic.line
        yield Log(project=line.project, topic=line.name, id=line.id, first=topic.bounds.first, retention=line.retention)
        yield from messages(found, number)
    yield from found.lines()


def imported(found: Converted, folder: Path) -> Path:
    """Import it all into a new data folder, and return that."""
    counts: Counter[str] = Counter()
    with (folder / "all.jsonl").open("wb") as file:
        file.write(encoded(Header(format=FORMAT)))
        for line in _lines(found):
            counts[kind(line)] += 1
            file.write(encoded(line))
        file.write(encoded(End(counts=dict(counts))))
    command = (*PROCESS, "import", str(folder / "all.jsonl"), "--data", str(folder / "data"))
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (folder / "data" / "admin.token").write_text(token(0))
    return folder / "data"


def counts(found: Converted) -> Mapping[str, int]:
    """Return how many of what is compared."""
    return {
        "users": len(found.users),
        "topics": len(found.topics),
        "messages": sum(each.bounds.end - each.bounds.first for each in found.topics),
        "subscriptions": len(found.subscriptions),
    }


class Kept:
    """The messages, as what holds them at the old side gives them."""

    other_partitions: Mapping[str, int] = {}

    def __init__(self, found: Converted) -> None:
        self._topics = {each.kafka: (number, each) for number, each in enumerate(found.topics)}
        self.changed: dict[str, dict[int, str]] = {}
        """By topic and offset, data that is another."""
        self.holes: dict[str, set[int]] = {}
        """By topic, offsets of what cannot be read."""

    def bounds(self, topic: str) -> Bounds:
        return self._topics[topic][1].bounds

    async def batches(self, topic: str, start: int, end: int, earliest: int = 0) -> AsyncIterator[Sequence[Stored]]:
        number, _ = self._topics[topic]
        changed, holes = self.changed.get(topic, {}), self.holes.get(topic, set())
        for first in range(start, end, 1000):
            yield [
                Stored(
                    Offset(offset),
                    Milliseconds(each.time),
                    made_message(changed.get(offset, each.data), each.attributes).fragment,
                )
                for offset in range(first, min(first + 1000, end))
                if offset not in holes
                for each in [message(number, offset)]
            ]
