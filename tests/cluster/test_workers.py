"""The client's worker, and `ams work`, on nodes of which another one has the leases."""

import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ams.client import Client, Message, ReceivedMessage, RetryLater, Worked
from tests.client.faces import FACES, open_client
from tests.client.handlers import FASTER, Handler, backlog, let_time_pass_faster, made, passing, publish
from tests.cluster.nodes import node_served, processes, shared_settings
from tests.support.documents import environment
from tests.support.served import SERVICE_TOKEN, Served

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

SECONDS = 60
EXACTLY_ONCE = {"enable_exactly_once_delivery": True}
KINDS = pytest.mark.parametrize("options", [{}, EXACTLY_ONCE], ids=["plain", "exactly once"])


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Served, Served]]:
    """Two nodes: one that owns what is pulled here, and another one."""
    folder, settings = tmp_path_factory.mktemp("nodes"), shared_settings()
    with node_served(folder / "owner", settings) as owner, node_served(folder / "other", settings) as other:
        yield owner, other


@pytest.fixture
def owner(nodes: tuple[Served, Served]) -> Iterator[Client]:
    with Client(nodes[0].run.base_url, SERVICE_TOKEN) as client:
        yield client


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def other(face: str, nodes: tuple[Served, Served]) -> Iterator[Any]:
    """A client of each face to the other node."""
    with open_client(face, nodes[1].run.base_url, SERVICE_TOKEN) as client:
        yield client


def owned(client: Client, **options: bool) -> str:
    """Make a project whose parallel subscription is owned by the node of a client."""
    project = made(client, **options)
    assert client.project(project).subscription("s").pull(wait=False) == []
    return project


@KINDS
def test_a_worker_of_another_node_handles_each_message_and_gives_back_what_failed(
    owner: Client, other: Any, face: str, options: dict[str, bool]
) -> None:
    project = owned(owner, **options)
    data = publish(owner, project, 100)

    def fail_once(message: ReceivedMessage) -> None:
        if message.data in data[:3] and handler.seen.count(message.data) == 1:
            raise RetryLater(0)

    handler = Handler(face, fail_once)
    done = other.work("s", handler.handle, project=project, until_empty=True)

    assert done == Worked(worked=100, failed=3)
    assert Counter(handler.seen) == Counter(data + data[:3])
    assert backlog(owner, project) == 0


@KINDS
def test_a_slow_handler_keeps_its_message_on_another_node(
    nodes: tuple[Served, Served],
    owner: Client,
    other: Any,
    face: str,
    options: dict[str, bool],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = owned(owner, **options)
    publish(owner, project, 2)
    let_time_pass_faster(monkeypatch)
    longer_than_a_lease = 12 / FASTER
    handler = Handler(face, lambda _: longer_than_a_lease)
    with passing(*nodes):
        done = other.work("s", handler.handle, project=project, concurrency=1, prefetch=1, until_empty=True)

    assert (done, len(handler.seen)) == (Worked(worked=2), 2)
    assert backlog(owner, project) == 0


@KINDS
def test_workers_of_two_nodes_share_a_backlog_and_nothing_is_handled_twice(
    nodes: tuple[Served, Served], owner: Client, options: dict[str, bool]
) -> None:
    project = owned(owner, **options)
    data = publish(owner, project, 300)
    handlers = [Handler("threads", lambda _: 0.005) for _ in nodes]
    done: list[Worked] = []

    def work(node: Served, handler: Handler) -> None:
        with Client(node.run.base_url, SERVICE_TOKEN) as client:
            done.append(client.work("s", handler.handle, project=project, concurrency=4, until_empty=True))

    threads = [threading.Thread(target=work, args=each) for each in zip(nodes, handlers, strict=True)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(SECONDS)

    assert Counter(seen for each in handlers for seen in each.seen) == Counter(data)
    assert sum(each.worked for each in done) == 300
    assert all(each.seen for each in handlers)
    assert backlog(owner, project) == 0


def test_ams_work_asks_any_node(nodes: tuple[Served, Served], owner: Client, tmp_path: Path) -> None:
    project = owned(owner, **EXACTLY_ONCE)
    owner.project(project).topic("t").publish([Message(b"a"), Message(b"b"), Message(b"c")])
    known = {"AMS_ENDPOINT": nodes[1].run.base_url, "AMS_TOKEN": SERVICE_TOKEN, "AMS_PROJECT": project}
    program = ["work", "s", "--max-messages", "4", "--retry-after", "0s", "--", "sh", "-c"]
    script = 'read it; echo "$it"; [ "$it" != b ] || ! mkdir failed || exit 75'

    ran = subprocess.run(
        [sys.executable, "-m", "ams.cli.main", *program, script],
        capture_output=True, text=True, timeout=SECONDS, cwd=tmp_path, check=False,
        env={**environment(), "HOME": str(tmp_path), **known},
    )  # fmt: skip

    assert (ran.returncode, ran.stderr.splitlines()[-1]) == (0, "worked 3, failed 1, late 0, given back 0")
    assert sorted(ran.stdout.split()) == ["a", "b", "b", "c"]
    assert backlog(owner, project) == 0


@pytest.mark.long
@KINDS
def test_a_worker_goes_on_when_the_owner_is_killed(tmp_path: Path, options: dict[str, bool]) -> None:
    half, over = threading.Event(), threading.Event()

    def note(_: ReceivedMessage) -> float:
        if len(handler.seen) >= 100:
            half.set()
        return 0.01

    handler = Handler("threads", note)
    done: list[Worked] = []
    with (
        processes(tmp_path, 2) as (owning, working),
        Client(owning.url, SERVICE_TOKEN) as first,
        Client(working.url, SERVICE_TOKEN) as second,
    ):
        project = owned(first, **options)
        data = publish(first, project, 300)

        def work() -> None:
            done.append(second.work("s", handler.handle, project=project, stop=over))

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        assert half.wait(SECONDS)
        owning.kill()
        until = time.monotonic() + SECONDS
        while len(set(handler.seen)) < len(data) and time.monotonic() < until:
            time.sleep(0.05)
        over.set()
        worker.join(SECONDS)
        assert backlog(second, project) == 0

    assert set(handler.seen) == set(data)
    assert done[0].worked == 300 if options else done[0].worked >= 300
