"""What the demos of logins share: a project to which sites publish reports, and a collector who pulls them."""

import sys

from argo_ams_library import ArgoMessagingService

from ams.client import Client, wire
from demo.service import Service

PROJECT, TOPIC, SUBSCRIPTION = "federation", "reports", "collector"
AT_ONCE = 100
"""Messages of a pull."""


def administrator(ams: Service) -> Client:
    """Return a client with the administrator's token."""
    return Client(ams.url, ams.token_file.read_text().strip(), ca=str(ams.ca))


def member(admin: Client, name: str, role: str) -> wire.User:
    """Make a user who is a member of the project."""
    return admin.call(wire.create_member(PROJECT, name, [role]))


def reports(who: str, count: int) -> list[str]:
    """Return what reports say."""
    return [f"{who} report {number}" for number in range(count)]


def collect(library: ArgoMessagingService) -> list[str]:
    """Pull and acknowledge until nothing is left; return what the reports say."""
    found: list[str] = []
    while received := library.pull_sub(SUBSCRIPTION, num=AT_ONCE, return_immediately=True):
        found += [message.get_data().decode() for _, message in received]
        library.ack_sub(SUBSCRIPTION, [received[-1][0]])
    return found


def is_whole(demo: str, published: list[str], received: list[str]) -> bool:
    """Return whether what came out is what went in, and say so if it is not."""
    whole = sorted(received) == sorted(published)
    if not whole:
        print(f"{demo}: what came out is not what went in", file=sys.stderr)
    return whole
