"""Messages of parallel subscriptions for workers, leased over the HTTP API of a service of ours."""

import asyncio
import contextlib
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import structlog

from ams.app.push_server.targets import named
from ams.app.push_server.upstream import Polling, Received, Waking, kind_of, pull_call, pulled, within
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.core.clock import Milliseconds
from ams.push.upstream import HandOut, NotTaken, Target, Verdict

CLOSE_SECONDS = 2.0  # for giving back what is left at the end

logger = structlog.get_logger("ams.push_server")


class _Place(NamedTuple):
    path: str
    text: str


class HttpHandOuts:
    """Keeps the promise of `ams.push.upstream.HandOuts`; `waiting` says when to lease.

    Where there is nothing all the same, as when others have all messages, `pauses` keep this from asking at speed.
    """

    def __init__(self, client: AsyncClient, waiting: Polling | Waking, pauses: Polling) -> None:
        self._client, self._waiting, self._pauses = client, waiting, pauses
        self._said_due: set[str] = set()  # subscriptions said to have messages, of which nothing was leased since
        self._unsettled: dict[_Place, set[int]] = {}  # offsets not acknowledged, failed or released, as far as is known
        self._under_way: set[asyncio.Task[Any]] = set()  # requests that go on when nobody waits for them any more

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[HandOut]:

        def give_up(leasing: "asyncio.Task[Sequence[HandOut]]") -> None:
            if not leasing.cancelled() and leasing.exception() is None:
                for each in leasing.result():
                    self.release(target, each)

        leasing = asyncio.create_task(self._lease(target, max_messages, max_bytes))
        self._keep(leasing)
        try:
            return await asyncio.shield(leasing)
        except asyncio.CancelledError:  # what it brings would not be known to anybody
            leasing.add_done_callback(give_up)
            raise

    async def _lease(self, target: Target, max_messages: int, max_bytes: int) -> Sequence[HandOut]:
        with _asking():
            received = (await self._client.call(pull_call(target, max_messages))).received_messages
        if received:
            self._said_due.discard(target.path)
            self._came(target.path)
        fitting = within(max_bytes, [pulled(each) for each in received])
        count = len(fitting)
        for each in self._hand_outs(target, received[count:]):
            self.release(target, each)
        return self._hand_outs(target, received[:count])

    def _hand_outs(self, target: Target, received: Sequence[Received]) -> Sequence[HandOut]:
        lots: dict[str, list[Received]] = {}
        for each in received:
            lots.setdefault(each.ack_id.rpartition("-")[2], []).append(each)
        found = [HandOut(text, lot[0].delivery_attempt, [pulled(each) for each in lot]) for text, lot in lots.items()]
        for hand_out in found:
            self._unsettled[_Place(target.path, hand_out.text)] = {each.offset for each in hand_out.messages}
        return found

    async def wait(self, target: Target) -> None:
        """Wait until the service says that there is something, or for a while where it has just said so in vain."""
        if target.path in self._said_due:
            self._said_due.discard(target.path)
            await self._pauses.until_due(target)
            return
        with _asking():
            if await self._waiting.until_due(target):
                self._said_due.add(target.path)
            else:
                self._came(target.path)

    def _came(self, path: str) -> None:
        self._waiting.came(path)
        self._pauses.came(path)

    async def extend(self, target: Target, hand_out: HandOut, seconds: int) -> None:
        with _asking():
            await self._client.call(wire.extend_leases(*named(target.path), _ids(target, hand_out), seconds))

    async def acknowledge(self, target: Target, hand_out: HandOut) -> None:
        with _asking(), self._settling(target, hand_out):
            await self._client.call(wire.acknowledge(*named(target.path), _ids(target, hand_out)))

    async def fail(self, target: Target, hand_out: HandOut, wait: Milliseconds, verdict: Verdict) -> None:
        for ack_id in _ids(target, hand_out):
            call = wire.dead_letter(*named(target.path), ack_id, **verdict._asdict(), wait=math.ceil(wait))
            with _asking(), self._settling(target, hand_out):
                await self._client.call(call)

    def release(self, target: Target, hand_out: HandOut) -> None:
        """Let messages be leased again that are not settled: soon, as the service is asked in the background."""
        place = _Place(target.path, hand_out.text)
        left = self._unsettled.pop(place, set())
        messages = [each for each in hand_out.messages if each.offset in left]
        others = left - {each.offset for each in messages}
        if others:
            self._unsettled[place] = others
        if messages:
            self._keep(asyncio.create_task(self._release(target, hand_out._replace(messages=messages))))

    async def _release(self, target: Target, hand_out: HandOut) -> None:
        """Ask the service to take messages back; where it does not, their leases end by themselves."""
        try:
            await self._client.call(wire.nack(*named(target.path), _ids(target, hand_out), failed=False))
        except client_errors.AckTimeout:  # the others are taken back
            return
        except client_errors.ClientError as error:
            logger.info("lease.not_released", subscription=target.path, reason=error.message)

    async def close(self) -> None:
        """Let the service have what is given back; what takes too long is cut off."""
        until = asyncio.get_running_loop().time() + CLOSE_SECONDS
        while self._under_way and (left := until - asyncio.get_running_loop().time()) > 0:
            await asyncio.wait(self._under_way, timeout=left)
        for task in self._under_way:
            task.cancel()

    def _keep(self, task: "asyncio.Task[Any]") -> None:
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    @contextlib.contextmanager
    def _settling(self, target: Target, hand_out: HandOut) -> Iterator[None]:
        """Note that messages are settled, unless it is not known; ids that come late count no more anyway."""
        try:
            yield
        except client_errors.AckTimeout:
            self._note_settled(target, hand_out)
            raise
        self._note_settled(target, hand_out)

    def _note_settled(self, target: Target, hand_out: HandOut) -> None:
        place = _Place(target.path, hand_out.text)
        left = self._unsettled.get(place, set())
        left.difference_update([each.offset for each in hand_out.messages])
        if not left:
            self._unsettled.pop(place, None)


def _ids(target: Target, hand_out: HandOut) -> list[str]:
    project, subscription = named(target.path)
    return [f"{wire.ack_id(project, subscription, each.offset)}-{hand_out.text}" for each in hand_out.messages]


@contextlib.contextmanager
def _asking() -> Iterator[None]:
    """Raise errors as workers know them; `NotTaken` for leases that are no more, as after a seek."""
    try:
        yield
    except client_errors.InvalidInput as error:
        raise NotTaken(error.message) from error
    except client_errors.ClientError as error:
        raise kind_of(error)(error.message) from error
