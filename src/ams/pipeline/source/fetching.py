"""The messages of a range, however often the service goes away meanwhile."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import httpx
import pyarrow as pa

from ams.client.errors import ClientError, InvalidInput, NotAms
from ams.client.wire.call import topics_path
from ams.pipeline.service import TOPIC_ID, Patience, Service, bounds_told
from ams.pipeline.source import answers
from ams.pipeline.source.losses import lost, remade
from ams.pipeline.source.parts import Part


class _Answered(NamedTuple):
    """What the service says about the range it answers."""

    first: int
    next: int
    end: int


@dataclass(slots=True)
class Fetch:
    """Reads one part, in order and each offset once; goes on behind the last message after an answer that was cut."""

    service: Service
    part: Part
    subscription: str = ""
    fail_on_data_loss: bool = True
    _at: int = -1
    _gap: int | None = None
    """The first offset that was not among the messages."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages.

        Raises `DataLoss` when some are kept no longer, unless that is only to be warned of, and the `ClientError` that
        does not pass.
        """
        self._at = self.part.start
        patience = Patience(self.service.access.retry_seconds)
        while self._at < self.part.stop:
            try:
                for batch in self._answer():
                    patience.succeeded()
                    yield batch
            except ClientError as error:
                patience.after(error)
        self._judge_gap()

    def _answer(self) -> Iterator[pa.RecordBatch]:
        """Yield the messages of one answer, moving `_at` behind each batch and at last behind the answer."""
        topic, stop = self.part.topic, self.part.stop
        query = {"from": str(self._at), "to": str(stop), "max": str(stop - self._at)}
        if self.subscription:
            query["subscription"] = self.subscription
        path = topics_path(topic.project, topic.name, "read")
        try:
            with self.service.stream(path, query, answers.ACCEPT) as response:
                answered = _answered(response)
                if self._is_another(response.headers.get(TOPIC_ID, "")):
                    return
                self._skip_to(answered.first)
                for batch in answers.batches(response, topic):
                    offsets = batch.column("offset")
                    self._note_gap(offsets[0].as_py(), offsets[-1].as_py(), batch.num_rows)
                    self._at = offsets[-1].as_py() + 1
                    yield batch
        except InvalidInput:  # beyond the end: a topic that was deleted, and made again with fewer messages
            self._pass_over(self._at)
        else:
            self._finish(answered)

    def _is_another(self, found: str) -> bool:
        """Tell whether the topic is not the one that was planned, of which nothing is left then."""
        if not (found and self.part.id and found != self.part.id):
            return False
        remade(str(self.part.topic), fail=self.fail_on_data_loss)
        self._at = self.part.stop
        return True

    def _skip_to(self, first: int) -> None:
        if first > self._at:
            self._lost(f"messages {self._at} to {min(first, self.part.stop) - 1} of topic {self.part.topic}")
            self._at = first

    def _note_gap(self, first: int, last: int, count: int) -> None:
        if self._gap is None and last - self._at >= count:
            self._gap = self._at if first > self._at else first

    def _finish(self, answered: _Answered) -> None:
        """Go on behind what was answered, which may be less than was asked for."""
        if answered.next == answered.first:
            self._pass_over(answered.end)
            return
        if self._gap is None and self._at < answered.next:
            self._gap = self._at
        self._at = answered.next

    def _pass_over(self, end: int) -> None:
        if end < self.part.stop:
            self._lost(f"messages {end} to {self.part.stop - 1} of topic {self.part.topic}")
        self._at = self.part.stop

    def _judge_gap(self) -> None:
        """Tell what retention took while it was read from what never was a message, as damage or a marker on Kafka."""
        if self._gap is None:
            return
        oldest = self.service.bounds(self.part.topic, self.subscription).oldest
        if oldest > self._gap:
            self._lost(f"messages from {self._gap} on of topic {self.part.topic}")

    def _lost(self, what: str) -> None:
        lost(what, fail=self.fail_on_data_loss)


def _answered(response: httpx.Response) -> _Answered:
    bounds = bounds_told(response)
    try:
        return _Answered(bounds.oldest, int(response.headers["ams-next-offset"]), bounds.end)
    except (KeyError, ValueError):
        raise NotAms(f"{response.url.host} does not answer as AMS: a range without its bounds") from None
