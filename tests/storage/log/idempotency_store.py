"""An idempotency store in memory, for tests of the log on Kafka; the registry's store has tests of its own."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from ams.core.clock import Clock, Milliseconds
from ams.core.errors import RegistryUnavailable
from ams.core.names import Offset, TopicId
from ams.storage.log.base import Appended
from ams.storage.log.kafka.idempotency_store import Claim


@dataclass
class _Row:
    content: bytes
    end: Offset
    mark: str
    since: Milliseconds
    version: int = 0
    appended: Appended | None = None


@dataclass
class MemoryIdempotencyStore:
    """Implements `ams.storage.log.kafka.idempotency_store.IdempotencyStore`; `away` makes it unavailable."""

    clock: Clock
    away: bool = False
    _rows: dict[tuple[TopicId, bytes], _Row] = field(default_factory=dict)
    _bytes: Counter[TopicId] = field(default_factory=Counter)

    async def claim(self, topic: TopicId, key: bytes, content: bytes, end: Offset, mark: str) -> Claim | None:
        self._check()
        if (topic, key) in self._rows:
            return await self.stored_claim(topic, key)
        self._rows[topic, key] = _Row(content, end, mark, self.clock.wall())
        return None

    async def stored_claim(self, topic: TopicId, key: bytes) -> Claim | None:
        self._check()
        row = self._rows.get((topic, key))
        if row is None:
            return None
        return Claim(row.content, row.end, self.clock.wall() - row.since, row.version, row.appended)

    async def take_over(self, topic: TopicId, key: bytes, claim: Claim, content: bytes, mark: str) -> bool:
        self._check()
        row = self._rows.get((topic, key))
        if row is None or row.version != claim.version or row.appended is not None:
            return False
        row.version += 1
        row.content = content
        row.mark = mark
        row.since = self.clock.wall()
        return True

    async def settle(self, topic: TopicId, key: bytes, appended: Appended) -> None:
        self._check()
        row = self._rows[topic, key]
        row.version += 1
        row.appended = appended

    async def release(self, topic: TopicId, key: bytes, mark: str) -> None:
        self._check()
        row = self._rows.get((topic, key))
        if row is not None and row.mark == mark and row.appended is None:
            del self._rows[topic, key]

    async def forget(self, topic: TopicId) -> None:
        self._check()
        for each in [each for each in self._rows if each[0] == topic]:
            del self._rows[each]
        self._bytes.pop(topic, None)

    async def forget_old(self, ages: Mapping[TopicId, Milliseconds]) -> None:
        self._check()
        now = self.clock.wall()
        for topic, key in list(self._rows):
            if topic in ages and now - self._rows[topic, key].since > ages[topic]:
                del self._rows[topic, key]

    async def add_bytes(self, published: Mapping[TopicId, int]) -> None:
        self._check()
        self._bytes.update(published)

    async def bytes_of(self, topic: TopicId) -> int:
        self._check()
        return self._bytes[topic]

    async def all_bytes(self) -> Mapping[TopicId, int]:
        self._check()
        return dict(self._bytes)

    def _check(self) -> None:
        if self.away:
            raise RegistryUnavailable
