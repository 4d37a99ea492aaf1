"""Validators: the compiled schemas that are in use, and checks of messages that block no other request.

A revision never changes, and is compiled once, when it is first needed. To save memory the longest unused ones are
dropped, and older revisions of a schema when a newer one is needed.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from ams.core.errors import InvalidInput, NotFound, Unusable
from ams.core.messages import Batch, Message, batch_of, message
from ams.core.names import (
    SCHEMA_ENCODING_ATTRIBUTE,
    SCHEMA_NAME_ATTRIBUTE,
    SCHEMA_REVISION_ATTRIBUTE,
    ProjectId,
    SchemaId,
    revision_id,
    schema_path,
)
from ams.service.lookup import required
from ams.storage.database.invalidation import Cache
from ams.storage.registry.records import AttachedSchema, SchemaContent
from ams.storage.registry.registry import Registry
from ams.storage.registry.schemas import NO_SCHEMA
from ams.validation import Compiled, compile_stored
from ams.validation.compiled import PROTOBUF
from ams.validation.cost import INLINE, Budget, TooMuch, Watch
from ams.validation.long_checks import DATA, MESSAGE, PAYLOAD, SECONDS, LongChecks, Piece, Refusal, Task
from ams.validation.protobuf import definition_of, is_compiled, with_descriptor

MAX_COMPILED = 2**26  # bytes of memory for compiled revisions: thousands of usual ones, a few of the largest

MOST_REVISIONS = 20
NO_REVISION_LEFT = "The schema of the topic has none of the revisions left that messages may keep"

Candidate = Message | str | bytes


class Validators:
    """Checks messages against schemas; compiles and keeps revisions that are in use."""

    def __init__(self, registry: Registry, long_checks: LongChecks) -> None:
        self._registry, self._long_checks = registry, long_checks
        self._compiled: Cache[tuple[SchemaId, int, str], Compiled] = Cache(MAX_COMPILED, lambda each: each.memory)
        self._one_compiles = asyncio.Lock()

    async def check(self, project: ProjectId, schema: AttachedSchema, messages: Sequence[Message]) -> None:
        """Check a publish request: raise `InvalidInput` for the first message that the schema does not allow.

        Raises `Unusable` for a schema that cannot be compiled, `Overloaded` when the project has too many long
        requests. A schema that was deleted meanwhile allows everything; without its revision the newest one left
        decides.
        """
        try:
            await self.ask(project, schema.id, schema.revision, messages)
        except NotFound:
            with contextlib.suppress(NotFound):
                for left in (await self._registry.schemas.revisions(schema.id))[:1]:
                    await self.ask(project, schema.id, left.revision, messages)

    def allow_now(self, schema: AttachedSchema, messages: Batch) -> bool:
        """Return True if a schema surely allows all messages, found at once; False says nothing: `check` tells."""
        if schema.encoding:
            return False
        compiled = self._compiled.known((schema.id, schema.revision, ""))
        return compiled is not None and compiled.allowed(messages, Watch(INLINE)) == len(messages)

    async def ask(self, project: ProjectId, schema: SchemaId, revision: int, candidates: Sequence[Candidate]) -> None:
        """Check candidates in order: quick ones here, the others in worker processes; raise as `of` and `check`."""
        compiled = self._compiled.known((schema, revision, "")) or await self.of(schema, revision)
        done = check_some(compiled, candidates)
        if done == len(candidates):
            return
        pieces = [_piece_of(index, each) for index, each in enumerate(candidates[done:], done)]
        for refused in await self.check_in_worker(project, schema, revision, pieces):
            raise InvalidInput(refused.text)

    async def refusals(
        self,
        project: ProjectId,
        schema: SchemaId,
        revision: int,
        candidates: Sequence[tuple[int, Candidate]],
        encoding: str,
    ) -> Mapping[int, str]:
        """Return which numbered candidates are not allowed, and why; raises what `check_in_worker` does."""
        compiled, refused, budget = await self.of(schema, revision, encoding), {}, Budget(INLINE)
        for place, (index, each) in enumerate(candidates):
            try:
                _check_one(compiled, index, each, budget)
            except InvalidInput as error:
                refused[index] = error.message
            except TooMuch:
                pieces = [_piece_of(*left) for left in candidates[place:]]
                found = await self.check_in_worker(project, schema, revision, pieces, every=True, encoding=encoding)
                return refused | dict(found)
        return refused

    async def check_in_worker(
        self,
        project: ProjectId,
        schema: SchemaId,
        revision: int,
        pieces: Sequence[Piece],
        *,
        every: bool = False,
        encoding: str = "",
    ) -> Sequence[Refusal]:
        """Return the first refused piece, or every one; raise `NotFound`, and as `LongChecks.check`."""
        stored = required(await self._registry.schemas.revision(schema, revision), NotFound(NO_SCHEMA))
        return await self._long_checks.check(project, _task(stored.content, pieces, every, encoding))

    async def ask_content(self, project: ProjectId, content: SchemaContent, payload: bytes, encoding: str) -> None:
        """Ask a schema that need not be stored about one payload, as number 0; raise as `compiled` and `check`."""
        content = await self.described(project, content)
        asked = await compiled(content, encoding)
        try:
            asked.check_payload(0, payload, Budget(INLINE))
        except TooMuch:
            task = _task(content, [_piece_of(0, payload)], False, encoding)
            for refused in await self._long_checks.check(project, task):
                raise InvalidInput(refused.text) from None

    async def described(self, project: ProjectId, content: SchemaContent) -> SchemaContent:
        """Return content as it is stored: Protocol Buffers are compiled once. Raises as `LongChecks.compile`."""
        if content.type != PROTOBUF or content.payload is None or is_compiled(content.payload):
            return content
        definition = definition_of(content.payload)
        descriptor = await self._long_checks.compile(project, definition)
        return replace(content, payload=with_descriptor(definition, descriptor))

    async def of(self, schema: SchemaId, revision: int, encoding: str = "") -> Compiled:
        """Return a compiled revision; raise `NotFound` when there is none, `Unusable` when it cannot be compiled."""
        key = (schema, revision, encoding)

        async def wait_and_look_again() -> Compiled | None:
            async with self._one_compiles:
                return await self._compiled.find(key, lambda: self._compile(schema, revision, encoding))

        return required(await self._compiled.find(key, wait_and_look_again), NotFound(NO_SCHEMA))

    async def _compile(self, schema: SchemaId, revision: int, encoding: str) -> Compiled | None:
        stored = await self._registry.schemas.revision(schema, revision)
        if stored is None:
            return None
        if not encoding:  # else older ones are asked too
            self._compiled.discard_where(lambda key, _: key[0] == schema and key[1] < revision and not key[2])
        try:
            return await compiled(stored.content, encoding)
        except (InvalidInput, msgspec.DecodeError):
            raise Unusable("Could not load schema for topic") from None


async def compiled(content: SchemaContent, encoding: str = "") -> Compiled:
    """Compile a revision; raise `InvalidInput` that says why it cannot be."""
    return await asyncio.to_thread(compile_stored, content.type, content.payload, content.attributes, encoding)


def _task(content: SchemaContent, pieces: Sequence[Piece], every: bool, encoding: str) -> Task:
    return Task(content.type, content.payload, content.attributes, pieces, every, encoding)


def check_some(compiled: Compiled, candidates: Sequence[Candidate]) -> int:
    """Check as many candidates as can be done in no time; return how many. Raises `InvalidInput`."""
    done = 0
    units: float = INLINE
    if isinstance(candidates, Batch):
        watch = Watch(units)
        done = compiled.allowed(candidates, watch)
        if done == len(candidates):
            return done
        units = watch.units_left()
    budget = Budget(units)
    for index in range(done, len(candidates)):
        try:
            _check_one(compiled, index, candidates[index], budget)
        except TooMuch:
            return index
    return len(candidates)


def _check_one(compiled: Compiled, index: int, candidate: Candidate, budget: Budget) -> None:
    if isinstance(candidate, Message):
        compiled.check(index, candidate, budget)
    elif isinstance(candidate, str):
        compiled.check_data(index, candidate, budget)
    else:
        compiled.check_payload(index, candidate, budget)


def _piece_of(index: int, candidate: Candidate) -> Piece:
    if isinstance(candidate, Message):
        return Piece(index, MESSAGE, candidate.fragment)
    if isinstance(candidate, str):
        return Piece(index, DATA, candidate.encode())
    return Piece(index, PAYLOAD, candidate)


@dataclass(frozen=True, slots=True)
class Fitting:
    """Finds the revision that each message of a topic keeps, where the encoding of messages is given.

    A message may keep any revision between the first and the last that the topic names, and is tried against the newest
    of them first. It is stored with attributes that name the revision, as Google's clients expect.
    """

    registry: Registry
    validators: Validators
    project: ProjectId
    project_name: str
    schema: AttachedSchema

    async def fitted(self, messages: Sequence[Message]) -> Batch:
        """Return the messages to be stored; raise as `Validators.check`, with reasons of the newest revision."""
        kept, schema = await self._revisions(messages), self.schema
        name = schema_path(self.project_name, schema.name)
        labels = {SCHEMA_NAME_ATTRIBUTE: name, SCHEMA_ENCODING_ATTRIBUTE: schema.encoding}
        return batch_of(
            [
                message(
                    each.data,
                    {**each.attributes, **labels, SCHEMA_REVISION_ATTRIBUTE: revision_id(schema.id, kept[index])},
                    each.ordering_key,
                )
                for index, each in enumerate(messages)
            ]
        )

    async def earlier(self, messages: Sequence[Message]) -> AsyncIterator[Batch]:
        """Yield the messages as they were to be stored before the newest revision was there, and so on."""
        for number in (await self._numbers())[1:]:
            try:
                yield await replace(self, schema=replace(self.schema, last_revision=number)).fitted(messages)
            except InvalidInput:
                return

    async def _revisions(self, messages: Sequence[Message]) -> dict[int, int]:
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
