"""Topics of which it was said how messages are written (`AttachedSchema.encoding`): the revision each message keeps.

A message may keep any revision between the first and the last that the topic names, and is tried against the newest of
them first. It is stored with attributes that tell consumers by what to read it, as Google's clients expect.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from ams.core.errors import InvalidInput, NotFound
from ams.core.messages import Batch, Message, batch_of, message
from ams.core.names import ProjectId, revision_id, schema_path
from ams.service.validators import Validators
from ams.storage.registry.records import AttachedSchema
from ams.storage.registry.registry import Registry
from ams.validation.long_checks import SECONDS

MOST_REVISIONS = 20
"""Revisions that messages are tried against."""
SCHEMA_NAME, ENCODING, REVISION = "googclient_schemaname", "googclient_schemaencoding", "googclient_schemarevisionid"
NO_REVISION_LEFT = "The schema of the topic has none of the revisions left that messages may keep"


@dataclass(frozen=True, slots=True)
class Fitting:
    """Tries messages of one topic."""

    registry: Registry
    validators: Validators
    project: ProjectId
    project_name: str
    schema: AttachedSchema

    async def fitted(self, messages: Sequence[Message]) -> Batch:
        """Return the messages as they are to be stored.

        Raises `InvalidInput` for the first that keeps no revision, with what the newest says of it; `Unusable`,
        `Overloaded` and `InvalidInput` as `Validators.check`.
        """
        kept = await self._revisions(messages)
        return batch_of([self._labelled(each, kept[index]) for index, each in enumerate(messages)])

    async def earlier(self, messages: Sequence[Message]) -> AsyncIterator[Batch]:
        """Yield the messages as they were to be stored before the newest revision was there, and so on."""
        for number in (await self._numbers())[1:]:
            try:
                yield await replace(self, schema=replace(self.schema, last_revision=number)).fitted(messages)
            except InvalidInput:
                return

    async def _revisions(self, messages: Sequence[Message]) -> dict[int, int]:
        """Return the revision that each message keeps, by the number of the message."""
        schema, kept = self.schema, dict[int, int]()
        left: list[tuple[int, Message]] = list(enumerate(messages))
        reasons: dict[int, str] = {}
        until = asyncio.get_running_loop().time() + SECONDS
        async for revision in self._newest_first():
            try:
                refused = await self.validators.refusals(self.project, schema.id, revision, left, schema.encoding)
            except NotFound:  # it was deleted since
                continue
            kept |= {index: revision for index, _ in left if index not in refused}
            left = [each for each in left if each[0] in refused]
            reasons = dict(refused) | reasons
            if not left:
                return kept
            if asyncio.get_running_loop().time() > until:
                index = left[0][0]
                raise InvalidInput(f"Message {index} takes too long or too much memory to check against the schema")
        raise InvalidInput(reasons[left[0][0]] if reasons else NO_REVISION_LEFT)

    async def _newest_first(self) -> AsyncIterator[int]:
        """Yield revisions; nothing is read for the first, which nearly all messages keep."""
        newest, first, last = self.schema.revision, self.schema.first_revision, self.schema.last_revision
        known = newest if (first or newest) <= newest <= (last or newest) else None
        if known is not None:
            yield known
        for number in await self._numbers():
            if number != known:
                yield number

    async def _numbers(self) -> Sequence[int]:
        schema = self.schema
        return await self.registry.schemas.numbers(
            schema.id, schema.first_revision, schema.last_revision, MOST_REVISIONS
        )

    def _labelled(self, each: Message, revision: int) -> Message:
        told = {
            SCHEMA_NAME: schema_path(self.project_name, self.schema.name),
            ENCODING: self.schema.encoding,
            REVISION: revision_id(self.schema.id, revision),
        }
        return message(each.data, {**each.attributes, **told}, each.ordering_key)
