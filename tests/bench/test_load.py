"""The load generator against the bare handler. No test asserts a time: machines differ."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.callers import Publish
from bench.load import Job
from bench.processes import Failed, RunningLoad, Server, bare, load

WORK = Publish(["projects/P/topics/a", "projects/P/topics/b"], per_request=3, size=32)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with bare(tmp_path_factory.mktemp("bare")) as running:
        yield running


def job(server: Server, rate: float | None = None) -> Job:
    return Job(server.url, "token", WORK, connections=4, seconds=1.0, warm_up=0.1, rate=rate)


def test_a_closed_loop_counts_what_the_bare_handler_answers(server: Server) -> None:
    outcome = load(job(server))

    assert outcome.requests > 0
    assert outcome.messages == 3 * outcome.requests
    assert 0 < outcome.p50 <= outcome.p99 <= outcome.slowest
    assert not outcome.refused


def test_an_open_loop_sends_what_is_due_and_no_more(server: Server) -> None:
    sent = job(server, rate=100)
    outcome = load(sent)

    # What was due in the warm-up may be answered later, on a machine that is busy.
    assert 0 < outcome.requests <= 100 * (sent.warm_up + outcome.seconds) + 5
    assert not outcome.refused


def test_an_open_loop_counts_what_it_could_not_send(server: Server) -> None:
    outcome = load(job(server, rate=1_000_000))

    assert outcome.unsent > 0


def test_a_load_on_a_server_that_is_gone_fails_with_one_line(tmp_path: Path) -> None:
    with bare(tmp_path) as gone:
        late = job(gone)

    with pytest.raises(Failed, match="refused"):
        load(late)


def test_an_abandoned_load_leaves_no_process(server: Server) -> None:
    running = RunningLoad(job(server))

    running.abandon()

    assert running.ended
