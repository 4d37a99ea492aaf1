"""Migrated data without MongoDB and Kafka: as lines of an export and as their sources; and a stand-in of the old
service."""

import base64
import contextlib
import subprocess
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from ams.core.clock import DAY, Milliseconds
from ams.core.messages import Stored
from ams.core.messages import message as made_message
from ams.core.names import Offset
from ams.migrate.conversion import Converted, KafkaBounds, MovedTopic
from ams.storage import export_format as lines
from tests.support.commands import PROCESS
from tests.support.http_server import QuietHandler, http_server
from tests.support.waiting import PATIENCE_SECONDS

PUBLISHED = int(time.time() * 1000) - DAY // 2


def token(number: int) -> str:
    """Return the token of the user with this number; 0 is an administrator of the service."""
    return f"{number:064x}"


def make_converted(*, users: int, topics: int, messages: int, projects: int = 2) -> Converted:
    """Return so many of every resource: each topic has as many messages, from offset 5 on, and a subscription."""
    found = Converted()
    found.users = [lines.User(name="root", token=token(0), service_roles=("service_admin",))]
    found.users += [lines.User(name=f"user{number}", token=token(number)) for number in range(1, users)]
    found.projects = [lines.Project(name=f"project{number}", description="of a day") for number in range(projects)]
    found.memberships = [
        lines.Membership(user=f"user{number}", project=f"project{number % projects}", roles=("consumer", "publisher"))
        for number in range(1, users)
    ]
    for number in range(topics):
        project, first, end = f"project{number % projects}", 5, 5 + messages
        reader, tally = f"user{1 + number % max(users - 1, 1)}", lines.Tally(messages=end)
        line = lines.Topic(
            project=project, name=f"topic{number}", authorized=(reader,), tally=tally, retention=30 * DAY
        )
        found.topics.append(MovedTopic(line, f"{project}.topic{number}", 0, KafkaBounds(first, end, 30 * DAY)))
        found.subscriptions.append(
            lines.Subscription(project=project, name=f"sub{number}", topic=line.name, offset=first + messages // 2)
        )
    return found


def message(topic: int, offset: int) -> lines.Message:
    data = base64.b64encode(f"{topic} at {offset}".encode()).decode()
    return lines.Message(offset=offset, time=PUBLISHED + offset, data=data, attributes={"n": str(offset)})


def messages(found: Converted, number: int) -> Iterator[lines.Message]:
    bounds = found.topics[number].bounds
    return (message(number, offset) for offset in range(bounds.first, bounds.end))


def _lines(found: Converted) -> Iterator[lines.Line]:
    for number, topic in enumerate(found.topics):
        line = topic.line
        known = {"project": line.project, "topic": line.name, "id": line.id, "retention": line.retention}
        yield lines.Log(**known, first=topic.bounds.first)
        yield from messages(found, number)
    yield from found.lines()


def import_converted(found: Converted, folder: Path) -> Path:
    counts: Counter[str] = Counter()
    with (folder / "all.jsonl").open("wb") as file:
        file.write(lines.encode_line(lines.Header(format=lines.FORMAT)))
        for line in _lines(found):
            counts[lines.kind(line)] += 1
            file.write(lines.encode_line(line))
        file.write(lines.encode_line(lines.End(counts=dict(counts))))
    command = (*PROCESS, "import", str(folder / "all.jsonl"), "--data", str(folder / "data"))
    subprocess.run(command, check=True, capture_output=True, timeout=300)
    (folder / "data" / "admin.token").write_text(token(0))
    return folder / "data"


def counts(found: Converted) -> Mapping[str, int]:
    return {
        "users": len(found.users), "topics": len(found.topics),
        "messages": sum(each.bounds.end - each.bounds.first for each in found.topics),
        "subscriptions": len(found.subscriptions),
    }  # fmt: skip


class KafkaStub:
    other_partitions: Mapping[str, int] = {}

    def __init__(self, found: Converted) -> None:
        self._topics = {each.kafka: (number, each) for number, each in enumerate(found.topics)}
        self.changed: dict[str, dict[int, str]] = {}  # by topic and offset, data that differs
        self.holes: dict[str, set[int]] = {}  # by topic, offsets of unreadable records

    def bounds(self, topic: str) -> KafkaBounds:
        return self._topics[topic][1].bounds

    async def batches(self, topic: str, start: int, end: int, earliest: int = 0) -> AsyncIterator[Sequence[Stored]]:
        number, _ = self._topics[topic]
        changed, holes = self.changed.get(topic, {}), self.holes.get(topic, set())
        for first in range(start, end, 1000):
            yield [
                Stored(
                    Offset(offset), Milliseconds(each.time),
                    made_message(changed.get(offset, each.data), each.attributes).fragment,
                )
                for offset in range(first, min(first + 1000, end))
                if offset not in holes
                for each in [message(number, offset)]
            ]  # fmt: skip


@dataclass
class OldServiceStub:
    """Stand-in for the old service: it answers as the new one does, except for planted differences."""

    url: str = ""
    changes: list[tuple[bytes, bytes]] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    tokens: list[str] = field(default_factory=list)
    in_query: bool = False  # whether tokens in headers are ignored, as in the reference by default


@contextlib.contextmanager
def serve_old_stub(new: str) -> Iterator[OldServiceStub]:
    old = OldServiceStub()

    class Passing(QuietHandler):
        def do_GET(self) -> None:  # noqa: N802  # the name the standard library calls
            headers = {} if old.in_query else {"x-api-key": self.headers.get("x-api-key", "")}
            old.asked.append(self.path)
            old.tokens.append(headers.get("x-api-key", ""))
            came = client.get(self.path, headers=headers)
            body = came.content
            for one, other in old.changes:
                body = body.replace(one, other)
            self.reply(came.status_code, body, {"Content-Type": came.headers["content-type"]})

    with (
        httpx.Client(base_url=new, trust_env=False, timeout=PATIENCE_SECONDS) as client,
        http_server(Passing) as old.url,
    ):
        yield old
