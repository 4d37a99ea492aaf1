"""Idempotency keys and sizes of topics, kept for the log on Kafka (`ams.storage.log.kafka.idempotency_store`).

Publish requests wait for claims, so each step is a single statement. It is safe with concurrent statements, and may be
retried after a lost answer, as a claim has the mark of its owner. On PostgreSQL times are the database's.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, delete, select, update

from ams.core.clock import Milliseconds
from ams.core.errors import NotFound, TopicGone
from ams.core.names import Offset, TopicId, topic_id, topic_id_text
from ams.storage.log.base import Appended
from ams.storage.log.kafka.idempotency_store import Claim
from ams.storage.registry.statements import Records, Statement
from ams.storage.registry.tables import publish_claims, topic_sizes

PORTION = 20_000  # claims deleted per statement, because of its timeout
RECENT_CLAIM_MS = Milliseconds(600_000)  # younger claims are few enough to be deleted together with their topic


class IdempotencyRecords(Records):
    """Implements `IdempotencyStore` of the log on Kafka. Rows are deleted with their topic."""

    async def claim(self, topic: TopicId, key: bytes, content: bytes, end: Offset, mark: str) -> Claim | None:
        def work(connection: Connection) -> Claim | None:
            row = _CLAIM.run(
                connection, now=self._clock.wall(), believed=self._retention_clock.wall(), topic=topic_id_text(topic),
                key=key, content=content, log_end=end, mine=mark,
            ).one()  # fmt: skip
            return None if row.mark == mark else _claim(row)

        try:
            return await self._database.put(work, grows=True)
        except NotFound:
            raise TopicGone from None

    async def stored_claim(self, topic: TopicId, key: bytes) -> Claim | None:
        identity = topic_id_text(topic)

        def work(connection: Connection) -> Claim | None:
            row = _FIND_CLAIM.run(connection, believed=self._retention_clock.wall(), topic=identity, key=key).first()
            return _claim(row) if row else None

        return await self._database.read(work)

    async def take_over(self, topic: TopicId, key: bytes, claim: Claim, content: bytes, mark: str) -> bool:
        bearer = select(publish_claims.c.mark).where(_is(topic, key))

        def work(connection: Connection) -> bool:
            _TAKE_OVER.run(
                connection, now=self._clock.wall(), topic=topic_id_text(topic), key=key, version=claim.version,
                content=content, mine=mark,
            )  # fmt: skip
            return connection.scalar(bearer) == mark

        return await self._database.put(work)

    async def settle(self, topic: TopicId, key: bytes, appended: Appended) -> None:
        change = update(publish_claims).where(_is(topic, key))
        where = {"first": appended.first, "messages": appended.count, "time": appended.time}
        change = change.values(**where, version=publish_claims.c.version + 1)
        await self._database.put(lambda connection: connection.execute(change))

    async def release(self, topic: TopicId, key: bytes, mark: str) -> None:
        is_ours = (publish_claims.c.mark == mark) & publish_claims.c.first.is_(None)
        removal = delete(publish_claims).where(_is(topic, key), is_ours)
        await self._database.put(lambda connection: connection.execute(removal))

    async def forget(self, topic: TopicId) -> None:
        identity = topic_id_text(topic)

        def work(connection: Connection) -> None:
            for table in (publish_claims, topic_sizes):
                connection.execute(delete(table).where(table.c.topic_id == identity))

        await self._database.put(work)

    async def forget_old(self, ages: Mapping[TopicId, Milliseconds]) -> None:
        rows = [(topic_id_text(topic), age) for topic, age in ages.items()]
        youngest = min(ages.values(), default=0)

        def work(connection: Connection) -> int:
            return _DELETE_OLD.run(
                connection, rows, believed=self._retention_clock.wall(), most=PORTION, youngest=youngest
            ).rowcount  # fmt: skip

        while await self._database.put(work) >= PORTION:
            pass

    async def delete_old_claims(self, topics: Iterable[TopicId]) -> None:
        """Delete all but recent claims of topics before the topics are deleted."""
        await self.forget_old(dict.fromkeys(topics, RECENT_CLAIM_MS))

    async def add_bytes(self, published: Mapping[TopicId, int]) -> None:
        rows = sorted((topic_id_text(topic), added) for topic, added in published.items())
        await self._database.write(lambda connection: _ADD_BYTES.run(connection, rows).rowcount, grows=False)

    async def bytes_of(self, topic: TopicId) -> int:
        query = select(topic_sizes.c.bytes).where(topic_sizes.c.topic_id == topic_id_text(topic))
        return await self._database.value(query) or 0

    async def all_bytes(self) -> Mapping[TopicId, int]:
        query = select(topic_sizes.c.topic_id, topic_sizes.c.bytes)
        return dict(await self._database.rows(query, lambda row: (topic_id(row.topic_id), row.bytes)))


def _is(topic: TopicId, key: bytes) -> ColumnElement[bool]:
    return (publish_claims.c.topic_id == topic_id_text(topic)) & (publish_claims.c.key == key)


def _claim(row: Row[Any]) -> Claim:
    appended = None if row.first is None else Appended(Offset(row.first), row.messages, Milliseconds(row.time))
    return Claim(row.content, Offset(row.log_end), Milliseconds(max(0, row.age)), row.version, appended)


_COLUMNS = 'content, log_end, {believed} - claimed_at AS age, version, mark, first, messages, "time"'
_CLAIM = Statement(f"""
    INSERT INTO publish_claims (topic_id, key, content, log_end, claimed_at, version, mark)
    VALUES (:topic, :key, :content, :log_end, {{now}}, 0, :mine)
    ON CONFLICT (topic_id, key) DO UPDATE SET version = publish_claims.version
    RETURNING {_COLUMNS}
    """)  # noqa: S608 - nothing but constants is joined
"""Returns the existing row of any owner. RETURNING needs an update, so the row is set to its own values."""
_FIND_CLAIM = Statement(f"SELECT {_COLUMNS} FROM publish_claims WHERE topic_id = :topic AND key = :key")  # noqa: S608 - as above
_TAKE_OVER = Statement("""
    UPDATE publish_claims SET claimed_at = {now}, version = version + 1, content = :content, mark = :mine
    WHERE topic_id = :topic AND key = :key AND version = :version AND first IS NULL
    """)
# Old rows are deleted by row id, ten times faster than by key. The age is tested again, as a claim may be taken over
# meanwhile.
_DELETE_OLD = Statement("""
    DELETE FROM publish_claims WHERE {row_id_among}(
        SELECT old.{row_id} FROM {given}
        JOIN publish_claims AS old ON old.topic_id = text(0) AND old.claimed_at < {believed} - number(1)
        LIMIT :most
    )) AND claimed_at < {believed} - :youngest
    """)
_ADD_BYTES = Statement("""
    INSERT INTO topic_sizes (topic_id, bytes)
    SELECT topics.id, number(1) FROM {given} JOIN topics ON topics.id = text(0)
    WHERE true
    ON CONFLICT (topic_id) DO UPDATE SET bytes = topic_sizes.bytes + excluded.bytes
    """)
