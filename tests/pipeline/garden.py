"""A project of a running service, for tests of what reads and writes topics."""

from collections.abc import Sequence
from dataclasses import dataclass

from ams.client import Client, Message
from ams.client.wire import Grant, UserDetails
from ams.client.wire.projects import create_project
from ams.client.wire.users import create_user
from tests.support.served import Served


@dataclass(frozen=True)
class Garden:
    """A project nobody else uses."""

    served: Served
    client: Client
    name: str

    @property
    def options(self) -> dict[str, str]:
        """What `format("ams")` is told to find the project; a service that is away is given up after a second."""
        return {
            "endpoint": self.served.run.base_url,
            "token": self.served.token,
            "project": self.name,
            "retrySeconds": "1",
        }

    def topic(self, name: str = "plants", *batches: Sequence[Message]) -> str:
        """Make a topic and publish to it, each batch a second after the one before."""
        self.client.project(self.name).topic(name).create()
        for batch in batches:
            self.publish(name, batch)
            self.served.clock.advance(1_000)
        return name

    def publish(self, topic: str, messages: Sequence[Message]) -> None:
        self.client.project(self.name).topic(topic).publish(messages)

    def subscription(self, name: str, topic: str) -> str:
        self.client.project(self.name).subscription(name).create(topic)
        return name

    def cursor(self, subscription: str) -> int:
        """Return where a subscription stands."""
        return self.client.project(self.name).subscription(subscription).offsets().current

    def user(self, role: str) -> str:
        """Make a user with a role in the project; return the token."""
        details = UserDetails(projects=[Grant(project=self.name, roles=[role])])
        return str(self.client.call(create_user(f"{role}-of-{self.name}", details)).token)


def make_garden(served: Served, client: Client, name: str) -> Garden:
    client.call(create_project(name))
    return Garden(served, client, name)


def numbered(count: int, first: int = 0) -> list[Message]:
    """Return messages whose data is their number."""
    return [Message(b"%d" % number) for number in range(first, first + count)]
