"""What is there before the messages: a project, a topic, a subscription of each kind, and users of both interfaces."""

import os
from pathlib import Path

from ams.cli.google_file import new_key, service_account
from ams.client import Client, wire

PROJECT, TOPIC = "stations", "readings"
STATIONS, ARCHIVE = "stations", "archive"
"""The parallel subscription of Google's clients, and the ordered one of the official library."""
LETTERS, DESK = "broken-readings", "desk"
"""The dead letter topic, and a subscription to read it."""
PROGRAM, ARCHIVIST = "program", "archivist"
"""The user of Google's clients, and that of the official library."""
ATTEMPTS = 5
"""How often a message may fail before it is put aside; the least there can be."""
LEASE = 10
"""Seconds until what a killed subscriber had comes again; the least there can be."""
KEYS = 200
BROKEN = " is broken"
"""How the text ends that nobody can handle."""


def readings(count: int) -> list[tuple[str, str]]:
    """Return ordering keys and texts; each text begins with its key, and one in the middle is broken."""
    keys = [f"station-{number % KEYS}" for number in range(count)]
    texts = [f"{key} {number}" for number, key in enumerate(keys)]
    texts[count // 2] += BROKEN
    return list(zip(keys, texts, strict=True))


def is_broken(text: str) -> bool:
    """Whether a text can never be handled."""
    return text.endswith(BROKEN)


def prepare(admin: Client, google_file: Path, token_file: Path) -> None:
    """Make everything, and write what the programs log in with."""
    admin.call(wire.create_project(PROJECT))
    project = admin.project(PROJECT)
    for topic in (TOPIC, LETTERS):
        project.topic(topic).create()
    options = wire.ParallelOptions(
        dead_letter_policy=wire.DeadLetterPolicy(LETTERS, ATTEMPTS), enable_message_ordering=True
    )
    admin.call(wire.create_subscription(PROJECT, STATIONS, TOPIC, ack_deadline=LEASE, parallel=options))
    for name, topic in ((ARCHIVE, TOPIC), (DESK, LETTERS)):
        project.subscription(name).create(topic)
    _write(google_file, _program(admin))
    _write(token_file, admin.call(wire.create_member(PROJECT, ARCHIVIST, ["consumer"])).token)
    admin.call(wire.modify_topic_acl(PROJECT, TOPIC, [PROGRAM]))
    admin.call(wire.modify_subscription_acl(PROJECT, STATIONS, [PROGRAM]))
    admin.call(wire.modify_subscription_acl(PROJECT, ARCHIVE, [ARCHIVIST]))


def is_done(admin: Client) -> bool:
    """Whether all that is published is acknowledged or put aside, on both subscriptions."""
    offsets = [admin.call(wire.get_offsets(PROJECT, each)) for each in (STATIONS, ARCHIVE)]
    return all(each.current == each.max for each in offsets)


def put_aside(admin: Client) -> list[str]:
    """Return the texts in the dead letter topic."""
    letters = admin.project(PROJECT).subscription(DESK).messages(follow=False)
    return [letter.data.decode() for letter in letters]


def _program(admin: Client) -> str:
    """Make the user of Google's clients; return its service account file, as `ams token create --google-file` does."""
    admin.call(wire.create_member(PROJECT, PROGRAM, ["publisher", "consumer"]))
    pair = new_key()
    token = admin.call(wire.create_token(PROGRAM, "key", public_key=pair.public))
    return service_account(PROJECT, token, pair.private)


def _write(file: Path, secret: str) -> None:
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as opened:
        opened.write(secret)
