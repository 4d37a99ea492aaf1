"""Calls of the source and the sink to the service, retried with growing pauses."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from random import random
from typing import NamedTuple, TypeVar

import httpx

from ams.client import Client, Retry, transport, wire
from ams.client.errors import ClientError, NotAms, NotFound, refusal
from ams.client.plans import may_send_again, seconds_asked
from ams.client.wire.call import Call
from ams.pipeline.options import Access, RawOptions, ResourceName

T = TypeVar("T")

ANSWER_SECONDS = 30.0  # read timeout


class ReadBounds(NamedTuple):
    """Bounds of an answer to a read, and of its topic."""

    first: int  # first offset; for an empty read, the oldest kept
    next: int  # offset of the next read
    end: int  # offset of the topic's next message
    id: str = ""  # topic id, new if a topic is made again; empty if a proxy drops the header


class Patience:
    """Retries of temporary errors: growing pauses, up to a total time since the last success."""

    def __init__(self, seconds: float) -> None:
        self.policy = Retry(attempts=None, total=seconds, first=0.25, longest=5.0)
        self._failed = 0
        self._since = 0.0

    def reset(self) -> None:
        """Forget earlier errors after a success."""
        self._failed = 0

    def after(self, error: ClientError) -> None:
        """Pause after an error; raise it if it is permanent or the time is over."""
        if not may_send_again(error, repeatable=True):
            raise error
        if self._failed == 0:
            self._since = time.monotonic()
        self._failed += 1
        pause = self.policy.pause(self._failed, time.monotonic() - self._since, seconds_asked(error), random())  # noqa: S311  # spreads load
        if pause is None:
            raise error
        time.sleep(pause)


@contextlib.contextmanager
def open_service(options: Mapping[str, str]) -> Iterator[tuple["Service", str]]:
    """Connect to the service of options of `format("ams")`. Yields the service and the project, or an empty text."""
    access, project = RawOptions(options).access()
    with Service(access) as service:
        yield service, project or ""


class Service(contextlib.AbstractContextManager["Service"]):
    """A connection to a service as one user; not pickled. Methods retry, then raise a `ClientError`."""

    def __init__(self, access: Access) -> None:
        self.access = access
        policy = Patience(access.retry_seconds).policy
        self._client = Client(
            access.endpoint, access.token, bearer=access.bearer, ca=access.ca, timeout=ANSWER_SECONDS, retry=policy
        )
        endpoint = transport.base(access.endpoint)
        trust = transport.trust(endpoint, access.ca, None, None)
        options = transport.httpx_arguments(endpoint, access.token, trust, ANSWER_SECONDS, access.bearer)
        self._streams = httpx.Client(**options)

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self._client.close()
        self._streams.close()

    def call(self, call: Call[T]) -> T:
        """Send a call and return its decoded answer."""
        return self._client.call(call)

    def bounds(self, topic: ResourceName, subscription: str = "") -> ReadBounds:
        """Ask for a topic's bounds by an empty read; consumers name their subscription."""
        patience = Patience(self.access.retry_seconds)
        while True:
            try:
                with self.read(topic, {"to": 0, "max": 1}, subscription) as (_, bounds):
                    return bounds
            except ClientError as error:
                patience.after(error)

    def offset_at(self, topic: ResourceName, moment: datetime, subscription: str = "") -> int:
        """Ask for the offset of the first message published at `moment` or later; the end if there is none."""
        return self.call(wire.topic_time_to_offset(topic.project, topic.name, moment, subscription=subscription)).offset

    def topics(self, project: str, patterns: Sequence[str] = ("*",)) -> list[ResourceName]:
        """Ask for the topics of a project that match one of the patterns (`*`, `?`)."""
        found: list[ResourceName] = []
        token = ""
        while True:
            page = self.call(wire.list_topics(project, page_size=1000, page_token=token))
            found += [ResourceName(project, each.name.rpartition("/")[2]) for each in page.topics]
            token = page.next_page_token
            if not token:
                return [each for each in found if any(fnmatchcase(each.name, pattern) for pattern in patterns)]

    def topic_of(self, subscription: ResourceName) -> ResourceName:
        """Ask for a subscription's topic. Raises `NotFound` if either is gone."""
        resource = self.call(wire.get_subscription(*subscription)).topic
        if "/" not in resource:
            raise NotFound(f"the topic of subscription {subscription} was deleted")
        parts = resource.split("/")
        return ResourceName(parts[-3], parts[-1])

    def move(self, subscription: ResourceName, offset: int) -> None:
        """Move a subscription's offset, forward or back. Idempotent, so it is retried."""
        self.call(replace(wire.modify_offset(*subscription, offset), repeatable=True))

    @contextlib.contextmanager
    def read(
        self, topic: ResourceName, numbers: Mapping[str, int], subscription: str, accept: str = "*/*"
    ) -> Iterator[tuple[httpx.Response, ReadBounds]]:
        """Read messages (`from`, `to`, `max`), without retries. Raises `ClientError`, also within the block."""
        query: dict[str, int | str] = {**numbers, **({"subscription": subscription} if subscription else {})}
        path = wire.read_topic(topic.project, topic.name).path
        try:
            with self._streams.stream("GET", path, params=query, headers={"accept": accept}) as answer:
                if answer.status_code != 200:
                    raise refusal(answer.status_code, answer.read(), answer.headers.get("retry-after", ""))
                told = [answer.headers.get(f"ams-{name}-offset", "") for name in ("first", "next", "end")]
                if not all(each.isdecimal() for each in told):
                    raise NotAms(f"{answer.url.host} does not answer as AMS: a range without its bounds")
                first, following, end = map(int, told)
                yield answer, ReadBounds(first, following, end, answer.headers.get("ams-topic-id", ""))
        except httpx.HTTPError as error:
            raise transport.failure(error, self.access.endpoint) from None
