"""Who may do what: the project, its topics and subscriptions, and a user of its own for every program.

Everything is made by the administrator, with the official library. Names of the last run are used again; its leftovers
are stepped over by moving the subscriptions to the end of their topics.
"""

from collections.abc import Callable
from typing import NamedTuple

from argo_ams_library import AmsServiceException, ArgoMessagingService

PROJECT = "demo"
ALREADY_EXISTS = 409
ACK_DEADLINE = 60
"""Seconds a consumer has between a pull and its acknowledgement; a slow machine should not fail the job."""


class Line(NamedTuple):
    """One topic with one subscription, and the two users allowed at its ends."""

    topic: str
    subscription: str
    publisher: str
    consumer: str


ACCOUNTING = Line("gLite-APEL", "apel_loader", "gLite-APEL---ce01-site-a-example---SITE-A", "apel_repository")
MONITORING = Line("metric_data", "archive_metric", "ams_demo_publisher", "ams_demo_archiver")


class Ends(NamedTuple):
    """The library, set up for the two users of a line."""

    publisher: ArgoMessagingService
    consumer: ArgoMessagingService


def prepare(endpoint: str, admin_token: str, line: Line) -> Ends:
    """Make everything a line needs, or take what is there; return both users' clients.

    `endpoint` is `host:port`: the library puts https:// before it.
    """
    admin = ArgoMessagingService(endpoint=endpoint, token=admin_token, project=PROJECT)
    unless_there(lambda: admin.create_project(PROJECT, "The project of the demo"))
    publisher = _member(admin, line.publisher, "publisher")
    consumer = _member(admin, line.consumer, "consumer")
    unless_there(lambda: admin.create_topic(line.topic))
    admin.modifyacl_topic(line.topic, [line.publisher])
    unless_there(lambda: admin.create_sub(line.subscription, line.topic, ackdeadline=ACK_DEADLINE))
    admin.modifyacl_sub(line.subscription, [line.consumer])
    _skip_to_end(admin, line.subscription)
    return Ends(
        ArgoMessagingService(endpoint=endpoint, token=publisher, project=PROJECT),
        ArgoMessagingService(endpoint=endpoint, token=consumer, project=PROJECT),
    )


def _member(admin: ArgoMessagingService, name: str, role: str) -> str:
    """Make a user with this role in the project, or find the one of the last run; return the token."""
    unless_there(lambda: admin.create_project_member(name, roles=[role]))
    token: str = admin.get_user(name).token
    return token


def _skip_to_end(admin: ArgoMessagingService, subscription: str) -> None:
    offsets = admin.getoffsets_sub(subscription)
    if offsets["current"] < offsets["max"]:
        admin.modifyoffset_sub(subscription, offsets["max"])


def unless_there(create: Callable[[], object]) -> None:
    """Make something with the library, unless it is there from the last run."""
    try:
        create()
    except AmsServiceException as error:
        if error.code != ALREADY_EXISTS:
            raise
