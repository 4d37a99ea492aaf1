"""Faults planted under consumers of parallel subscriptions are caught by the checker, each by the law it breaks."""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from ams.core.names import Offset
from ams.service import dead_letters, subscriptions
from ams.service.dead_letters import DeadLetters
from ams.service.parallel.backlog import Backlog
from ams.service.parallel.before import Before
from ams.service.parallel.failures import Failures
from ams.service.parallel.leases import Leases
from ams.service.parallel.ordering import Keys
from ams.storage.cursors.acks import Change
from ams.storage.cursors.sqlite import SqliteCursors
from tests.faults import scene
from tests.faults.history import History
from tests.faults.http_client import HttpClient, Traffic
from tests.faults.parallel import google, laws
from tests.faults.parallel import scene as parallel
from tests.faults.parallel.attempts import worked
from tests.faults.parallel.laws import Parallel
from tests.faults.parallel.observed import Observer, moment_at
from tests.faults.parallel.stage import Stage
from tests.faults.parallel.workload import Worker
from tests.faults.payload import is_poisoned
from tests.faults.target import Target
from tests.faults.workload import Publisher
from tests.support.service import running_service

pytestmark = pytest.mark.embedded("faults are planted in the embedded engines")

MESSAGES = 60
PLAIN, ONCE, KEYED = (each._replace(deadline=1) for each in parallel.KINDS)
"""Plain, exactly-once, keyed; leases of a second."""
STREAMED_PLAIN, STREAMED_ONCE, STREAMED_KEYED = google.KINDS
"""The same for clients of Google."""
DRAIN_SECONDS, FAULTY_SECONDS = 8.0, 3.0
"""How long the drain of a service may take: one that keeps the laws, and one that may never come to its end."""
STREAM_SECONDS = 40.0
"""The same of one whose consumers are clients of Google: their leases are longer."""

Patch = pytest.MonkeyPatch
Use = Callable[[Worker], Awaitable[None]]


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
    """Acknowledge after the deadline."""
    first = await worker.pull(5)
    await asyncio.sleep(PLAIN.deadline + 0.3)
    if first.messages:
        await worker.acknowledge([each.ack_id for each in first.messages])


async def used(folder: Path, kind: Parallel, how: Use, seconds: float) -> list[str]:
    """Use a subscription, restart the service, use it again and drain it; return what is found."""
    stage, traffic = Stage(), Traffic()
    steady = f"{kind.topic}-steady"
    history = History({steady: kind.topic})
    clients = [HttpClient(name, cast("Target", stage), traffic) for name in ("admin", "p", "w")]
    admin, publishing, working = clients
    generator = random.Random(1)
    publisher = Publisher(publishing, history, generator, (kind.topic,), ((1, 1),), 0, ordered=True)
    worker = Worker(working, history, generator, kind.name)
    for life in range(2):
        async with running_service(folder) as (run, token):
            stage.is_at(run.base_url, token)
            if life == 0:
                await scene.prepare(admin, history.subscriptions)
                await parallel.prepare(admin, [kind])
                published = await publisher.publish(kind.topic, MESSAGES)
                assert any(is_poisoned(name) for name in published.names)
            else:
                history.restarts.append(time.monotonic())
            await how(worker)
            if life == 1:
                await parallel.drain([worker], seconds)
                ending = await scene.ending(admin, history.subscriptions)
                left = await parallel.ending(admin, [kind])
            for client in clients:
                client.close()
            stage.up.clear()
    held = ending.topics[kind.topic]
    return [*traffic.violations(), *laws.violations(kind, held, history.attempts, left)]


