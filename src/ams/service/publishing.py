"""Publishing: appends a request of messages durably to its topic, all or none (contract 12).

No `asyncio.timeout`, `TaskGroup` or `current_task` before the first wait: `ams.http.fast_lane` runs it without a task.
"""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass

from ams.access.admission import Caller
from ams.access.permissions import PUBLISHER
from ams.core.errors import InvalidInput, KeyReused, QuotaExceeded, TooLarge
from ams.core.messages import Batch, Message, batch_of
from ams.core.names import Offset, TopicName
from ams.service.lookup import find_topic
from ams.service.stored_bytes import REQUEST_BYTES, StoredBytes
from ams.service.tallies import Counts
from ams.service.validators import Fitting, Validators
from ams.storage.log.base import Appended, Log
from ams.storage.registry.records import AttachedSchema, Topic
from ams.storage.registry.registry import Registry

MESSAGE_BYTES = 100  # bytes of a stored message beside its attributes and data: id, time and framing (contract 12.2)


@dataclass(frozen=True, slots=True)
class Publisher:
    """Stores published messages."""

    registry: Registry
    log: Log
    max_message_bytes: int
    validators: Validators
    counts: Counts
    stored: StoredBytes

    async def topic(self, caller: Caller, name: TopicName) -> Topic:
        """Return a topic; raise `NotFound`, then `NotAllowed` for a publisher outside its access list."""
        topic = self.registry.topics.known((caller.here.id, name)) or await find_topic(self.registry, caller, name)
        caller.require_listed(topic.authorized, PUBLISHER)
        return topic

    async def publish(
        self, topic: Topic, messages: Sequence[Message], *, key: str | None = None, is_allowed: bool = False,
        is_measured: bool = False, project: str = "",
    ) -> Appended:  # fmt: skip
        """Store the messages; when it returns they are durable.

        `is_allowed`: the topic's schema allows them (`Validators.allow_now`). `is_measured`: the caller checks their
        sizes. `project`: name of the topic's project, for the attributes of `Fitting`. Without messages it stores
        nothing, and uses no key.

        Raises `InvalidInput` for the first message that the topic's schema refuses, and if a schema with an encoding
        was deleted; `Unusable` for a broken schema; `TooLarge`; `KeyReused` for a key of other messages;
        `QuotaExceeded`, `RateLimited`; `LogUnavailable`. Nothing is stored then. After `OutcomeUnknown` the messages
        may be stored: repeat the request with the same key.
        """
        if not messages:
            if key is not None:  # known, it is of another request
                await self.log.earlier_answer(topic.id, (), key)
            return Appended(Offset(0), 0, topic.created_on)
        sent = batch_of(messages)
        if topic.deleted_schema:
            raise InvalidInput("The schema of the topic was deleted: attach another one, or none")
        if topic.schema is not None and topic.schema.encoding:
            sent = await self._fit(topic, topic.schema, project, sent, key)
        elif topic.schema is not None and not is_allowed:
            await self._check(topic, topic.schema, sent, key)
        if sent.largest + MESSAGE_BYTES > self.max_message_bytes and not is_measured:
            raise TooLarge
        size = sent.size + REQUEST_BYTES
        try:
            self.stored.take(topic, size)
        except QuotaExceeded:
            earlier = await self.log.earlier_answer(topic.id, sent, key) if key is not None else None
            if earlier is None:
                raise
            return earlier
        try:
            appended = await self.log.append(topic.id, sent, key=key)
        except BaseException:
            self.stored.give_back(topic, size)
            self.counts.note_attempt(topic)
            raise
        self.counts.note_publish(topic, appended)
        if sent.not_base64:
            self.counts.not_base64 += sent.not_base64
            self.counts.not_base64_of[topic.id] += sent.not_base64
        return appended

    async def _fit(self, topic: Topic, schema: AttachedSchema, project: str, sent: Batch, key: str | None) -> Batch:
        """Return messages with labels of their revisions; see `_check` for those of a known key."""
        fitting = Fitting(self.validators, topic.project_id, project, schema)
        try:
            fitted_messages = await fitting.fitted_messages(sent)
        except InvalidInput:
            if key is None or await self.log.earlier_answer(topic.id, sent, key) is None:
                raise
            return sent
        try:
            if key is None or await self.log.earlier_answer(topic.id, fitted_messages, key) is None:
                return fitted_messages
        except KeyReused:  # perhaps for the same messages, when the newest revision was another one
            async for earlier in fitting.earlier(sent):
                with contextlib.suppress(KeyReused):
                    await self.log.earlier_answer(topic.id, earlier, key or "")
                    return earlier
        return fitted_messages

    async def _check(self, topic: Topic, schema: AttachedSchema, messages: Sequence[Message], key: str | None) -> None:
        """Check messages against a schema, but for those that were stored under their key before it was there."""
        try:
            await self.validators.check(topic.project_id, schema, messages)
        except InvalidInput:
            if key is None or await self.log.earlier_answer(topic.id, messages, key) is None:
                raise
