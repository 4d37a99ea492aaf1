"""Faults planted under the real use cases and engines are caught by the checker, each by the law it breaks."""

import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from ams.core.messages import Message
from ams.core.names import Offset, TopicId
from ams.storage.cursors.base import Cursors
from ams.storage.files import FileHandle
from ams.storage.log.base import Appended, Log
from tests.faults.in_process import Clients, Cut, disk_with, prepare
from tests.support.engines import open_engines
from tests.support.unreliable_disk import UnreliableDisk

Append = Callable[[Log, TopicId, Sequence[Message]], Awaitable[Appended]]


class SpoiledLog:
    """A log whose appends go wrong."""

    def __init__(self, log: Log, spoiled: Append) -> None:
        self._log = log
        self._spoiled = spoiled

    async def append(self, topic: TopicId, messages: Sequence[Message], *, key: str | None = None) -> Appended:
        return await self._spoiled(self._log, topic, messages)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)


async def drop_a_message(log: Log, topic: TopicId, messages: Sequence[Message]) -> Appended:
    return (await log.append(topic, messages[1:]))._replace(count=len(messages))


async def reorder(log: Log, topic: TopicId, messages: Sequence[Message]) -> Appended:
    return await log.append(topic, messages[::-1])


async def half_a_request(log: Log, topic: TopicId, messages: Sequence[Message]) -> Appended:
    await log.append(topic, messages[: len(messages) // 2])
    raise Cut


async def store_twice(log: Log, topic: TopicId, messages: Sequence[Message]) -> Appended:
    await log.append(topic, messages)
    return await log.append(topic, messages)


async def the_same_ids_twice(log: Log, topic: TopicId, messages: Sequence[Message]) -> Appended:
    return (await log.append(topic, messages))._replace(first=Offset(0))


async def alter(log: Log, topic: TopicId, messages: Sequence[Message]) -> Appended:
    return await log.append(topic, [messages[1], *messages[1:]])


class ForgottenAcks:
    """Cursors that answer an acknowledgement and do nothing."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors

    async def acknowledge(self, *_: object) -> None:
        return

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursors, name)


class AcksNobodySent:
    """Cursors that take a hand-out for an acknowledgement."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors

    async def hand_out(self, subscription: Any, generation: int, end: Offset, at: Offset | None = None) -> bool:
        done = await self._cursors.hand_out(subscription, generation, end, at)
        await self._cursors.acknowledge(subscription, Offset(end - 1), cast("Any", 10_000))
        return done

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursors, name)


class AnyAck:
    """Cursors that take every acknowledgement, whatever was handed out since the last seek."""

    def __init__(self, cursors: Cursors) -> None:
        self._cursors = cursors

    async def acknowledge(self, subscription: Any, last: Offset, deadline: Any) -> None:
        topic = (await self._cursors.places())[subscription].topic
        generation = (await self._cursors.position(subscription, topic)).generation
        await self._cursors.hand_out(subscription, generation, Offset(last + 1))
        await self._cursors.acknowledge(subscription, last, deadline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cursors, name)


class LyingDisk(UnreliableDisk):
    """Says that it has synced, and has not."""

    lies = False

    def sync(self, handle: FileHandle) -> None:
        if not self.lies:
            super().sync(handle)

    def write_through(self, handle: FileHandle, parts: Sequence[bytes], position: int) -> None:
        if self.lies:
            self.write(handle, b"".join(parts), position)
        else:
            super().write_through(handle, parts, position)


async def use(clients: Clients) -> None:
    """Do what clients do, so that every planted fault shows."""
    await clients.publish(3)
    await clients.publish(4)
    pulled = await clients.pull(4)
    if pulled.messages:
        await clients.acknowledge(pulled.messages[1].id)
    await clients.pull(2)
    await clients.publish(10)
    await clients.pull()


async def used(folder: Path, plant: Callable[[Clients], Clients]) -> list[str]:
    """Use the service, restart it, use it again; everything with the fault planted."""
    await prepare(folder)
    async with open_engines(folder) as engines:
        clients = plant(await Clients.of(engines))
        await use(clients)
    async with open_engines(folder) as engines:
        await use(plant(await clients.again(engines)))
        return await clients.violations(engines)


async def test_the_engines_as_they_are_keep_the_laws(tmp_path: Path) -> None:
    assert await used(tmp_path, lambda clients: clients) == []


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (drop_a_message, "acknowledged as id 2, is lost"),
        (reorder, "is not stored in its order"),
        (half_a_request, "1 of 3 messages of request r1 are stored; r1/1 is not"),
        (store_twice, "message r1/0 of request r1 is stored as ids 0 and 3"),
        (the_same_ids_twice, "request r2 to topic t was answered id 0, but request r1 had been answered id 2"),
        (alter, "message r1/0 of request r1, acknowledged as id 0, is lost"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
async def test_a_log_that_goes_wrong_is_caught(tmp_path: Path, fault: Append, sentence: str) -> None:
    found = await used(tmp_path, lambda clients: replace(clients, log=cast("Log", SpoiledLog(clients.log, fault))))

    assert any(sentence in each for each in found), found


@pytest.mark.parametrize(
    ("fault", "sentence"),
    [
        (ForgottenAcks, "which had been acknowledged or passed; it could only stand at 2 (by r4)"),
        (AcksNobodySent, "and so skipped messages nobody had acknowledged"),
    ],
)
async def test_cursors_that_go_wrong_are_caught(
    tmp_path: Path, fault: Callable[[Cursors], object], sentence: str
) -> None:
    found = await used(tmp_path, lambda clients: replace(clients, cursors=cast("Cursors", fault(clients.cursors))))

    assert any(sentence in each for each in found), found


async def acknowledge_after_a_seek(clients: Clients) -> None:
    await clients.publish(4)
    await clients.pull()
    await clients.seek(0)
    await clients.acknowledge(2)


async def acknowledge_what_was_not_pulled(clients: Clients) -> None:
    await clients.publish(4)
    await clients.pull(2)
    await clients.acknowledge(2)


@pytest.mark.parametrize("wrong", [acknowledge_after_a_seek, acknowledge_what_was_not_pulled])
@pytest.mark.parametrize("fault", [lambda cursors: cursors, AnyAck], ids=["as it is", "planted"])
async def test_an_acknowledgement_of_what_is_not_handed_out_is_caught(
    tmp_path: Path, fault: Callable[[Cursors], object], wrong: Callable[[Clients], Awaitable[None]]
) -> None:
    await prepare(tmp_path)
    async with open_engines(tmp_path) as engines:
        clients = await Clients.of(engines)
        clients = replace(clients, cursors=cast("Cursors", fault(clients.cursors)))
        await wrong(clients)
        found = await clients.violations(engines)

    assert len(found) == (fault is AnyAck)
    assert all("acknowledged message 2, which was not handed out since the last seek" in each for each in found)


@pytest.mark.parametrize("lies", [False, True], ids=["after the sync", "before the sync"])
async def test_an_answer_before_the_sync_is_caught_by_a_power_loss(tmp_path: Path, lies: bool) -> None:
    disk = disk_with(tmp_path, LyingDisk())
    await prepare(tmp_path, disk)
    async with open_engines(tmp_path, files=disk) as engines:
        clients = await Clients.of(engines)
        await clients.publish(3)
        disk.lies = lies
        await clients.publish(40)
    disk.power_loss(random.Random(1))

    async with open_engines(tmp_path, files=disk) as engines:
        found = await (await clients.again(engines)).violations(engines)

    assert (found == []) is not lies
    assert any("of request r2, acknowledged as id" in each and "is lost" in each for each in found) is lies
