"""Projects, topics, subscriptions and users of the demos of logins and of workers."""

import sys
from typing import NamedTuple

from argo_ams_library import ArgoMessagingService

from ams.client import Client, wire

PROJECT, TOPIC, SUBSCRIPTION = "federation", "reports", "collector"
"""Of the demos of logins: sites publish reports, a collector pulls them."""
PULL = 100
DEADLINE, ATTEMPTS = 10, 5
"""Seconds of a lease, and failures until a message is a dead letter: the least there can be of both."""
BROKEN = " is broken"  # suffix of a text that no worker can handle


def member(admin: Client, name: str, *roles: str, project: str = PROJECT) -> wire.User:
    return admin.call(wire.create_member(project, name, list(roles)))


def make_federation(admin: Client, *other_topics: str) -> None:
    admin.call(wire.create_project(PROJECT))
    project = admin.project(PROJECT)
    for name in (TOPIC, *other_topics):
        project.topic(name).create()
    project.subscription(SUBSCRIPTION).create(TOPIC)


def reports(who: str, count: int) -> list[str]:
    return [f"{who} report {number}" for number in range(count)]


def collect(library: ArgoMessagingService) -> list[str]:
    found: list[str] = []
    while received := library.pull_sub(SUBSCRIPTION, num=PULL, return_immediately=True):
        found += [message.get_data().decode() for _, message in received]
        library.ack_sub(SUBSCRIPTION, [received[-1][0]])
    return found


def is_whole(demo: str, published: list[str], received: list[str]) -> bool:
    whole = sorted(received) == sorted(published)
    if not whole:
        print(f"{demo}: what came out is not what went in", file=sys.stderr)
    return whole


class Backlog(NamedTuple):
    project: str
    topic: str
    subscription: str

    @property
    def letters(self) -> str:
        return f"broken-{self.topic}"

    def make(self, admin: Client, *, ordering: bool = False) -> None:
        admin.call(wire.create_project(self.project))
        project = admin.project(self.project)
        for topic in (self.topic, self.letters):
            project.topic(topic).create()
        policy = wire.DeadLetterPolicy(self.letters, ATTEMPTS)
        options = wire.ParallelOptions(dead_letter_policy=policy, enable_message_ordering=ordering)
        admin.call(
            wire.create_subscription(
                self.project, self.subscription, self.topic, ack_deadline=DEADLINE, parallel=options
            )
        )
        project.subscription("desk").create(self.letters)

    def is_done(self, admin: Client, *others: str) -> bool:
        offsets = [admin.call(wire.get_offsets(self.project, each)) for each in (self.subscription, *others)]
        return all(each.current == each.max for each in offsets)

    def dead_letters(self, admin: Client) -> list[str]:
        letters = admin.project(self.project).subscription("desk").messages(follow=False)
        return [letter.data.decode() for letter in letters]


JOBS = Backlog("work", "jobs", "workers")
READINGS = Backlog("stations", "readings", "stations")
ARCHIVE = "archive"  # an ordered subscription of the readings, for the official library
KEYS = 200


def jobs(count: int) -> list[str]:
    """Return the texts of jobs, of which one in the middle is broken."""
    found = [f"job {number}" for number in range(count)]
    found[count // 2] += BROKEN
    return found


def readings(count: int) -> list[tuple[str, str]]:
    """Return ordering keys and texts, of which one in the middle is broken; each text begins with its key."""
    keys = [f"station-{number % KEYS}" for number in range(count)]
    texts = [f"{key} {number}" for number, key in enumerate(keys)]
    texts[count // 2] += BROKEN
    return list(zip(keys, texts, strict=True))


def is_broken(text: str) -> bool:
    return text.endswith(BROKEN)
