"""Live views (`GET /projects/P:watch`) for commands: counts of topics and subscriptions as they change."""

import time
from collections.abc import Iterator, Sequence

import httpx
import msgspec

from ams.cli.command import Session
from ams.client.errors import ClientError, NotAms, Unreachable, refusal
from ams.client.transport import failure, httpx_arguments, trust
from ams.wire.service import Counts, ViewEnd

SILENCE = 45.0
"""Seconds without a sign after which a view is opened again; the service gives one each 15 s."""
PAUSE, LONGEST_PAUSE = 1.0, 15.0
MOST_NAMES = 100
"""Of one view."""


def counts(session: Session, topics: Sequence[str], subscriptions: Sequence[str]) -> Iterator[Counts | ClientError]:
    """Yield counts as they change, and why there are none while the service is away: the view is opened again.

    Raises a `ClientError` for a view that the service refuses, or ends for good.
    """
    pause = PAUSE
    while True:
        try:
            for each in _view(session, topics, subscriptions):
                pause = PAUSE
                yield each
        except Unreachable as error:
            if isinstance(error, NotAms):
                raise
            yield error
        time.sleep(pause)
        pause = min(2 * pause, LONGEST_PAUSE)


def _view(session: Session, topics: Sequence[str], subscriptions: Sequence[str]) -> Iterator[Counts]:
    endpoint = session.client.endpoint
    given = httpx_arguments(endpoint, session.token, trust(endpoint, session.ca, None, None), SILENCE, session.bearer)
    path, query = f"/v1/projects/{session.project}:watch", {}
    if topics:
        query["topics"] = ",".join(topics)
    if subscriptions:
        query["subscriptions"] = ",".join(subscriptions)
    try:
        with httpx.Client(**given) as client, client.stream("GET", path, params=query) as answer:
            if answer.status_code != httpx.codes.OK:
                raise refusal(answer.status_code, answer.read(), answer.headers.get("retry-after", ""))
            yield from _read(answer.iter_lines())
    except httpx.HTTPError as error:
        raise failure(error, endpoint) from error


def _read(lines: Iterator[str]) -> Iterator[Counts]:
    name = ""
    for line in lines:
        field, _, value = line.partition(": ")
        if field == "event":
            name = value
        elif field == "data" and name == "counts":
            yield msgspec.json.decode(value, type=Counts)
        elif field == "data" and name == "end":
            end = msgspec.json.decode(value, type=ViewEnd)
            if end.code < httpx.codes.INTERNAL_SERVER_ERROR:
                raise ClientError(end.reason)
            return  # a stop: another node, or the same one again, goes on
