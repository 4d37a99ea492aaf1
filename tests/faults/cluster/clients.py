"""Clients of the whole cluster by haproxy's address: our own with a timeout of ten seconds, and the library."""

import asyncio
import ssl
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from argo_ams_library import AmsException, AmsMessage, ArgoMessagingService

from bench.connection import CLOSED, Address, Response, connect, request
from simulation.histories.attempts import Held, Outcome
from simulation.histories.client import PROJECT, Client, Kind, Tried, encode_body, error_text, to_tried
from simulation.histories.payload import message
from tests.faults.cluster.calls import Call, CallLog
from tests.faults.http_client import END_OF_TIME, ask

PATIENCE_SECONDS = 10.0
BREATH_SECONDS = 0.5
"""Pause of a client after a failure: without it a fault of seconds would fill the history with failures."""
_VERBS = ("publish", "pull", "acknowledge", "modifyOffset", "offsets")


@dataclass(frozen=True)
class Front:
    address: Address
    token: str
    tls: ssl.SSLContext


class FrontClient(Client):
    """One client with one connection to haproxy."""

    def __init__(self, name: str, front: Front, log: CallLog, what: str = "") -> None:
        """`what` names its calls; empty: each is named by its request."""
        super().__init__(name, log)
        self._front, self._calls, self._what = front, log, what
        self._failed = ""

    async def attempt(
        self, name: str, path: str, body: object, kind: Kind = Kind.OTHER, *, method: str = "POST", **headers: str
    ) -> Tried:
        """Make one attempt and return its outcome.

        A node that answers 5xx may have forwarded everything before it lost its backend. So the outcome is unknown: the
        request was executed wholly or not at all, and perhaps later.
        """
        found, call = await self._once(name, path, body, method, headers)
        self._calls.note(call._replace(again=name == self._failed))
        if call.has_failed:
            self._failed = name
            await asyncio.sleep(BREATH_SECONDS)
        return found

    async def must(self, path: str, body: object, *, method: str = "POST") -> Any:
        """Retry until success, for a while, and return the document; not counted as a call."""
        give_up = time.monotonic() + 3 * PATIENCE_SECONDS
        while True:
            found, call = await self._once(self.next_request(), path, body, method, {})
            if found.is_done:
                return found.document
            assert call.has_failed, f"{method} {path} was answered {call.status} {call.text}"
            assert time.monotonic() < give_up, f"{method} {path} was not answered with success: {call}"
            await asyncio.sleep(BREATH_SECONDS)

    async def _once(self, name: str, path: str, body: Any, method: str, headers: dict[str, str]) -> tuple[Tried, Call]:
        pieces = request(method, PROJECT + path, self._front.token, encode_body(body), x_request_id=name, **headers)
        started = time.monotonic()
        answer = await self._ask(pieces)
        ended = time.monotonic()
        verb = path.rpartition(":")[2]
        what = self._what or (verb if verb in _VERBS else "read")
        call = Call(name, what, started, ended, answer.status, error_text(answer))
        if call.has_failed:
            return to_tried(name, started, END_OF_TIME, Outcome.UNKNOWN, answer), call
        return to_tried(name, started, ended, Outcome.DONE if answer.status == 200 else Outcome.REFUSED, answer), call

    async def _ask(self, pieces: tuple[bytes, ...]) -> Response:
        give_up = time.monotonic() + PATIENCE_SECONDS
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                if self._connection is None or self._connection.closed:
                    self._connection = await connect(self._front.address, self._front.tls)
            answer = await ask(self._connection, pieces, give_up - time.monotonic())
        except (TimeoutError, OSError):
            answer = Response(CLOSED)
        if answer.status == CLOSED:
            self.close()
        return answer


RETRY: dict[str, Any] = {"retry": 3, "retrysleep": 1}
FAILED_STATUS = 599  # stands for the library's exception after its last try
PAUSE_SECONDS = 0.1
ACK_DEADLINE_SECONDS = 10.0  # of the library's subscription


