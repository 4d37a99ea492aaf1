"""The client's worker on nodes of which another one has the leases."""

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.client import Client, Worked
from tests.client.handlers import Handler, backlog, made, publish
from tests.cluster.nodes import node_served, processes, shared_settings
from tests.support.served import SERVICE_TOKEN, Served
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.postgres]

SECONDS = 60


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


def owned(client: Client, **options: bool) -> str:
    """Make a project whose parallel subscription is owned by the node of a client."""
    project = made(client, **options)
    assert client.project(project).subscription("s").pull(wait=False) == []
    return project


def test_workers_of_two_nodes_share_a_backlog_and_nothing_is_handled_twice(
    nodes: tuple[Served, Served], owner: Client
) -> None:
    project = owned(owner)
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


@pytest.mark.long
def test_a_worker_goes_on_when_the_owner_is_killed(tmp_path: Path) -> None:
    handler, over = Handler("threads", lambda _: 0.01), threading.Event()
    done: list[Worked] = []
    with (
        processes(tmp_path, 2) as (owning, working),
        Client(owning.url, SERVICE_TOKEN) as first,
        Client(working.url, SERVICE_TOKEN) as second,
    ):
        project = owned(first, enable_exactly_once_delivery=True)
        data = publish(first, project, 300)

        def work() -> None:
            done.append(second.work("s", handler.handle, project=project, stop=over))

        worker = threading.Thread(target=work, daemon=True)
        worker.start()
        wait_until(lambda: len(handler.seen) >= 100)
        owning.kill()
        wait_until(lambda: len(set(handler.seen)) == len(data))
        over.set()
        worker.join(SECONDS)
        assert backlog(second, project) == 0

    assert set(handler.seen) == set(data)
    assert done[0].worked == 300
