"""Workers on a parallel subscription of a real service, with both clients."""

import asyncio
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ams.client import AsyncClient, Client, Message, ReceivedMessage, RetryLater, Worked
from ams.client.errors import AckTimeout, Conflict, NotFound
from ams.client.messages import Limits
from tests.client.faces import open_client
from tests.client.handlers import (
    Handler,
    accelerate_clocks,
    backlog,
    call_after,
    create_work_project,
    let_time_pass_faster,
    pass_leases,
    publish,
    sharing_handlers,
)
from tests.support.documents import environment
from tests.support.served import InProcessService, in_process_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until, wait_until_async

ON_ONE_FACE = pytest.mark.parametrize("face", ["asyncio"])  # for what the worker decides, which is one for both faces
EXACTLY_ONCE = {"enable_exactly_once_delivery": True}


@pytest.fixture(scope="module")
def client(service: InProcessService) -> Iterator[Client]:
    with Client(service.run.base_url, service.token) as client:
        yield client


@pytest.fixture
def project(client: Client) -> str:
    return create_work_project(client)


@pytest.fixture
def client_of_face(face: str, service: InProcessService) -> Iterator[Any]:
    with open_client(face, service.run.base_url, service.token) as client:
        yield client


def test_every_message_is_handled_some_at_a_time(client: Client, client_of_face: Any, face: str, project: str) -> None:
    data = publish(client, project, 300)
    handler = Handler(face, lambda _: 0.005)

    done = client_of_face.work("s", handler.handle, project=project, concurrency=8, until_empty=True)

    assert done == Worked(worked=300)
    assert sorted(handler.seen) == sorted(data)
    assert 1 < handler.most <= 8
    assert backlog(client, project) == 0


@pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["plain", "exactly once"])
def test_two_workers_share_one_backlog(client: Client, service: InProcessService, options: dict[str, bool]) -> None:
    project = create_work_project(client, **options)
    data = publish(client, project, 300)
    handlers = sharing_handlers()

    def work(handler: Handler) -> Worked:
        with Client(service.run.base_url, service.token) as own:
            return own.work("s", handler.handle, project=project, concurrency=4, until_empty=True)

    with ThreadPoolExecutor(2) as threads:
        done = list(threads.map(work, handlers))

    assert Counter(seen for each in handlers for seen in each.seen) == Counter(data)
    assert sum(each.worked for each in done) == 300
    assert all(each.seen for each in handlers)
    assert backlog(client, project) == 0


@ON_ONE_FACE
def test_work_ends_after_so_many_messages(client: Client, client_of_face: Any, face: str, project: str) -> None:
    publish(client, project, 20)
    handler = Handler(face)

    done = client_of_face.project(project).subscription("s").work(handler.handle, concurrency=2, max_messages=7)

    assert (done, len(handler.seen)) == (Worked(worked=7), 7)
    assert backlog(client, project) == 13


@ON_ONE_FACE
def test_no_more_is_on_lease_than_was_said(client: Client, client_of_face: Any, face: str, project: str) -> None:
    publish(client, project, 20)
    free: list[int] = []
    looked = threading.Event()

    def look() -> None:
        free.append(len(client.project(project).subscription("s").pull(100, wait=False)))
        looked.set()

    looking = threading.Thread(target=look)

    def look_soon(_: ReceivedMessage) -> threading.Event:
        if len(handler.seen) == 2:
            looking.start()
        return looked  # the first two hold up the others while it is looked

    handler = Handler(face, look_soon)
    client_of_face.work("s", handler.handle, project=project, concurrency=2, prefetch=3, max_messages=5)

    looking.join(PATIENCE_SECONDS)
    assert free == [15]


