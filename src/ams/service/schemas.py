"""Administration of schemas, and validation of messages without publishing (HTTP contract 15)."""

import asyncio
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from ams.access.admission import Caller
from ams.core.errors import AlreadyExists, Conflict, InvalidInput, NotFound, Overloaded, refuse_if
from ams.core.names import Offset, ProjectId, SchemaName, checked_name, revision_id, schema_reference, topic_reference
from ams.core.quotas import REVISION_BYTES, SCHEMA_BYTES
from ams.service.lookup import find_topic, require_found
from ams.service.validators import Validators, compile_schema
from ams.storage.log.base import Log
from ams.storage.registry.records import Schema, SchemaContent, Topic
from ams.storage.registry.registry import Registry
from ams.storage.registry.schemas import NO_REVISION, NO_SCHEMA
from ams.validation.compiled import AVRO, JSON, PROTOBUF, Candidate
from ams.validation.long_checks import MESSAGE, Piece
from ams.wire.projects import DEFINITION, DryRun, RefusedMessage, SchemaBody

STOPPING = "The service is stopping"
T = TypeVar("T")
TYPES = (JSON, AVRO, PROTOBUF)
MAX_DRY_RUN = 10_000  # messages of a dry run; larger requests are reduced to this
MAX_REASONS = 20
_MAX_REVISIONS = 10_000
_PART, _PART_BYTES = 500, 2**20  # messages, and bytes of them, that a dry run checks at once


class Schemas:
    """Schemas of the caller's project."""

    def __init__(self, registry: Registry, log: Log, validators: Validators) -> None:
        self._registry, self._log, self._validators = registry, log, validators
        self.dry_runs = DryRuns()

    async def list(self, caller: Caller) -> Sequence[Schema]:
        """Return all schemas, oldest first."""
        return await self._registry.schemas.all(caller.here.id)

    async def page(self, caller: Caller, after: str, most: int) -> Sequence[Schema]:
        """Return schemas whose names come after one, by name."""
        return await self._registry.schemas.page(caller.here.id, after, most)

    async def show(self, caller: Caller, name: SchemaName) -> Schema:
        """Return a schema at its newest revision; raise `NotFound` when there is none."""
        return require_found(await self._registry.schemas.find(caller.here.id, name), NotFound(NO_SCHEMA))

    async def create(self, caller: Caller, name: SchemaName, details: SchemaBody) -> Schema:
        """Make a schema of a payload part, an attributes part, or both. Raises `InvalidInput`, `AlreadyExists`."""
        refuse_if(details.schema is None and not details.attributes, "Invalid Schema Arguments")
        try:
            kind = _type(details.type)
            content = SchemaContent(kind, _payload(kind, details.schema), _text(details.attributes or None))
        except InvalidInput:
            await self._registry.schemas.require_new(caller.here.id, name, None)  # a taken name is the first error
            raise
        await self._registry.schemas.require_new(caller.here.id, name, content)  # a check takes long
        content = await self.check(caller.here.id, content)
        return await self._registry.schemas.create(caller.here.id, name, content)

    async def update(self, caller: Caller, schema: Schema, details: SchemaBody) -> Schema:
        """Rename a schema or add a revision, for every publish that begins after this returned.

        Absent parts stay as they are; empty attributes take that part away. Raises, in this order: `InvalidInput` for
        the name; `AlreadyExists`; `InvalidInput` for the content; `NotFound`.
        """
        while True:
            new_name = await self._new_name(caller, schema, details.name)
            if content := _changed_content(schema.content, details):
                room = {SCHEMA_BYTES: content.bytes + REVISION_BYTES}
                await self._registry.quotas.require_room(schema.project_id, room)
                content = await self.check(schema.project_id, content)
            change = self._registry.schemas.update(schema, name=new_name, content=content, expected=caller.expected)
            if (updated := await change) is not None:
                return updated
            schema = await self.show(caller, schema.name)  # another request changed it

    async def revisions(self, caller: Caller, name: SchemaName) -> Sequence[Schema]:
        """Return a schema at each of its revisions, the newest first; raise `NotFound` when there is none."""
        return await self._registry.schemas.revisions((await self.show(caller, name)).id)

    async def revision_by_id(self, caller: Caller, name: SchemaName, identity: str) -> Schema:
        """Return a schema at the revision that has this id (`revision_id`). Raises `NotFound`."""
        schema = await self.show(caller, name)
        numbers = await self._registry.schemas.numbers(schema.id, None, None, _MAX_REVISIONS)
        for number in [each for each in numbers if revision_id(schema.id, each) == identity]:
            if (found := await self._registry.schemas.revision(schema.id, number)) is not None:
                return found
        raise NotFound(NO_REVISION)

    async def roll_back(self, caller: Caller, name: SchemaName, revision: int) -> Schema:
        """Make a new revision with the content of an older one; return it. Raises `NotFound`."""
        while True:
            schema = await self.show(caller, name)
            old = require_found(await self._registry.schemas.revision(schema.id, revision), NotFound(NO_REVISION))
            if (made := await self._registry.schemas.update(schema, content=old.content)) is not None:
                return made

    async def delete_revision(self, caller: Caller, name: SchemaName, revision: int) -> Schema:
        """Remove a revision, not the last one left; return the newest one left. Raises `NotFound`, `InvalidInput`."""
        schema = await self.show(caller, name)
        return await self._registry.schemas.delete_revision(schema.id, revision)

    async def delete(self, caller: Caller, name: SchemaName) -> None:
        """Remove a schema with all its revisions; its topics take any message from then on. Raises `NotFound`."""
        schema = await self.show(caller, name)
        require_found(await self._registry.schemas.delete(schema.id, caller.expected), NotFound(NO_SCHEMA))

    async def check(self, project: ProjectId, content: SchemaContent) -> SchemaContent:
        """Return content as it is stored. Raises `InvalidInput` for a bad schema, `Overloaded`."""
        if content.payload is None and content.attributes is None:
            raise InvalidInput("A schema without a payload schema needs attributes")
        refuse_if(content.payload is None and content.type != "json", "A schema of attributes alone has the type json")
        content = await self._validators.add_descriptor(project, content)
        await compile_schema(content)
        return content

    async def validate_payload(self, caller: Caller, content: SchemaContent, payload: bytes, encoding: str) -> None:
        """Validate one payload, as number 0, by a schema that need not be stored. Raises as `validate` and `check`."""
        await self._validators.ask_content(caller.here.id, content, payload, encoding)

    async def validate(self, schema: Schema, candidate: Candidate) -> None:
        """Validate one message, as number 0 (contract 15.3). Raises `InvalidInput`, `Unusable`."""
        await self._validators.ask(schema.project_id, (schema.id, schema.revision, ""), [candidate])

    async def dry_run(
        self, caller: Caller, name: SchemaName, topic: str, messages: int, *, gone: "asyncio.Future[None] | None" = None
    ) -> DryRun:
        """Check the newest messages of a topic, up to `messages` and `MAX_DRY_RUN`; nothing changes.

        `topic` is a reference; `gone` is done when the client has left. Raises `NotFound`, `InvalidInput`, also for
        messages that take too long, `Conflict` while another one of the project runs, `Unusable`, `Overloaded`.
        """
        schema = await self.show(caller, name)
        target = await find_topic(self._registry, caller, topic_reference(caller.here.name, topic))
        await self._validators.of((schema.id, schema.revision, ""))
        work = self._dry_run(schema, target, min(messages, MAX_DRY_RUN))
        return await self.dry_runs.run(caller.here.id, work, gone)

    async def _dry_run(self, schema: Schema, topic: Topic, messages: int) -> DryRun:
        oldest, end = await self._log.bounds(topic.id)
        place, checked = max(oldest, end - messages), 0
        refused: list[RefusedMessage] = []
        while place < end:
            most = min(_PART, end - place)
            part = await self._log.read(topic.id, Offset(place), max_messages=most, max_bytes=_PART_BYTES)
            if not part:
                break  # retention took what was left
            pieces = [Piece(each.offset, MESSAGE, each.fragment) for each in part]
            revision = schema.id, schema.revision, ""
            found = await self._validators.check_in_worker(schema.project_id, revision, pieces, every=True)
            refused += [RefusedMessage(str(each.number), each.text) for each in found]
            checked, place = checked + len(part), part[-1].offset + 1
        return DryRun(checked, len(refused), refused[:MAX_REASONS])

    async def _new_name(self, caller: Caller, schema: Schema, reference: str | None) -> SchemaName | None:
        if not reference:
            return None
        name = schema_reference(caller.here.name, reference)
        if name != schema.name:
            checked_name("schema", name)
        other = await self._registry.schemas.find(caller.here.id, name)
        if other is not None and other.id != schema.id:
            raise AlreadyExists("Schema already exists")
        return name


