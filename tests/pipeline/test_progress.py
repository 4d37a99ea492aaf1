from typing import Any

import pytest

from ams.pipeline.progress import EVERY_SECONDS, Progress


def report(number: int, start: Any, end: Any, latest: Any, rows: int = 0) -> dict[str, Any]:
    source = {"startOffset": start, "endOffset": end, "latestOffset": latest}
    return {"batchId": number, "numInputRows": rows, "processedRowsPerSecond": 5.0, "sources": [source]}


class Watch:
    def __init__(self) -> None:
        self.now = 0.0
        self.said: list[str] = []

    def progress(self) -> Progress:
        return Progress(self.said.append, clock=lambda: self.now)


@pytest.mark.parametrize("start", [None, "null"])
def test_messages_are_counted_by_their_offsets(start: str | None) -> None:
    watch = Watch()
    progress = watch.progress()
    progress.begin = {"p/a": 5}

    progress.take([report(0, start, '{"p/a": 10}', '{"p/a": 30}', rows=15)])
    begin = '{"p/a": 10, "topics": {"p/a": "an id"}}'
    progress.take([report(1, begin, '{"p/a": 30, "p/b": 2}', '{"p/a": 30, "p/b": 4}', rows=99)])

    assert (progress.messages, progress.batches, progress.last and progress.last.lag) == (27, 2, 2)


def test_a_batch_is_counted_once_and_an_empty_one_not_at_all() -> None:
    progress = Watch().progress()
    first = report(0, '{"p/a": 0}', '{"p/a": 10}', '{"p/a": 10}')

    assert progress.take([first])
    assert not progress.take([first, report(1, '{"p/a": 10}', '{"p/a": 10}', '{"p/a": 10}')])

    assert progress.take([report(1, '{"p/a": 10}', '{"p/a": 11}', '{"p/a": 11}')])
    assert (progress.messages, progress.batches) == (11, 2)


def test_other_sources_are_counted_by_their_rows() -> None:
    progress = Watch().progress()

    progress.take([report(0, {"logOffset": 0}, {"logOffset": 1}, None, rows=7)])

    assert progress.messages == 7
    assert progress.last is not None
    assert progress.last.lag is None


def test_progress_is_told_from_time_to_time_with_what_is_left() -> None:
    watch = Watch()
    progress = watch.progress()
    progress.take([report(0, '{"p/a": 0}', '{"p/a": 1000}', '{"p/a": 3000}')])
    assert watch.said == []
    watch.now = EVERY_SECONDS

    progress.take([report(1, '{"p/a": 1000}', '{"p/a": 2000}', '{"p/a": 3000}')])

    assert watch.said == ["batch 1, messages 2,000, 400/s, behind 1,000, about 2 s more"]