def test_a_stop_finishes_work_and_gives_back(client: Client, client_of_face: Any, face: str, project: str) -> None:
    publish(client, project, 10)
    noticed = threading.Event()

    def is_set() -> bool:
        """Stop when both handlers have begun: they end when the worker has seen the stop."""
        if len(handler.seen) == 2:
            noticed.set()
        return noticed.is_set()

    handler, stop = Handler(face, lambda _: noticed), SimpleNamespace(is_set=is_set)
    done = client_of_face.work("s", handler.handle, project=project, concurrency=2, prefetch=3, stop=stop)

    assert done == Worked(worked=2, given_back=3)
    there = client.project(project).subscription("s")
    again = [*there.pull(100), *there.pull(100)]  # what comes again is given first
    assert {each.delivery_attempt for each in again} == {1}  # nobody has failed at it
    assert sorted(each.data for each in again) == sorted(b"%d" % n for n in range(10) if b"%d" % n not in handler.seen)


def test_what_does_not_end_in_time_is_given_back(client: Client, client_of_face: Any, face: str, project: str) -> None:
    publish(client, project, 2)
    stop, over = threading.Event(), threading.Event()

    def stop_soon() -> None:
        wait_until(lambda: backlog(client, project) == 1)
        stop.set()

    stopping = threading.Thread(target=stop_soon)
    stopping.start()
    handler = Handler(face, lambda message: 0 if message.data == b"0" else over)
    done = client_of_face.work("s", handler.handle, project=project, stop=stop, grace=0.1)
    over.set()
    stopping.join()

    assert done == Worked(worked=1, given_back=1)
    again = client.project(project).subscription("s").pull(100)
    assert [(each.data, each.delivery_attempt) for each in again] == [(b"1", 2)]


def test_closing_the_client_ends_the_work(client: Client, service: InProcessService, project: str) -> None:
    publish(client, project, 1)
    over = threading.Event()

    def close(_: ReceivedMessage) -> None:
        closed.close()
        over.wait(PATIENCE_SECONDS)

    with Client(service.run.base_url, service.token) as closed:
        assert closed.work("s", close, project=project).worked == 0
    over.set()


async def test_closing_the_asyncio_client_ends_the_work(client: Client, service: InProcessService, project: str):
    publish(client, project, 1)

    async def close(_: ReceivedMessage) -> None:
        await closed.close()
        await asyncio.sleep(60)

    async with AsyncClient(service.run.base_url, service.token) as closed:
        assert (await closed.work("s", close, project=project)).worked == 0


async def test_cancelled_work_gives_back_what_it_had(client: Client, service: InProcessService, project: str) -> None:
    publish(client, project, 3)
    begun = asyncio.Event()

    async def begin(_: ReceivedMessage) -> None:
        begun.set()
        await asyncio.sleep(60)

    async with AsyncClient(service.run.base_url, service.token) as working:
        task = asyncio.create_task(working.work("s", begin, project=project, concurrency=1))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        there = working.project(project).subscription("s")
        assert sorted([each.data for each in await there.pull(10)] + [e.data for e in await there.pull(10)]) == [
            b"0", b"1", b"2",
        ]  # fmt: skip


def test_an_ordered_subscription_is_refused(client: Client, client_of_face: Any, face: str, project: str) -> None:
    client.project(project).subscription("ordered").create("t")

    with pytest.raises(Conflict, match="ordered is ordered"):
        client_of_face.work("ordered", Handler(face).handle, project=project)
    with pytest.raises(NotFound):
        client_of_face.work("none", Handler(face).handle, project=project)


def test_a_deleted_subscription_ends_the_work(client: Client, client_of_face: Any, face: str, project: str) -> None:
    publish(client, project, 5)

    def delete(_: ReceivedMessage) -> None:
        client.project(project).subscription("s").delete()

    with pytest.raises(NotFound):
        client_of_face.work("s", Handler(face, delete).handle, project=project, concurrency=1)


def test_limits_and_delays_that_cannot_be_are_refused() -> None:
    wrong: list[dict[str, Any]] = [
        {"concurrency": 0}, {"prefetch": -1}, {"max_messages": 0}, {"grace": -1.0}, {"max_lease": -1.0},
    ]  # fmt: skip
    for limits in wrong:
        with pytest.raises(ValueError, match="at least 1|not negative"):
            Limits(**limits)
    right = Limits(), Limits(concurrency=1), Limits(concurrency=5, prefetch=0)
    assert [(each.max_leased, each.least_room) for each in right] == [(16, 4), (2, 1), (5, 1)]
    for delay in (-1, 601):
        with pytest.raises(ValueError, match="0 to 600"):
            RetryLater(delay)


