"""What the clients of the demo know: a project, and for each of five ways a topic with a subscription of its name."""

import hashlib
from typing import NamedTuple

PROJECT = "clients"
LIBRARY, REQUESTS, CURL, CLIENT, PUSHED = "library", "requests", "curl", "client", "pushed"
WAYS = (LIBRARY, REQUESTS, CURL, CLIENT, PUSHED)
"""The official library, a program with `requests`, curl, our own client; and a receiver of pushes."""


class Who(NamedTuple):
    """A user of a way."""

    name: str
    role: str

    @property
    def token(self) -> str:
        """Return its token, made up like all of the day."""
        return hashlib.sha256(f"{self.role} {self.name}".encode()).hexdigest()


class Pushed(NamedTuple):
    """Where messages are delivered to."""

    url: str
    hash: str
    header: str


WORKER_TOKEN = Who("push_worker_0", "push_worker").token


def publisher(way: str) -> Who:
    """Return the user who publishes."""
    return Who(f"{way}-publisher", "publisher")


def subscriber(way: str) -> Who:
    """Return the user who pulls."""
    return Who(f"{way}-subscriber", "consumer")
