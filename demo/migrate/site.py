"""Names for the clients of the demo: a project, and for each of five ways a topic with a subscription of its name."""

import hashlib
from typing import NamedTuple

PROJECT = "clients"
LIBRARY, REQUESTS, CURL, CLIENT, PUSHED = "library", "requests", "curl", "client", "pushed"
WAYS = (LIBRARY, REQUESTS, CURL, CLIENT, PUSHED)
"""The official library, a program with `requests`, curl, our own client; and a receiver of pushes."""


class Who(NamedTuple):
    name: str
    role: str

    @property
    def token(self) -> str:
        return hashlib.sha256(f"{self.role} {self.name}".encode()).hexdigest()


class Pushed(NamedTuple):
    url: str
    hash: str
    header: str


WORKER_TOKEN = Who("push_worker_0", "push_worker").token


def publisher(way: str) -> Who:
    return Who(f"{way}-publisher", "publisher")


def subscriber(way: str) -> Who:
    return Who(f"{way}-subscriber", "consumer")
