"""A project of a running service, for tests of readers and writers of topics."""

import itertools
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ams.client import Client, Message
from ams.client.wire import Grant, UserDetails, modify_topic_retention
from ams.client.wire.projects import create_project
from ams.client.wire.users import create_user
from ams.pipeline.options import Access
from tests.support.served import InProcessService

SERVICE = ("endpoint", "token")
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Garden:
    """A project of its own."""

    served: InProcessService
    client: Client
    name: str

    @property
    def options(self) -> dict[str, str]:
        """Options of `format("ams")` for the project; a dead service is given up after a second."""
        service = {"endpoint": self.served.run.base_url, "token": self.served.token}
        return service | {"project": self.name, "retrySeconds": "1"}

    @property
    def access(self) -> Access:
        return Access(endpoint=self.options["endpoint"], token=self.options["token"], ca=None, retry_seconds=1)

    def environment(self, *hidden: str) -> dict[str, str]:
        """Return a user's environment in the project, without some variables of this process."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_") and name not in hidden}
        return own | {"AMS_PROJECT": self.name, **{f"AMS_{name.upper()}": self.options[name] for name in SERVICE}}

    def tell(self, work: Path, job: str, options: Mapping[str, Any], settings: Mapping[str, str]) -> Path:
        """Write the file of a job for `tests.faults.pipeline.driver`; return its path."""
        work.mkdir(exist_ok=True)
        told = {"job": f"ams.pipeline.jobs.{job}", "work": str(work), "source": self.options}
        file = work / "told.json"
        file.write_text(json.dumps({**told, "options": dict(options), "settings": dict(settings)}))
        return file

    def topic(self, name: str = "plants", *batches: Sequence[Message]) -> str:
        self.client.project(self.name).topic(name).create()
        for batch in batches:
            self.publish(name, batch)
            self.served.clock.advance(1_000)
        return name

    def publish(self, topic: str, messages: Sequence[Message]) -> None:
        self.client.project(self.name).topic(topic).publish(messages)

    def remake(self, topic: str, messages: int) -> None:
        self.client.project(self.name).topic(topic).delete()
        self.topic(topic, make_messages(messages))

    def forget(self, topic: str) -> None:
        """Let retention delete a topic's current messages, once others are published."""
        self.client.call(modify_topic_retention(self.name, topic, 60))
        self.served.clock.advance(120_000)

    def subscription(self, name: str, topic: str) -> str:
        self.client.project(self.name).subscription(name).create(topic)
        return name

    def cursor(self, subscription: str) -> int:
        return self.client.project(self.name).subscription(subscription).offsets().current

    def user(self, role: str) -> str:
        details = UserDetails(projects=[Grant(project=self.name, roles=[role])])
        return str(self.client.call(create_user(f"{role}-of-{self.name}", details)).token)


def make_garden(served: InProcessService, client: Client) -> Garden:
    name = f"garden-{next(_numbers)}"
    client.call(create_project(name))
    return Garden(served, client, name)


def make_messages(count: int, first: int = 0) -> list[Message]:
    return [Message(b"%d" % number) for number in range(first, first + count)]
