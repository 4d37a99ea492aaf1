"""Validators: the compiled schemas that are in use, and checks of messages that block no other request.

A revision is compiled when it is first needed, and once; revisions never change, so nothing here ever has to be
forgotten but to save memory: the longest unused first, and a revision when a newer one of its schema is needed.
"""

import asyncio
import contextlib
from collections.abc import Mapping, Sequence

import msgspec

from ams.core.errors import InvalidInput, NotFound, Unusable
from ams.core.messages import Batch, Message
from ams.core.names import ProjectId, SchemaId
from ams.storage.database.invalidation import Cache
from ams.storage.registry.records import AttachedSchema, SchemaContent
from ams.storage.registry.registry import Registry
from ams.validation import Compiled, compile_stored
from ams.validation.cost import INLINE, Budget, TooMuch, Watch
from ams.validation.long_checks import DATA, MESSAGE, PAYLOAD, LongChecks, Piece, Refusal, Task

MAX_COMPILED = 2**26
"""Bytes of memory for compiled revisions: thousands of usual ones, a few of the largest."""

Candidate = Message | str | bytes
"""What may be asked about: a message; base64 data alone; a payload alone."""


class Validators:
    """Finds or makes what checks the messages of a topic."""

    def __init__(self, registry: Registry, long_checks: LongChecks) -> None:
        self._registry = registry
        self._compiled: Cache[tuple[SchemaId, int, str], Compiled] = Cache(MAX_COMPILED, lambda each: each.memory)
        self._one_compiles = asyncio.Lock()
        self._long_checks = long_checks

    async def check(self, project: ProjectId, schema: AttachedSchema, messages: Sequence[Message]) -> None:
        """Check a publish request: raise `InvalidInput` for the first message that the schema does not allow.

        Raises `Unusable` when what is stored cannot be compiled any more, `Overloaded` when the project has too many
        requests that take long. A schema that is gone allows everything: it was deleted, and so detached, while the
        request was under way. Where only its revision is gone, the newest one left decides.
        """
        try:
            await self.ask(project, schema.id, schema.revision, messages)
        except NotFound:
            with contextlib.suppress(NotFound):
                for left in (await self._registry.schemas.revisions(schema.id))[:1]:
                    await self.ask(project, schema.id, left.revision, messages)

    def allow_now(self, schema: AttachedSchema, messages: Batch) -> bool:
        """Whether a schema surely allows all messages, as far as that is found in no time and without a wait.

        Of others nothing is known: `check` tells. Where it was said how messages are written, more is to be done than
        this (`ams.service.fitting`).
        """
        if schema.encoding:
            return False
        compiled = self._compiled.known((schema.id, schema.revision, ""))
        return compiled is not None and compiled.allowed(messages, Watch(INLINE)) == len(messages)

    async def ask(self, project: ProjectId, schema: SchemaId, revision: int, candidates: Sequence[Candidate]) -> None:
        """Check candidates in order, here as long as that is done in no time, the others by worker processes.

        Raises `InvalidInput` for the first that is not allowed; `NotFound` and `Unusable` as `of`, `Overloaded` as
        `check`.
        """
        compiled = self._compiled.known((schema, revision, "")) or await self.of(schema, revision)
        done = check_some(compiled, candidates)
        if done == len(candidates):
            return
        pieces = [piece_of(index, each) for index, each in enumerate(candidates[done:], done)]
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
                pieces = [piece_of(*left) for left in candidates[place:]]
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
        """Check pieces in a worker process; return the first that is refused, or every one.

        Raises `NotFound` when there is no such revision; see `LongChecks.check` for the others.
        """
        stored = await self._registry.schemas.revision(schema, revision)
        if stored is None:
            raise NotFound("Schema doesn't exist")
        return await self._long_checks.check(project, _task(stored.content, pieces, every, encoding))

    async def ask_content(self, project: ProjectId, content: SchemaContent, payload: bytes, encoding: str) -> None:
        """Ask a schema that need not be stored about one payload, as number 0.

        Raises `InvalidInput` when that is not allowed, and for what does not compile; see `LongChecks.check` too.
        """
        asked = await compiled(content, encoding)
        try:
            asked.check_payload(0, payload, Budget(INLINE))
        except TooMuch:
            task = _task(content, [piece_of(0, payload)], False, encoding)
            for refused in await self._long_checks.check(project, task):
                raise InvalidInput(refused.text) from None

    async def of(self, schema: SchemaId, revision: int, encoding: str = "") -> Compiled:
        """Return a compiled revision; raise `NotFound` when there is none, `Unusable` when it cannot be compiled."""
        key = (schema, revision, encoding)

        async def wait_and_look_again() -> Compiled | None:
            async with self._one_compiles:
                return await self._compiled.find(key, lambda: self._compile(schema, revision, encoding))

        compiled = await self._compiled.find(key, wait_and_look_again)
        if compiled is None:
            raise NotFound("Schema doesn't exist")
        return compiled

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
    """Compile what a revision says; raise `InvalidInput` that says why it cannot be."""
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


def piece_of(index: int, candidate: Candidate) -> Piece:
    """Return a candidate as it is sent to a worker process."""
    if isinstance(candidate, Message):
        return Piece(index, MESSAGE, candidate.fragment)
    if isinstance(candidate, str):
        return Piece(index, DATA, candidate.encode())
    return Piece(index, PAYLOAD, candidate)