async def streamed(folder: Path, kind: Parallel, seconds: float) -> list[str]:
    """Let Google's client use a subscription over a restart of the service, until its end; return what is found."""
    port, stage, traffic = google.free_port(), Stage(), Traffic()
    target, steady = cast("Target", stage), f"{kind.topic}-steady"
    history = History({steady: kind.topic})
    clients = [HttpClient(name, target, traffic) for name in ("admin", "p")]
    admin, publishing = clients
    generator = random.Random(1)
    publisher = Publisher(publishing, history, generator, (kind.topic,), ((1, 1),), 0, ordered=True)
    subscriber = google.Subscriber(kind, Observer("g", kind, history, partial(moment_at, target), traffic), generator)
    try:
        for life in range(2):
            async with running_service(folder, pubsub_port=port, pubsub_emulator=True) as (run, token):
                stage.is_at(run.base_url, token)
                if life == 0:
                    await scene.prepare(admin, history.subscriptions)
                    await parallel.prepare(admin, [kind])
                    subscriber.start(google.plain(f"127.0.0.1:{port}"))
                    await publisher.publish(kind.topic, MESSAGES)
                    await until(lambda: worked(history.attempts) >= MESSAGES // 3)
                else:
                    history.restarts.append(time.monotonic())
                    await parallel.wait_for_end(admin, [kind], seconds)
                    ending = await scene.ending(admin, history.subscriptions)
                    left = await parallel.ending(admin, [kind])
                for client in clients:
                    client.close()
                stage.up.clear()
                stage.deaths += 1
    finally:
        await google.stop([subscriber])
    return [*traffic.violations(), *laws.violations(kind, ending.topics[kind.topic], history.attempts, left)]


async def until(there: Callable[[], bool]) -> None:
    async with asyncio.timeout(DRAIN_SECONDS):
        while not there():
            await asyncio.sleep(0.02)


def change_stored(patch: Patch, changed: Callable[[Change], Change]) -> None:
    """Let something else be stored than what was to be."""
    whole = SqliteCursors.settle

    async def settle(cursors: SqliteCursors, *given: Any) -> bool:
        *where, change = given
        return await whole(cursors, *where, changed(change))  # type: ignore[call-arg]

    patch.setattr(SqliteCursors, "settle", settle)


def forget_acks(patch: Patch) -> None:
    change_stored(patch, lambda change: change._replace(done=()))


def acknowledge_the_next_too(patch: Patch) -> None:
    change_stored(patch, lambda change: change._replace(done=[(begin, Offset(end + 1)) for begin, end in change.done]))


def forget_failures(patch: Patch) -> None:
    change_stored(patch, lambda change: change._replace(failures={}))


def lose_dead_letters(patch: Patch) -> None:
    async def put(*_: object, **__: object) -> None:
        return

    patch.setattr(DeadLetters, "put", put)


def put_aside_twice(patch: Patch) -> None:
    whole, keys = DeadLetters.put, iter(map(str, range(10**6)))

    async def put(*given: Any, **named: Any) -> None:
        await whole(*given, **named)
        await whole(*given, **named)

    patch.setattr(DeadLetters, "put", put)
    patch.setattr(dead_letters, "_key", lambda *_: next(keys))


def give_to_everybody(patch: Patch) -> None:
    whole = Backlog.give

    def give(backlog: Backlog, offsets: list[Offset], *more: Any) -> str:
        text = whole(backlog, offsets, *more)
        backlog.give_back(offsets)
        return text

    patch.setattr(Backlog, "give", give)
    patch.setattr(Backlog, "_is_free", lambda backlog, offset: offset not in backlog.done)


def withhold_nothing(patch: Patch) -> None:
    patch.setattr(Before, "withhold", lambda *_: None)


def end_no_lease(patch: Patch) -> None:
    whole = Backlog.acknowledge
    patch.setattr(Leases, "take_due", lambda *_: iter(()))
    patch.setattr(Leases, "next_due", lambda _: None)
    patch.setattr(Backlog, "acknowledge", lambda backlog, ids, _: whole(backlog, ids, cast("Any", 0)))


def put_nothing_aside(patch: Patch) -> None:
    patch.setattr(Failures, "dead", property(lambda _: [], lambda *_: None), raising=False)
    whole = Backlog.stored

    def stored(backlog: Backlog, settling: Any, now: Any) -> None:
        backlog.go_by(backlog.failures.rules._replace(most_attempts=0))
        whole(backlog, settling, now)

    patch.setattr(Backlog, "stored", stored)


def free_all_keys(patch: Patch) -> None:
    patch.setattr(Keys, "begin", lambda *_: True)


@pytest.fixture(autouse=True)
def short_leases(monkeypatch: Patch) -> None:
    monkeypatch.setattr(subscriptions, "MIN_ACK_DEADLINE", 1)


@pytest.mark.parametrize("kind", [PLAIN, ONCE, KEYED], ids=lambda kind: kind.name)
async def test_the_service_as_it_is_keeps_the_laws(tmp_path: Path, kind: Parallel) -> None:
    assert await used(tmp_path / "data", kind, use, DRAIN_SECONDS) == []


@pytest.mark.parametrize(
    ("fault", "kind", "how", "sentence"),
    [
        (forget_acks, PLAIN, use, "came back: message"),
        (acknowledge_the_next_too, PLAIN, use, "nobody acknowledged it nor is it put aside"),
        (lose_dead_letters, PLAIN, use, "nobody acknowledged it nor is it put aside"),
        (put_aside_twice, PLAIN, use, "was put aside 2 times"),
        (give_to_everybody, PLAIN, use, "given twice: message"),
        (withhold_nothing, ONCE._replace(deadline=10), use, "given twice: message"),
        (end_no_lease, PLAIN, dawdle, "late: message"),
        (forget_failures, PLAIN, use, "counted down: message"),
        (put_nothing_aside, PLAIN, use, "as delivery 6"),
        (free_all_keys, KEYED, use, "out of order: of key"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_service_that_breaks_a_law_is_caught(
    tmp_path: Path, monkeypatch: Patch, fault: Callable[[Patch], None], kind: Parallel, how: Use, sentence: str
) -> None:
    fault(monkeypatch)

    # Who acknowledges late is caught while it is used; where no lease ends the drain has no end.
    found = await used(tmp_path / "data", kind, how, 0.5 if how is dawdle else FAULTY_SECONDS)

    assert any(sentence in each for each in found), found


@pytest.mark.parametrize("kind", [STREAMED_PLAIN, STREAMED_KEYED], ids=lambda kind: kind.name)
async def test_the_service_as_it_is_keeps_the_laws_for_clients_of_google(tmp_path: Path, kind: Parallel) -> None:
    assert await streamed(tmp_path / "data", kind, STREAM_SECONDS) == []


@pytest.mark.parametrize(
    ("fault", "kind", "sentence"),
    [
        (forget_acks, STREAMED_PLAIN, "came back: message"),
        (forget_acks, STREAMED_ONCE, "came back: message"),
        (lose_dead_letters, STREAMED_PLAIN, "nobody acknowledged it nor is it put aside"),
        (free_all_keys, STREAMED_KEYED, "out of order: of key"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
async def test_a_service_that_breaks_a_law_for_clients_of_google_is_caught(
    tmp_path: Path, monkeypatch: Patch, fault: Callable[[Patch], None], kind: Parallel, sentence: str
) -> None:
    fault(monkeypatch)

    # With exactly-once delivery nothing comes again before all leases of before the restart have surely ended.
    found = await streamed(tmp_path / "data", kind, FAULTY_SECONDS + (3 * google.LEASE if kind.exactly_once else 0))

    assert any(sentence in each for each in found), found