def is_rightly_late(error: AmsException, seconds: float) -> bool:
    """Return whether a call of so many seconds was refused as later than the deadline that it had passed itself.

    The library asks again after such a refusal, so the time of the call tells nothing about the service.
    """
    return getattr(error, "code", 0) == HTTPStatus.REQUEST_TIMEOUT and seconds > ACK_DEADLINE_SECONDS


@dataclass
class LibraryUser:
    """A publisher and a consumer of a topic of their own; each runs in a thread.

    The library repeats a publish without an answer, so a message may be stored twice (that is counted). Acknowledged
    messages must not be lost.
    """

    endpoint: str
    token: str
    ca: str
    topic: str
    subscription: str
    log: CallLog
    published: dict[str, int] = field(default_factory=dict)  # the id of each message that was acknowledged to us
    received: list[Held] = field(default_factory=list)
    _stands: set[int] = field(default_factory=lambda: {0})
    """Possible positions of the subscription: two after an acknowledgement without an answer."""

    def publish(self) -> None:
        ams, number = self._service(), 0
        while not self.log.stopping:
            number += 1
            name = f"{self.topic}-{number}"
            sent = AmsMessage(b64enc=False, **message(name))
            answer = self._call(name, "publish", lambda: ams.publish(self.topic, sent, **RETRY, **self._options()))  # noqa: B023  # called at once
            if answer is not None:
                self.published[name] = int(answer["messageIds"][0])
            time.sleep(PAUSE_SECONDS)

    def consume(self) -> None:
        ams, number = self._service(), 0
        while not self.log.stopping:
            number += 1
            self._consume(ams, f"{self.subscription}-{number}")
            time.sleep(PAUSE_SECONDS)

    def _consume(self, ams: ArgoMessagingService, name: str) -> None:
        pull = {"num": 50, "return_immediately": True, **RETRY, **self._options()}
        batch = self._call(name, "pull", lambda: ams.pull_sub(self.subscription, **pull))
        if not batch:
            return
        given = [Held(int(each.get_msgid()), each.get_attr()["name"]) for _, each in batch]
        self.received += given
        if given[0].id not in self._stands:
            self.log.wrong.append(f"law 3: the library was given id {given[0].id}, and stood at one of {self._stands}")
        acks = [ack for ack, _ in batch]
        done = self._call(name, "acknowledge", lambda: ams.ack_sub(self.subscription, acks, **RETRY, **self._options()))
        after = given[-1].id + 1
        self._stands = {after} if done is not None else {given[0].id, after}

    def _call(self, name: str, what: str, call: Any) -> Any:
        """Make a call and note it; None when the library gave up. A rightly refused acknowledgement is not noted."""
        started, status, text, answer = time.monotonic(), 200, "", None
        try:
            answer = call()
        except AmsException as error:
            if is_rightly_late(error, time.monotonic() - started):
                return None
            status, text = FAILED_STATUS, str(error)
        self.log.note(Call(f"library {what} {name}", f"library {what}", started, time.monotonic(), status, text))
        return answer

    def _service(self) -> ArgoMessagingService:
        return ArgoMessagingService(self.endpoint, token=self.token, project=PROJECT.rpartition("/")[2])

    def _options(self) -> dict[str, Any]:
        return {"verify": self.ca, "timeout": PATIENCE_SECONDS, "proxies": {"https": ""}}

    def violations(self, held: Sequence[Held]) -> Iterator[str]:
        """Yield acknowledged messages that are lost or altered; `held` is the whole topic."""
        found = dict(held)
        for name, number in self.published.items():
            if found.get(number) != name:
                there = found.get(number)
                yield f"law 1: message {name} of the library, acknowledged as id {number}, is lost: {there} is there"
        for each in self.received:
            if found.get(each.id) != each.name:
                yield f"law 2: the library was given {each.name} as id {each.id}, where {found.get(each.id)} is"

    def count_repeats(self, held: Sequence[Held]) -> int:
        """Return how many messages are stored twice because the library sent them again."""
        return len(held) - len({each.name for each in held})
