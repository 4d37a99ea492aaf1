"""Faults planted under the service are noticed by the clients of the campaigns, each by the law that it breaks."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import grpc
import pytest

from ams.core.messages import Message
from ams.core.names import Offset, TopicId
from ams.service import subscriptions
from ams.service.dead_letters import DeadLetters
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.hand_out_ids import RestartGrace
from ams.service.parallel.message_state import LeaseTable, OrderingKeys
from ams.storage.cursors.acks import Change
from ams.storage.cursors.sqlite import SqliteCursors
from ams.storage.log.base import Appended
from ams.storage.log.embedded import EmbeddedLog
from local_cluster.ports import free_port
from simulation.histories import parallel_laws as laws
from simulation.histories import parallel_scene as parallel
from simulation.histories import scene
from simulation.histories.attempts import ACK, NACK, worked
from simulation.histories.history import History
from simulation.histories.parallel_laws import Parallel
from simulation.histories.payload import is_poisoned
from simulation.histories.workload import Consumer, Publisher, Worker
from tests.faults.http_client import HttpClient, Target, Traffic
from tests.faults.parallel import google
from tests.support.service import running_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until_async

pytestmark = pytest.mark.embedded("faults are planted in the embedded engines")

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]  # puts a fault into the service
Use = Callable[["Trial"], Awaitable[None]]  # what clients do between a start of the service and its end
ORDERED = parallel.KINDS[0]._replace(name="", topic="t")  # of no parallel subscription


class Trial:
    """A service in this process, and clients of one topic, whose subscription is ordered or of a kind."""

    def __init__(self, kind: Parallel = ORDERED) -> None:
        self.kind, self.topic, self.history, self.traffic = kind, kind.topic, History({"s": kind.topic}), Traffic()
        self.chance = random.Random(1)
        self.target = cast("Target", SimpleNamespace(up=asyncio.Event(), deaths=0, live=None))
        self._clients = [HttpClient(name, self.target, self.traffic) for name in ("admin", "p", "c", "w")]
        self.admin, publishing, consuming, working = self._clients
        told = self.history, self.chance
        self.publisher = Publisher(publishing, *told, (self.topic,), ((1, 1),), 0, ordered=bool(kind.name))
        self.consumer, self.worker = Consumer(consuming, *told, "s"), Worker(working, *told, kind.name)

    async def run(self, folder: Path, plant: Plant, *uses: Use, **settings: object) -> list[str]:
        """Use the service with the fault, start it again between two uses; return what is found without the fault.

        What only memory knows is forgotten at a start, as by a kill.
        """
        for use in uses:
            async with running_service(folder, **settings) as (run, token):
                vars(self.target)["live"] = SimpleNamespace(base_url=run.base_url, token=token)
                self.target.up.set()
                if self.target.deaths:
                    self.history.restarts.append(time.monotonic())
                else:
                    await scene.prepare(self.admin, self.history.subscriptions)
                    if self.kind.name:
                        await parallel.prepare(self.admin, [self.kind])
                with pytest.MonkeyPatch.context() as patch:
                    plant(patch)
                    await use(self)
                found = await self.found()
                for client in self._clients:
                    client.close()
                self.target.up.clear()
                self.target.deaths += 1
        return found

    async def found(self) -> list[str]:
        ending = await scene.ending(self.admin, self.history.subscriptions)
        found = [*self.traffic.violations(), *self.history.violations(ending)]
        if self.kind.name:
            left = await parallel.ending(self.admin, [self.kind])
            found += laws.violations(self.kind, ending.topics[self.topic], self.history.attempts, left)
        return found

    async def tells(self, sentence: str) -> bool:
        return any(sentence in each for each in await self.found())


def replace(owner: type, name: str, fault: object) -> Plant:
    return lambda patch: patch.setattr(owner, name, fault)


def nothing(_: Patch) -> None:
    """Plant no fault."""


async def use_ordered(trial: Trial) -> None:
    """Do what clients do, so that every planted fault shows."""
    await trial.publisher.publish("t", 3)
    await trial.publisher.publish("t", 4)
    pulled = await trial.consumer.pull(4)
    if pulled.messages:
        await trial.consumer.acknowledge(pulled.messages[1].id)
    await trial.consumer.pull(2)
    await trial.publisher.publish("t", 10)
    await trial.consumer.pull(1000)


async def test_the_service_as_it_is_keeps_the_laws(tmp_path: Path) -> None:
    assert await Trial().run(tmp_path / "data", nothing, use_ordered, use_ordered) == []


@pytest.mark.parametrize(("stored", "sentence"), [
    (lambda sent: [*sent[:-1], *sent[:1]], "message p-1/2 of request p-1, acknowledged as id 2, is lost"),
    (lambda sent: [sent[1], *sent[1:]], "message p-1/0 of request p-1, acknowledged as id 0, is lost"),
], ids=["lose the last", "alter the first"])  # fmt: skip
async def test_a_fault_of_the_log_is_noticed(
    tmp_path: Path, stored: Callable[[Sequence[Message]], Sequence[Message]], sentence: str
) -> None:
    whole = EmbeddedLog.append

    async def append(log: EmbeddedLog, topic: TopicId, messages: Sequence[Message], **_: Any) -> Appended:
        return await whole(log, topic, stored(messages))

    found = await Trial().run(tmp_path / "data", replace(EmbeddedLog, "append", append), use_ordered)

    assert any(sentence in each for each in found), found


async def test_a_fault_of_cursors_is_noticed(tmp_path: Path) -> None:
    found = await Trial().run(tmp_path / "data", replace(SqliteCursors, "acknowledge", AsyncMock()), use_ordered)

    assert any("acknowledged or passed; it could only stand at 2 (by c-2)" in each for each in found), found


MESSAGES = 60
PLAIN, ONCE, KEYED = (each._replace(deadline=1) for each in parallel.KINDS)
BY_STREAM, ONCE_BY_STREAM, KEYED_BY_STREAM = google.KINDS


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: Patch) -> None:
    monkeypatch.setattr(subscriptions, "MIN_ACK_DEADLINE", 1)


async def publish_all(trial: Trial) -> None:
    published = await trial.publisher.publish(trial.topic, MESSAGES)
    assert any(is_poisoned(name) for name in published.names)


async def use_leases(trial: Trial) -> None:
    """Acknowledge some of what is given, give some back, keep some; then ask for more."""
    worker = trial.worker
    given = (await worker.pull(30)).messages
    if not given:  # all of it may be out since before the restart
        return
    good = [each for each in given if not is_poisoned(each.name)]
    await worker.settle(ACK, good[:10])
    await worker.settle(NACK, [each for each in given if each not in good[:20]] or good[10:])
    await worker.pull(60)


async def dawdle(trial: Trial) -> None:
    given = (await trial.worker.pull(5)).messages
    await asyncio.sleep(PLAIN.deadline + 0.3)
    if given:
        await trial.worker.settle(ACK, given)


async def leased(folder: Path, kind: Parallel, use: Use, plant: Plant, sentence: str) -> list[str]:
    """Use a subscription, start the service again, and use it until it is at its end, or until this is found."""

    async def begin(trial: Trial) -> None:
        await publish_all(trial)
        await use(trial)

    async def go_on(trial: Trial) -> None:
        await use(trial)
        if not sentence:
            await parallel.drain([trial.worker])
        while sentence and not await trial.tells(sentence) and time.monotonic() < give_up:
            await parallel.drain([trial.worker], 0.5)

    give_up = time.monotonic() + PATIENCE_SECONDS
    return await Trial(kind).run(folder, plant, begin, go_on)


async def streamed(folder: Path, kind: Parallel, plant: Plant, sentence: str) -> list[str]:
    """Let Google's client use a subscription likewise."""
    trial, port = Trial(kind), free_port()
    now = partial(google.moment_at, trial.target)
    subscriber = google.Subscriber(kind, google.Observer("g", kind, trial.history, now, trial.traffic), trial.chance)

    async def begin(trial: Trial) -> None:
        subscriber.start(grpc.insecure_channel(f"127.0.0.1:{port}", options=google.SOON))
        await publish_all(trial)
        await wait_until_async(lambda: worked(trial.history.attempts) >= MESSAGES // 3)

    async def go_on(trial: Trial) -> None:
        await wait_until_async(lambda: trial.tells(sentence))
        await asyncio.to_thread(subscriber.stop)  # while there is a service to give messages back to

    try:
        return await trial.run(folder, plant, begin, go_on, pubsub_port=port, pubsub_emulator=True)
    finally:
        await asyncio.to_thread(subscriber.stop)


def change_stored(changed: Callable[[Change], Change]) -> Plant:
    """Let something else be stored than what was to be."""
    whole = SqliteCursors.settle

    async def settle(cursors: SqliteCursors, *given: Any) -> bool:
        *where, change = given
        return await whole(cursors, *where, changed(change))  # type: ignore[call-arg]

    return replace(SqliteCursors, "settle", settle)


def give_to_everybody(patch: Patch) -> None:
    whole = Backlog.give

    def give(backlog: Backlog, offsets: list[Offset], *more: Any) -> str:
        text = whole(backlog, offsets, *more)
        backlog.give_back(offsets)
        return text

    patch.setattr(Backlog, "give", give)
    patch.setattr(Backlog, "_is_free", lambda backlog, offset: offset not in backlog.done)


def end_no_lease(patch: Patch) -> None:
    whole = Backlog.acknowledge
    patch.setattr(LeaseTable, "take_due", lambda *_: iter(()))
    patch.setattr(LeaseTable, "next_due", lambda _: None)
    patch.setattr(Backlog, "acknowledge", lambda backlog, ids, _: whole(backlog, ids, cast("Any", 0)))


FORGET_ACKS = change_stored(lambda change: change._replace(done=()))
LOSE_LETTERS = replace(DeadLetters, "put", AsyncMock())
FREE_ALL_KEYS = replace(OrderingKeys, "begin", lambda *_: True)
FORGOTTEN = "nobody acknowledged it nor is it put aside"
OF_LEASES = {
    "no fault": (nothing, PLAIN, ""),
    "no fault, exactly once": (nothing, ONCE, ""),
    "no fault, keyed": (nothing, KEYED, ""),
    "acks are forgotten": (FORGET_ACKS, PLAIN, "came back: message"),
    "dead letters are lost": (LOSE_LETTERS, PLAIN, FORGOTTEN),
    "given to everybody": (give_to_everybody, PLAIN, "given twice: message"),
    "given after a restart": (
        replace(RestartGrace, "withhold", lambda *_: None), ONCE._replace(deadline=10), "given twice: message",
    ),
    "no lease ends": (end_no_lease, PLAIN, "late: message"),
    "failures are forgotten": (
        change_stored(lambda change: change._replace(failures={})), PLAIN, "counted down: message",
    ),
    "keys hold nothing up": (FREE_ALL_KEYS, KEYED, "out of order: of key"),
}  # fmt: skip
"""A fault, who works, and what is noticed; nothing without a fault."""


@pytest.mark.parametrize(("fault", "kind", "sentence"), OF_LEASES.values(), ids=OF_LEASES)
async def test_a_fault_of_leases_is_noticed(tmp_path: Path, fault: Plant, kind: Parallel, sentence: str) -> None:
    found = await leased(tmp_path / "data", kind, dawdle if fault is end_no_lease else use_leases, fault, sentence)

    assert any(sentence in each for each in found) if sentence else found == [], found


OF_STREAMS = {
    "acks are forgotten": (FORGET_ACKS, BY_STREAM, "came back: message"),
    "acks are forgotten, exactly once": (FORGET_ACKS, ONCE_BY_STREAM, "came back: message"),
    "dead letters are lost": (LOSE_LETTERS, BY_STREAM, FORGOTTEN),
    "keys hold nothing up": (FREE_ALL_KEYS, KEYED_BY_STREAM, "out of order: of key"),
}


@pytest.mark.long
@pytest.mark.parametrize(("fault", "kind", "sentence"), OF_STREAMS.values(), ids=OF_STREAMS)
async def test_a_fault_is_noticed_by_clients_of_google(
    tmp_path: Path, fault: Plant, kind: Parallel, sentence: str
) -> None:
    found = await streamed(tmp_path / "data", kind, fault, sentence)

    assert any(sentence in each for each in found), found
