"""A fault for each law, planted under consumers of parallel subscriptions, is caught by the checker."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ams.core.names import Offset
from ams.service import subscriptions
from ams.service.dead_letters import DeadLetters
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.lease_table import LeaseTable
from ams.service.parallel.message_state import OrderingKeys
from ams.storage.cursors.acks import Change
from ams.storage.cursors.sqlite import SqliteCursors
from tests.faults import scene
from tests.faults.history import History
from tests.faults.http_client import HttpClient, Traffic
from tests.faults.parallel import laws
from tests.faults.parallel import scene as parallel
from tests.faults.parallel.laws import Parallel
from tests.faults.parallel.workload import Worker
from tests.faults.payload import is_poisoned
from tests.faults.target import Target
from tests.faults.workload import Publisher
from tests.support.service import running_service
from tests.support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.embedded("faults are planted in the embedded engines")

MESSAGES = 60
PLAIN, ONCE, KEYED = (each._replace(deadline=1) for each in parallel.KINDS)

Patch = pytest.MonkeyPatch
Use = Callable[[Worker], Awaitable[None]]
Life = Callable[["Trial"], Awaitable[None]]


async def use(worker: Worker) -> None:
    """Acknowledge some of what is given, give some back, keep some; then ask for more."""
    first = await worker.pull(30)
    if not first.messages:  # all of it may be out since before the restart
        return
    names = {each.ack_id: each.name for each in first.messages}
    good = [each for each, name in names.items() if not is_poisoned(name)]
    await worker.acknowledge(good[:10])
    await worker.nack([each for each in names if each not in good[:20]] or good[10:])
    await worker.pull(60)


async def dawdle(worker: Worker) -> None:
    first = await worker.pull(5)
    await asyncio.sleep(PLAIN.deadline + 0.3)
    if first.messages:
        await worker.acknowledge([each.ack_id for each in first.messages])


@dataclass
class Stage:
    """A target that is started again in this process: what memory alone knows is forgotten, as by a kill."""

    up: asyncio.Event = field(default_factory=asyncio.Event)
    deaths: int = 0
    live: SimpleNamespace | None = None
    """Where it is, as `LiveService` tells it."""


class Trial:
    """A subscription that is used, restarted with its service, and used to its end."""

    def __init__(self, kind: Parallel) -> None:
        self.kind, self.stage, self.traffic, chance = kind, Stage(), Traffic(), random.Random(1)
        self.history, target = History({f"{kind.topic}-steady": kind.topic}), cast("Target", self.stage)
        self.clients = [HttpClient(name, target, self.traffic) for name in ("admin", "p", "w")]
        self.admin, publishing, working = self.clients
        self.publisher = Publisher(publishing, self.history, chance, (kind.topic,), ((1, 1),), 0, ordered=True)
        self.worker = Worker(working, self.history, chance, kind.name)

    async def run(self, folder: Path, before: Life, after: Life) -> list[str]:
        """Live twice; return what is found."""
        for life in (before, after):
            async with running_service(folder) as (run, token):
                self.stage.live = SimpleNamespace(base_url=run.base_url, token=token)
                self.stage.up.set()
                if life is before:
                    await scene.prepare(self.admin, self.history.subscriptions)
                    await parallel.prepare(self.admin, [self.kind])
                else:
                    self.history.restarts.append(time.monotonic())
                await life(self)
                found = await self.found()
                for client in self.clients:
                    client.close()
                self.stage.up.clear()
                self.stage.deaths += 1
        return found

    async def found(self) -> list[str]:
        ending = await scene.ending(self.admin, self.history.subscriptions)
        left = await parallel.ending(self.admin, [self.kind])
        held = ending.topics[self.kind.topic]
        return [*self.traffic.violations(), *laws.violations(self.kind, held, self.history.attempts, left)]

    async def tells(self, sentence: str) -> bool:
        return any(sentence in each for each in await self.found())


async def used(folder: Path, kind: Parallel, how: Use, sentence: str = "") -> list[str]:
    """Use a subscription until it is at its end, or until this is found."""

    async def before(trial: Trial) -> None:
        published = await trial.publisher.publish(kind.topic, MESSAGES)
        assert any(is_poisoned(name) for name in published.names)
        await how(trial.worker)

    async def after(trial: Trial) -> None:
        await how(trial.worker)
        if not sentence:
            await parallel.drain([trial.worker])
        while sentence and not await trial.tells(sentence) and time.monotonic() < give_up:
            await parallel.drain([trial.worker], 0.5)

    give_up = time.monotonic() + PATIENCE_SECONDS
    return await Trial(kind).run(folder, before, after)


def change_stored(patch: Patch, changed: Callable[[Change], Change]) -> None:
    """Let something else be stored than what was to be."""
    whole = SqliteCursors.settle

    async def settle(cursors: SqliteCursors, *given: Any) -> bool:
        *where, change = given
        return await whole(cursors, *where, changed(change))  # type: ignore[call-arg]

    patch.setattr(SqliteCursors, "settle", settle)


def forget_acks(patch: Patch) -> None:
    change_stored(patch, lambda change: change._replace(done=()))


def forget_failures(patch: Patch) -> None:
    change_stored(patch, lambda change: change._replace(failures={}))


def lose_dead_letters(patch: Patch) -> None:
    async def put(*_: object, **__: object) -> None:
        return

    patch.setattr(DeadLetters, "put", put)


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


def free_all_keys(patch: Patch) -> None:
    patch.setattr(OrderingKeys, "begin", lambda *_: True)


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: Patch) -> None:
    monkeypatch.setattr(subscriptions, "MIN_ACK_DEADLINE", 1)


@pytest.mark.parametrize("kind", [PLAIN, ONCE, KEYED], ids=lambda kind: kind.name)
async def test_the_service_as_it_is_keeps_the_laws(tmp_path: Path, kind: Parallel) -> None:
    assert await used(tmp_path / "data", kind, use) == []


@pytest.mark.parametrize(
    ("fault", "kind", "how", "sentence"),
    [
        (forget_acks, PLAIN, use, "came back: message"),
        (lose_dead_letters, PLAIN, use, "nobody acknowledged it nor is it put aside"),
        (give_to_everybody, PLAIN, use, "given twice: message"),
        (end_no_lease, PLAIN, dawdle, "late: message"),
        (forget_failures, PLAIN, use, "counted down: message"),
        (free_all_keys, KEYED, use, "out of order: of key"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_service_that_breaks_a_law_is_caught(
    tmp_path: Path, monkeypatch: Patch, fault: Callable[[Patch], None], kind: Parallel, how: Use, sentence: str
) -> None:
    fault(monkeypatch)

    found = await used(tmp_path / "data", kind, how, sentence)

    assert any(sentence in each for each in found), found
