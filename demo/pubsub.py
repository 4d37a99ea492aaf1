"""Google's own clients for Pub/Sub beside the official library of AMS, on one topic.

    python -m demo.pubsub

    publisher ──gRPC──▶ topic readings ─┬─▶ subscription stations (parallel) ──gRPC──▶ 4 × subscriber, 2 killed
                                        │             └─▶ topic broken-readings: the message that always fails
                                        └─▶ subscription archive (ordered) ──HTTP──▶ reader, the official library

All of them are in `programs.py`. Publisher and subscribers are programs of Google's client for Python, changed in
nothing but the endpoint: they log in by a service account file. Each message has an ordering key. A worker writes down
each message with the time before it acknowledges it. In the end `workers.py` compares that with the published messages.
No message may be missing on either side, and those of each key must have come in order. The one that always fails must
be in the dead letter topic.
"""

import sys
from argparse import Namespace
from pathlib import Path
from time import perf_counter

from ams.cli.tokens import new_key, service_account
from ams.client import Client, wire
from demo import service, site
from demo.service import Service
from demo.site import ARCHIVE, READINGS
from demo.workers import GaveUp, Worker, balance_streams, kill_best, lines_of, stop, tell, until, write_secret

SUBSCRIBERS = 4
PROJECT = READINGS.project


def play(folder: Path, options: Namespace) -> bool:
    began, messages = perf_counter(), options.messages
    with service.running(folder / "ams-data", 0, "--pubsub-port", "0") as ams, ams.administrator() as admin:
        print(f"AMS is ready at {ams.url}, and for Google's clients at {ams.pubsub}.", flush=True)
        _prepare(admin, folder)
        workers: list[Worker] = []
        try:
            _start(workers, ams, folder, messages)
            *subscribers, reader, publisher = workers
            kill_best(subscribers, subscribers, messages // 4, "messages", [reader, publisher])
            kill_best(subscribers, subscribers, messages // 2, "messages", [reader, publisher])
            until(lambda: publisher.has_ended, workers)
            print(f"{publisher.done} messages are published.", flush=True)
            until(lambda: READINGS.is_done(admin, ARCHIVE), workers)
        finally:
            stop(workers)
        books, dead = [each.book for each in subscribers], READINGS.dead_letters(admin)
        result = balance_streams(lines_of(publisher.book), books, reader.book, dead)
    tell("Messages that each was given, some of them again:", [*subscribers, reader])
    print(
        f"pubsub-demo: published {result.published} received {result.received} lost {result.lost}"
        f" order {result.disorder} dead {result.dead} seconds {perf_counter() - began:.1f}"
    )
    return result.is_right and result.published == result.received == messages


def _prepare(admin: Client, folder: Path) -> None:
    READINGS.make(admin, ordering=True)
    admin.project(PROJECT).subscription(ARCHIVE).create(READINGS.topic)
    site.member(admin, "program", "publisher", "consumer", project=PROJECT)
    public, private = new_key()  # as `ams token create --google-file`
    key = admin.call(wire.create_token("program", "key", public_key=public))
    write_secret(folder / "google.json", service_account(PROJECT, key, private))
    archivist = site.member(admin, "archivist", "consumer", project=PROJECT)
    write_secret(folder / "archivist.token", archivist.token)
    admin.call(wire.modify_topic_acl(PROJECT, READINGS.topic, ["program"]))
    admin.call(wire.modify_subscription_acl(PROJECT, READINGS.subscription, ["program"]))
    admin.call(wire.modify_subscription_acl(PROJECT, ARCHIVE, ["archivist"]))


def _start(workers: list[Worker], ams: Service, folder: Path, messages: int) -> None:
    """Start subscribers, the reader and the publisher, in this order; those that run are in `workers` at any time."""
    numbers = range(1, SUBSCRIBERS + 1)
    workers += (Worker.program(f"subscriber-{number}", ams, folder, "subscribe", ams.pubsub) for number in numbers)
    token = str(folder / "archivist.token")
    workers.append(Worker.program("reader", ams, folder, "read", ams.endpoint, token))
    workers.append(Worker.program("publisher", ams, folder, "publish", ams.pubsub, str(messages), may_end=True))
    print(f"{SUBSCRIBERS} subscribers and a publisher of Google's, and the official library of AMS run.", flush=True)


if __name__ == "__main__":
    about = "Google's clients beside the library of AMS."
    sys.exit(service.run_demo("pubsub", about, play, GaveUp, messages=20_000))
