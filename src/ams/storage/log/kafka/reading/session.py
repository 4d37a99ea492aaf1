"""A fetch session: a long question about many topics of which only what changed goes over the wire (KIP-227).

The broker remembers what was asked about; a request says what is new in it, has moved or is no longer asked about, and
the answer holds topics that have something new. A broker that has no room for a session is asked about all each time,
and one that has forgotten a session is told all again.
"""

from collections.abc import Mapping
from typing import Any

from aiokafka.errors import FetchSessionIdNotFound, InvalidFetchSessionEpoch, NoError, for_code
from aiokafka.protocol.fetch import FetchRequest

from ams.storage.log.kafka.reading.fetch import CONSUMER, UNCOMMITTED

NOT_KNOWN = -1
"""Stands for the leader's epoch and the start of the log, which only replicas tell."""
NONE, FULL = 0, 0
"""Session id of who has none yet, and the epoch that asks for one."""
LAST_EPOCH = 2**31 - 1


class FetchSession:
    """What one broker was asked about on one connection."""

    def __init__(self) -> None:
        self._id = NONE
        self._epoch = FULL
        self._sent: dict[str, int] = {}

    def request(self, wanted: Mapping[str, int], *, wait_ms: int, topic_bytes: int, max_bytes: int) -> Any:
        """Return a request about topics by name, each from the broker's offset given on."""
        if self._epoch == FULL:
            self._sent = {}
        new = {name: offset for name, offset in wanted.items() if self._sent.get(name) != offset}
        gone = [name for name in self._sent if name not in wanted]
        self._sent = dict(wanted)
        return _Request(self._id, self._epoch, new, gone, wait_ms, topic_bytes, max_bytes)

    def answered(self, response: Any) -> bool:
        """Note an answer; return whether it is one, and not that the session is to begin again."""
        kind = for_code(response.error_code)
        if kind in (FetchSessionIdNotFound, InvalidFetchSessionEpoch):
            self.reset()
            return False
        if kind is not NoError:
            raise kind()
        self._id = response.session_id
        self._epoch = FULL if self._id == NONE or self._epoch == LAST_EPOCH else self._epoch + 1
        return True

    def reset(self) -> None:
        """Begin again: what the broker knows is not known."""
        self._id, self._epoch = NONE, FULL


class _Request(FetchRequest):  # type: ignore[misc]  # aiokafka has no types
    """aiokafka's request, which has no sessions, with what it says of one."""

    def __init__(
        self, id_: int, epoch: int, new: Mapping[str, int], gone: list[str], wait: int, topic_bytes: int, most: int
    ) -> None:
        super().__init__(wait, 1, most, UNCOMMITTED, [])
        self._session = (id_, epoch)
        self._new = [(name, [(0, NOT_KNOWN, offset, NOT_KNOWN, topic_bytes)]) for name, offset in new.items()]
        self._gone = [(name, [0]) for name in gone]

    def build(self, request_struct_class: Any) -> Any:
        """Return the request as it goes over the wire; of version 11, which brokers have since Kafka 2.3."""
        head = (CONSUMER, self._max_wait_ms, self._min_bytes, self._max_bytes, self._isolation_level)
        return request_struct_class(*head, *self._session, self._new, self._gone, "")
