"""What is there before the work begins: a project, the backlog, its parallel subscription, and the workers' user."""

from ams.client import Client, Message, wire

PROJECT, TOPIC, SUBSCRIPTION = "work", "jobs", "workers"
LETTERS, DESK = "broken-jobs", "desk"
"""The dead letter topic, and a subscription to read it."""
WORKER = "worker"
"""The user that all workers have."""
DEADLINE, ATTEMPTS = 10, 5
"""Seconds of a lease, and how often a job may fail before it is put aside; the least there can be of both."""
BROKEN = " is broken"
"""How the job ends that always fails."""
JOB_SECONDS = 0.004
"""How long a job takes in workers of the library. Those of `ams work` start a shell for each, which takes longer."""
BULK = 1000
"""Messages of a publish."""


def jobs(count: int) -> list[str]:
    """Return what the jobs say; one in the middle is broken."""
    found = [f"job {number}" for number in range(count)]
    found[count // 2] += BROKEN
    return found


def is_broken(job: str) -> bool:
    """Whether a job can never be done."""
    return job.endswith(BROKEN)


def prepare(admin: Client) -> str:
    """Make everything; return the token of the workers."""
    admin.call(wire.create_project(PROJECT))
    project = admin.project(PROJECT)
    for topic in (TOPIC, LETTERS):
        project.topic(topic).create()
    options = wire.ParallelOptions(dead_letter_policy=wire.DeadLetterPolicy(LETTERS, ATTEMPTS))
    admin.call(wire.create_subscription(PROJECT, SUBSCRIPTION, TOPIC, ack_deadline=DEADLINE, parallel=options))
    project.subscription(DESK).create(LETTERS)
    token = admin.call(wire.create_member(PROJECT, WORKER, ["consumer"])).token
    admin.call(wire.modify_subscription_acl(PROJECT, SUBSCRIPTION, [WORKER]))
    return token


def publish(admin: Client, published: list[str]) -> None:
    """Publish the jobs."""
    topic = admin.project(PROJECT).topic(TOPIC)
    for first in range(0, len(published), BULK):
        topic.publish([Message(job.encode()) for job in published[first : first + BULK]])


def is_done(admin: Client) -> bool:
    """Whether every job is acknowledged or put aside."""
    offsets = admin.call(wire.get_offsets(PROJECT, SUBSCRIPTION))
    return offsets.current == offsets.max


def put_aside(admin: Client) -> list[str]:
    """Return the jobs in the dead letter topic."""
    letters = admin.project(PROJECT).subscription(DESK).messages(follow=False)
    return [letter.data.decode() for letter in letters]