# Leases, with an accelerated clock in the service and the client


@pytest.fixture
def fast_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InProcessService]:
    """Run a service with an accelerated clock; workers of this process use it, too."""
    let_time_pass_faster(monkeypatch)
    with in_process_service(tmp_path / "ams-data") as service, accelerate_clocks(service):
        yield service


@pytest.fixture
def fast_client(face: str, fast_service: InProcessService) -> Iterator[Any]:
    with open_client(face, fast_service.run.base_url, fast_service.token) as client:
        yield client


@pytest.fixture
def fast_project(fast_service: InProcessService) -> Iterator[tuple[Client, str]]:
    with Client(fast_service.run.base_url, fast_service.token) as client:
        yield client, create_work_project(client)


def test_what_fails_or_is_put_off_comes_again(fast_client: Any, face: str, fast_project: tuple[Client, str]) -> None:
    client, project = fast_project
    publish(client, project, 6)
    times: Counter[bytes] = Counter()

    def fail_at_first(message: ReceivedMessage) -> None:
        times[message.data] += 1
        if message.data == b"2" and times[b"2"] == 1:
            raise ValueError("a bed without water")
        if message.data == b"4" and times[b"4"] == 1:
            raise RetryLater(1)

    done = fast_client.work("s", Handler(face, fail_at_first).handle, project=project, max_messages=8)

    assert done == Worked(worked=6, failed=2)
    assert times == {b"%d" % number: 2 if number in (2, 4) else 1 for number in range(6)}
    assert backlog(client, project) == 0


def test_messages_of_a_key_are_handled_in_order_despite_failures(client_of_face: Any, face: str, client: Client):
    project = create_work_project(client, enable_message_ordering=True)
    keys = "abaabb"
    client.project(project).topic("t").publish([Message(b"%d" % at, ordering_key=key) for at, key in enumerate(keys)])
    handled: dict[str, list[int]] = {"a": [], "b": []}

    def note(message: ReceivedMessage) -> None:
        handled[message.ordering_key].append(int(message.data))
        if message.data == b"2" and handled["a"] == [0, 2]:
            raise ValueError("a bed without water")

    done = client_of_face.work("s", Handler(face, note).handle, project=project, max_messages=8)

    assert handled == {"a": [0, 2, 2, 3], "b": [1, 4, 5]}
    assert done == Worked(worked=6, failed=1, given_back=1)