def _type(said: str | None) -> str:
    found = (said or "").lower()
    refuse_if(found not in TYPES, "Schema type can only be 'json', 'avro' or 'protobuf'")
    return found


def _text(part: Mapping[str, Any] | None) -> str | None:
    return None if part is None else msgspec.json.encode(part).decode()


def _payload(kind: str, part: Mapping[str, Any] | None) -> str | None:
    """Keep only the definition of Protocol Buffers: the descriptor is always compiled here."""
    if kind == PROTOBUF and part is not None:
        part = {DEFINITION: part.get(DEFINITION)}
    return _text(part)


def _changed_content(old: SchemaContent, details: SchemaBody) -> SchemaContent | None:
    if not details.type and not details.schema and details.attributes is None:
        return None
    kind = _type(details.type) if details.type else old.type
    payload = _payload(kind, details.schema) if details.schema else old.payload
    attributes = old.attributes if details.attributes is None else _text(details.attributes or None)
    return SchemaContent(kind, payload, attributes)


class DryRuns:
    """Dry runs under way, at most one per project."""

    def __init__(self) -> None:
        self._running: dict[ProjectId, asyncio.Task[Any]] = {}
        self._stopping = False

    async def run(
        self, project: ProjectId, work: Coroutine[Any, Any, T], gone: "asyncio.Future[None] | None" = None
    ) -> T:
        """Return the result of the work, cancelled when `gone` is done. Raises `Conflict`; at a stop `Overloaded`."""
        if self._stopping or project in self._running:
            work.close()
            raise Overloaded(STOPPING) if self._stopping else Conflict("Another dry run of this project is under way")
        task = asyncio.ensure_future(work)
        self._running[project] = task
        if gone is not None:
            gone.add_done_callback(lambda _: task.cancel())
        try:
            return await task
        except asyncio.CancelledError:
            if self._stopping:
                raise Overloaded(STOPPING) from None
            raise
        finally:
            del self._running[project]

    def stop(self) -> None:
        """End all, for an orderly stop; from now on none begins."""
        self._stopping = True
        for task in self._running.values():
            task.cancel()
