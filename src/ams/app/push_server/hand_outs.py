"""Messages of parallel subscriptions for workers, leased over the HTTP API of our service."""

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import structlog

from ams.app.push_server.targets import split_path
from ams.app.push_server.upstream import LongPoller, Poller, Received, as_pulled, kind_of, pull_call, within
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.core.clock import Milliseconds
from ams.push.upstream import NotTaken, PushHandOut, Target, Verdict

CLOSE_SECONDS = 2.0  # to give back leases at the end

logger = structlog.get_logger("ams.push_server")


class _Place(NamedTuple):
    path: str
    text: str


class HttpHandOuts:
    """Implements `ams.push.upstream.HandOuts`; `waiting` waits for messages to lease.

    If a lease brings none, because others have all messages, `pauses` limit the rate of requests.
    """

    def __init__(self, client: AsyncClient, waiting: Poller | LongPoller, pauses: Poller) -> None:
        self._client, self._waiting, self._pauses = client, waiting, pauses
        self._said_due: set[str] = set()  # subscriptions reported due, of which nothing was leased since
        self._unsettled: dict[_Place, set[int]] = {}  # offsets not acknowledged, failed or released, as far as known
        self._under_way: set[asyncio.Task[Any]] = set()  # requests that continue after their callers have left

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[PushHandOut]:

        def give_up(leasing: "asyncio.Task[Sequence[PushHandOut]]") -> None:
            if not leasing.cancelled() and leasing.exception() is None:
                for each in leasing.result():
                    self.release(target, each)

        leasing = asyncio.create_task(self._lease(target, max_messages, max_bytes))
        self._keep(leasing)
        try:
            return await asyncio.shield(leasing)
        except asyncio.CancelledError:  # nobody would know the messages it brings
            leasing.add_done_callback(give_up)
            raise

    async def _lease(self, target: Target, max_messages: int, max_bytes: int) -> Sequence[PushHandOut]:
        with _translate_errors():
            received = (await self._client.call(pull_call(target, max_messages))).received_messages
        if received:
            self._said_due.discard(target.path)
            self._note_arrival(target.path)
        fitting = within(max_bytes, [as_pulled(each) for each in received])
        count = len(fitting)
        for each in self._hand_outs(target, received[count:]):
            self.release(target, each)
        return self._hand_outs(target, received[:count])

    def _hand_outs(self, target: Target, received: Sequence[Received]) -> Sequence[PushHandOut]:
        lots: dict[str, list[Received]] = {}
        for each in received:
            lots.setdefault(each.ack_id.rpartition("-")[2], []).append(each)
        found = [
            PushHandOut(text, lot[0].delivery_attempt, [as_pulled(each) for each in lot]) for text, lot in lots.items()
        ]
        for hand_out in found:
            self._unsettled[_Place(target.path, hand_out.text)] = {each.offset for each in hand_out.messages}
        return found

    async def wait(self, target: Target) -> None:
        """Wait until the service reports messages; pause if it has just done so in vain."""
        if target.path in self._said_due:
            self._said_due.discard(target.path)
            await self._pauses.until_due(target)
            return
        with _translate_errors():
            if await self._waiting.until_due(target):
                self._said_due.add(target.path)
            else:
                self._note_arrival(target.path)

    def _note_arrival(self, path: str) -> None:
        self._waiting.note_arrival(path)
        self._pauses.note_arrival(path)

    async def extend(self, target: Target, hand_out: PushHandOut, seconds: int) -> None:
        with _translate_errors():
            await self._client.call(wire.extend_leases(*split_path(target.path), _ids(target, hand_out), seconds))

    async def acknowledge(self, target: Target, hand_out: PushHandOut) -> None:
        with _translate_errors(), self._settling(target, hand_out):
            await self._client.call(wire.acknowledge(*split_path(target.path), _ids(target, hand_out)))

    async def fail(self, target: Target, hand_out: PushHandOut, wait: Milliseconds, verdict: Verdict) -> None:
        for ack_id in _ids(target, hand_out):
            call = wire.dead_letter(*split_path(target.path), ack_id, **verdict._asdict(), wait=math.ceil(wait))
            with _translate_errors(), self._settling(target, hand_out):
                await self._client.call(call)

    def release(self, target: Target, hand_out: PushHandOut) -> None:
        """Release unsettled messages to be leased again; asks the service in the background."""
        place = _Place(target.path, hand_out.text)
        left = self._unsettled.pop(place, set())
        messages = [each for each in hand_out.messages if each.offset in left]
        others = left - {each.offset for each in messages}
        if others:
            self._unsettled[place] = others
        if messages:
            self._keep(asyncio.create_task(self._release(target, hand_out._replace(messages=messages))))

    async def _release(self, target: Target, hand_out: PushHandOut) -> None:
        """Ask the service to take messages back. If that fails, their leases expire."""
        try:
            await self._client.call(wire.nack(*split_path(target.path), _ids(target, hand_out), failed=False))
        except client_errors.AckTimeout:  # the others are taken back
            return
        except client_errors.ClientError as error:
            logger.info("lease.not_released", subscription=target.path, reason=error.message)

    async def close(self) -> None:
        """Finish giving leases back, and cancel on timeout."""
        until = asyncio.get_running_loop().time() + CLOSE_SECONDS
        while self._under_way and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._under_way, timeout=left)
        for task in self._under_way:
            task.cancel()

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    @contextlib.contextmanager
    def _settling(self, target: Target, hand_out: PushHandOut) -> Iterator[None]:
        """Note that messages are settled, unless the outcome is unknown. Late ids have no effect anyway."""
        try:
            yield
        except client_errors.AckTimeout:
            self._note_settled(target, hand_out)
            raise
        self._note_settled(target, hand_out)

    def _note_settled(self, target: Target, hand_out: PushHandOut) -> None:
        place = _Place(target.path, hand_out.text)
        left = self._unsettled.get(place, set())
        left.difference_update([each.offset for each in hand_out.messages])
        if not left:
            self._unsettled.pop(place, None)


def _ids(target: Target, hand_out: PushHandOut) -> list[str]:
    project, subscription = split_path(target.path)
    return [f"{wire.ack_id(project, subscription, each.offset)}-{hand_out.text}" for each in hand_out.messages]


@contextlib.contextmanager
def _translate_errors() -> Iterator[None]:
    """Raise errors as workers know them; `NotTaken` for expired leases, as after a seek."""
    try:
        yield
    except client_errors.InvalidInput as error:
        raise NotTaken(error.message) from error
    except client_errors.ClientError as error:
        raise kind_of(error)(error.message) from error