@ON_ONE_FACE
def test_a_slow_handler_keeps_its_message(
    client: Client, client_of_face: Any, face: str, project: str, service: InProcessService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    publish(client, project, 3)
    longer_than_a_lease = pass_leases(monkeypatch, service)
    handler = Handler(face, lambda message: 0 if message.data == b"2" else longer_than_a_lease)  # it waits for so long

    limits = {"concurrency": 2, "prefetch": 1, "max_messages": 3}
    done = client_of_face.work("s", handler.handle, project=project, until_empty=True, **limits)

    assert longer_than_a_lease.is_set()
    assert (done, len(handler.seen)) == (Worked(worked=3), 3)
    assert backlog(client, project) == 0


@ON_ONE_FACE
def test_a_late_answer_acknowledges(
    client: Client, client_of_face: Any, face: str, service: InProcessService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Meanwhile the extension of its lease is refused, as the message is acknowledged."""
    project = create_work_project(client, **EXACTLY_ONCE)
    publish(client, project, 3)
    longer_than_a_lease = pass_leases(monkeypatch, service)

    async def answer_late() -> None:
        longer_than_a_lease.clear()
        await wait_until_async(longer_than_a_lease.is_set)

    call_after(monkeypatch, "acknowledge", answer_late)
    assert client_of_face.work("s", Handler(face).handle, project=project, max_messages=3) == Worked(worked=3)
    assert backlog(client, project) == 0


@ON_ONE_FACE
def test_a_message_is_kept_only_for_so_long(
    client: Client, client_of_face: Any, face: str, project: str, service: InProcessService,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    publish(client, project, 1)
    let_time_pass_faster(monkeypatch)
    answered = threading.Event()
    call_after(monkeypatch, "acknowledge", answered.set)
    with accelerate_clocks(
        service
    ) as came_again:  # then time stands still, and the first handler ends before the second

        def act(_: ReceivedMessage) -> threading.Event:
            if len(handler.seen) == 1:
                return came_again
            came_again.set()
            return answered

        handler = Handler(face, act)
        done = client_of_face.work("s", handler.handle, project=project, max_lease=1, max_messages=2)

    assert (done, len(handler.seen)) == (Worked(worked=1, late=1), 2)
    assert backlog(client, project) == 0


# Service failures


@pytest.mark.parametrize(("is_repeated", "said"), [
    (True, "Worked(worked=0, failed=0, late=0, given_back=2)"),
    (False, "Worked(worked=1, failed=0, late=0, given_back=1)"),
], ids=["again and again", "once"])  # fmt: skip
def test_a_signal_stops_the_work(client: Client, service: InProcessService, project: str, is_repeated: bool, said: str):
    publish(client, project, 2)
    program = f"""
import os, signal
from ams.client import Client
def handle(message):
    print("begun", flush=True)
    os.read(0, 1)  # until stdin is closed
signal.signal(signal.SIGTERM, lambda *_: None)  # more may come when the work is over
client = Client({service.run.base_url!r}, {service.token!r})
print(client.work("s", handle, project={project!r}, concurrency=1, prefetch=1), flush=True)
"""
    command = [sys.executable, "-c", program]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=environment()) as worker:
        assert worker.stdin is not None
        assert worker.stdout is not None
        assert worker.stdout.readline() == "begun\n"
        worker.send_signal(signal.SIGTERM)
        if is_repeated:
            wait_until(lambda: worker.send_signal(signal.SIGTERM) or worker.poll() is not None)
        else:
            worker.stdin.close()
        assert worker.stdout.read().strip() == said


# Single calls


def test_single_messages_are_acknowledged(client: Client, client_of_face: Any, project: str, service: InProcessService):
    publish(client, project, 4)
    there = client_of_face.project(project).subscription("s")
    got = there.pull(10)

    there.acknowledge(got[1])
    there.acknowledge([got[0], got[3].ack_id])
    there.acknowledge([])
    there.extend(got[2], 60)
    there.nack([got[2]], delay=3)

    assert [each.data for each in there.pull(10)] == []
    service.clock.advance(3100)  # waits end with tenths of a second
    assert [each.data for each in there.pull(10)] == [b"2"]


def test_what_is_released_comes_again_and_has_not_failed(client: Client, client_of_face: Any, project: str) -> None:
    publish(client, project, 3)
    there = client_of_face.project(project).subscription("s")
    got = there.pull(10)

    there.release([got[0], got[1].ack_id])
    there.nack(got[2])

    assert [each.delivery_attempt for each in got] == [1, 1, 1]
    assert [(each.data, each.delivery_attempt) for each in there.pull(10)] == [(b"0", 1), (b"1", 1), (b"2", 2)]
    with pytest.raises(AckTimeout):
        there.release(got[0])


def test_ids_that_come_too_late_are_named_of_any_number(client: Client, client_of_face: Any, project: str) -> None:
    publish(client, project, 500)
    there = client_of_face.project(project).subscription("s")
    first = there.pull(500)
    given_back = [each for each in first if int(each.id) % 2]
    there.nack(given_back)

    with pytest.raises(AckTimeout) as refused:
        there.acknowledge(first)

    assert sorted(refused.value.late) == sorted(each.ack_id for each in given_back)
    assert sorted(each.id for each in there.pull(500)) == sorted(each.id for each in given_back)


def test_a_loop_gets_what_came_too_late_again(client: Client, client_of_face: Any, project: str) -> None:
    publish(client, project, 3)
    there, seen = client_of_face.project(project).subscription("s"), []
    for message in there.messages(batch=3, follow=False):
        seen.append(message.data)
        if len(seen) == 1:
            client.project(project).subscription("s").nack(message)

    assert (sorted(seen), backlog(client, project)) == ([b"0", b"0", b"1", b"2"], 0)
