"""Validators: a cache of compiled schemas, and checks of messages that do not block other requests.

A revision never changes, and is compiled at its first use. To save memory the cache evicts the least recently used
revisions, and older revisions of a schema when a newer one is used.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace

import msgspec

from ams.core import names
from ams.core.errors import InvalidInput, NotFound, Unusable
from ams.core.messages import Batch, Message, batch_of, message
from ams.core.names import ProjectId, SchemaId, revision_id, schema_path
from ams.service.lookup import require_found
from ams.storage.database.invalidation import Cache
from ams.storage.registry.records import AttachedSchema, SchemaContent
from ams.storage.registry.registry import Registry
from ams.storage.registry.schemas import NO_SCHEMA
from ams.validation.compiled import PROTOBUF, Candidate, Compiled, compile_stored
from ams.validation.cost import INLINE_UNITS, Budget, OverBudget, WorkTimer
from ams.validation.long_checks import DATA, MESSAGE, PAYLOAD, TASK_SECONDS, InvalidPiece, LongChecks, Piece, Task
from ams.validation.protobuf import definition_of, is_compiled, with_descriptor

MAX_COMPILED = 2**26  # bytes of memory for compiled revisions: thousands of usual ones, a few of the largest
MAX_REVISIONS_TRIED = 20
NO_REVISION_LEFT = "The schema of the topic has none of the revisions left that messages may keep"

Revision = tuple[SchemaId, int, str]  # a schema, the number of its revision, and the encoding of messages, if it counts


class Validators:
    """Checks messages against schemas; compiles and keeps revisions that are in use."""

    def __init__(self, registry: Registry, long_checks: LongChecks) -> None:
        self.registry, self._long_checks = registry, long_checks
        self._compiled: Cache[Revision, Compiled] = Cache(MAX_COMPILED, lambda each: each.memory)
        self._one_compiles = asyncio.Lock()

    async def check(self, project: ProjectId, schema: AttachedSchema, messages: Sequence[Message]) -> None:
        """Check a publish request: raise `InvalidInput` for the first message that the schema does not allow.

        Raises `Unusable` for a schema that cannot be compiled, `Overloaded` when the project has too many long
        requests. A schema that was deleted meanwhile allows everything; without its revision the newest one left
        decides.
        """
        try:
            await self.ask(project, (schema.id, schema.revision, ""), messages)
        except NotFound:
            with contextlib.suppress(NotFound):
                for left in (await self.registry.schemas.revisions(schema.id))[:1]:
                    await self.ask(project, (schema.id, left.revision, ""), messages)

    def allow_now(self, schema: AttachedSchema, messages: Batch) -> bool:
        """Return True if a schema allows all messages, by a fast check; after False call `check`."""
        if schema.encoding:
            return False
        compiled = self._compiled.find_cached((schema.id, schema.revision, ""))
        return compiled is not None and compiled.count_valid(messages, WorkTimer(INLINE_UNITS)) == len(messages)

    async def ask(self, project: ProjectId, revision: Revision, candidates: Sequence[Candidate]) -> None:
        """Check candidates in order: cheap ones here, the others in worker processes. Raises as `of` and `check`."""
        compiled = self._compiled.find_cached(revision) or await self.of(revision)
        done = check_some(compiled, candidates)
        if done == len(candidates):
            return
        pieces = [_piece_of(index, each) for index, each in enumerate(candidates[done:], done)]
        for refused in await self.check_in_worker(project, revision, pieces):
            raise InvalidInput(refused.text)

    async def refusals(
        self, project: ProjectId, revision: Revision, candidates: Sequence[tuple[int, Candidate]]
    ) -> Mapping[int, str]:
        """Return the reasons of refused candidates by number. Raises as `check_in_worker`."""
        compiled, refused, budget = await self.of(revision), {}, Budget(INLINE_UNITS)
        for place, (index, each) in enumerate(candidates):
            try:
                compiled.check(index, each, budget)
            except InvalidInput as error:
                refused[index] = error.message
            except OverBudget:
                pieces = [_piece_of(*left) for left in candidates[place:]]
                return refused | dict(await self.check_in_worker(project, revision, pieces, every=True))
        return refused

    async def check_in_worker(
        self, project: ProjectId, revision: Revision, pieces: Sequence[Piece], *, every: bool = False
    ) -> Sequence[InvalidPiece]:
        """Return the first refused piece, or every one; raise `NotFound`, and as `LongChecks.check`."""
        schema, number, encoding = revision
        stored = require_found(await self.registry.schemas.revision(schema, number), NotFound(NO_SCHEMA))
        return await self._long_checks.check(project, _task(stored.content, pieces, every, encoding))

    async def ask_content(self, project: ProjectId, content: SchemaContent, payload: bytes, encoding: str) -> None:
        """Validate one payload, number 0, by a schema that may be unstored. Raises as `compile_schema` and `check`."""
        content = await self.add_descriptor(project, content)
        try:
            (await compile_schema(content, encoding)).check(0, payload, Budget(INLINE_UNITS))
        except OverBudget:
            task = _task(content, [_piece_of(0, payload)], False, encoding)
            for refused in await self._long_checks.check(project, task):
                raise InvalidInput(refused.text) from None

    async def add_descriptor(self, project: ProjectId, content: SchemaContent) -> SchemaContent:
        """Return content as it is stored: Protocol Buffers get a descriptor. Raises as `LongChecks.compile`."""
        if content.type != PROTOBUF or content.payload is None or is_compiled(content.payload):
            return content
        definition = definition_of(content.payload)
        descriptor = await self._long_checks.compile(project, definition)
        return replace(content, payload=with_descriptor(definition, descriptor))

    async def of(self, revision: Revision) -> Compiled:
        """Return a compiled revision; raise `NotFound` when there is none, `Unusable` when it cannot be compiled."""

        async def wait_and_look_again() -> Compiled | None:
            async with self._one_compiles:
                return await self._compiled.find(revision, lambda: self._compile(*revision))

        return require_found(await self._compiled.find(revision, wait_and_look_again), NotFound(NO_SCHEMA))

    async def _compile(self, schema: SchemaId, revision: int, encoding: str) -> Compiled | None:
        stored = await self.registry.schemas.revision(schema, revision)
        if stored is None:
            return None
        if not encoding:  # else older ones are asked too
            self._compiled.discard_where(lambda key, _: key[0] == schema and key[1] < revision and not key[2])
        try:
            return await compile_schema(stored.content, encoding)
        except (InvalidInput, msgspec.DecodeError):
            raise Unusable("Could not load schema for topic") from None


async def compile_schema(content: SchemaContent, encoding: str = "") -> Compiled:
    """Compile a revision; raise `InvalidInput` that says why it cannot be."""
    return await asyncio.to_thread(compile_stored, content.type, content.payload, content.attributes, encoding)


def _task(content: SchemaContent, pieces: Sequence[Piece], every: bool, encoding: str) -> Task:
    return Task(content.type, content.payload, content.attributes, pieces, every, encoding)


def check_some(compiled: Compiled, candidates: Sequence[Candidate]) -> int:
    """Check as many candidates as the inline budget allows; return how many. Raises `InvalidInput`."""
    done = 0
    units: float = INLINE_UNITS
    if isinstance(candidates, Batch):
        watch = WorkTimer(units)
        done = compiled.count_valid(candidates, watch)
        if done == len(candidates):
            return done
        units = watch.units_left()
    budget = Budget(units)
    for index in range(done, len(candidates)):
        try:
            compiled.check(index, candidates[index], budget)
        except OverBudget:
            return index
    return len(candidates)


def _piece_of(index: int, candidate: Candidate) -> Piece:
    if isinstance(candidate, Message):
        return Piece(index, MESSAGE, candidate.fragment)
    if isinstance(candidate, str):
        return Piece(index, DATA, candidate.encode())
    return Piece(index, PAYLOAD, candidate)


@dataclass(frozen=True, slots=True)
class Fitting:
    """Finds the schema revision of each message, for topics with an encoding.

    A message may conform to any revision between the topic's first and last; the newest is tried first. It is stored
    with attributes that name the revision, as Google's clients expect.
    """

    validators: Validators
    project: ProjectId
    project_name: str
    schema: AttachedSchema

    async def fitted_messages(self, messages: Sequence[Message]) -> Batch:
        """Return the messages to store. Raises as `Validators.check`, with reasons of the newest revision."""
        kept, schema = await self._revisions(messages), self.schema
        name = schema_path(self.project_name, schema.name)
        labels = {names.SCHEMA_NAME_ATTRIBUTE: name, names.SCHEMA_ENCODING_ATTRIBUTE: schema.encoding}
        fitted = []
        for index, each in enumerate(messages):
            revision = {names.SCHEMA_REVISION_ATTRIBUTE: revision_id(schema.id, kept[index])}
            fitted.append(message(each.data, {**each.attributes, **labels, **revision}, each.ordering_key))
        return batch_of(fitted)

    async def earlier(self, messages: Sequence[Message]) -> AsyncIterator[Batch]:
        """Yield the messages as stored before the newest revision existed, then before the one before it, and so on."""
        for number in (await self._numbers())[1:]:
            try:
                yield await replace(self, schema=replace(self.schema, last_revision=number)).fitted_messages(messages)
            except InvalidInput:
                return

    async def _revisions(self, messages: Sequence[Message]) -> dict[int, int]:
        """Return the newest matching revision by message index. Raises `InvalidInput` if a message has none in time."""
        schema, kept = self.schema, dict[int, int]()
        left: list[tuple[int, Message]] = list(enumerate(messages))
        reasons: dict[int, str] = {}
        until = asyncio.get_running_loop().time() + TASK_SECONDS
        async for revision in self._newest_first():
            try:
                refused = await self.validators.refusals(self.project, (schema.id, revision, schema.encoding), left)
            except NotFound:  # it was deleted since
                continue
            kept |= {index: revision for index, _ in left if index not in refused}
            left = [each for each in left if each[0] in refused]
            reasons = dict(refused) | reasons
            if not left:
                return kept
            if asyncio.get_running_loop().time() > until:
                text = "takes too long or too much memory to check against the schema"
                raise InvalidInput(f"Message {left[0][0]} {text}")
        raise InvalidInput(reasons[left[0][0]] if reasons else NO_REVISION_LEFT)

    async def _newest_first(self) -> AsyncIterator[int]:
        """Yield revisions, newest first; the first one, which fits nearly all messages, needs no read."""
        newest, first, last = self.schema.revision, self.schema.first_revision, self.schema.last_revision
        known = newest if (first or newest) <= newest <= (last or newest) else None
        if known is not None:
            yield known
        for number in await self._numbers():
            if number != known:
                yield number

    async def _numbers(self) -> Sequence[int]:
        first, last = self.schema.first_revision, self.schema.last_revision
        return await self.validators.registry.schemas.numbers(self.schema.id, first, last, MAX_REVISIONS_TRIED)
