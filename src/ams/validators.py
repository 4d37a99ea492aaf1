"""Validators: the compiled schemas that are in use, and checking messages without holding anybody up.

A revision is compiled when it is first needed, and once; revisions never change, so nothing here ever has to be
forgotten but to save memory.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec

from ams.errors import InvalidInput, NotFound, Unusable
from ams.messages import Message
from ams.names import SchemaId
from ams.registry.cache import Cache
from ams.registry.records import AttachedSchema, SchemaContent
from ams.registry.registry import Registry
from ams.validation import Compiled, compile_schema

MAX_COMPILED = 1000
"""Revisions kept compiled; one may take megabytes, most take kilobytes."""
BIG = 256 * 1024
"""Bytes of messages above which they are checked in a thread, one request at a time."""
MANY = 500
"""Messages above which the same is done."""


class Validators:
    """Finds or makes what checks the messages of a topic."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._compiled: Cache[tuple[SchemaId, int], Compiled] = Cache(MAX_COMPILED)
        self._one_compiles = asyncio.Lock()
        self._one_checks = asyncio.Lock()

    async def check(self, schema: AttachedSchema, messages: Sequence[Message]) -> None:
        """Check a publish request: raise `InvalidInput` for the first message that the schema does not allow.

        Raises `Unusable` when what is stored cannot be compiled any more. A schema that is gone allows everything: it
        was deleted, and so detached, while the request was under way.
        """
        try:
            compiled = await self.of(schema.id, schema.revision)
        except NotFound:
            return
        if len(messages) <= MANY and sum(len(each.fragment) for each in messages) <= BIG:
            check_all(compiled, messages)
            return
        async with self._one_checks:
            await asyncio.to_thread(check_all, compiled, messages)

    async def of(self, schema: SchemaId, revision: int) -> Compiled:
        """Return a compiled revision; raise `NotFound` when there is none, `Unusable` when it cannot be compiled."""
        key = (schema, revision)

        async def wait_and_look_again() -> Compiled | None:
            async with self._one_compiles:
                return await self._compiled.find(key, lambda: self._compile(schema, revision))

        compiled = await self._compiled.find(key, wait_and_look_again)
        if compiled is None:
            raise NotFound("Schema doesn't exist")
        return compiled

    async def _compile(self, schema: SchemaId, revision: int) -> Compiled | None:
        stored = await self._registry.schemas.revision(schema, revision)
        if stored is None:
            return None
        try:
            return await compiled(stored.content)
        except (InvalidInput, msgspec.DecodeError):
            raise Unusable("Could not load schema for topic") from None


async def compiled(content: SchemaContent) -> Compiled:
    """Compile what a revision says; raise `InvalidInput` that says why it cannot be."""
    return await asyncio.to_thread(
        lambda: compile_schema(content.type, parsed(content.payload), parsed(content.attributes))
    )


def parsed(text: str | None) -> Any:
    """Return stored JSON as a value."""
    return None if text is None else msgspec.json.decode(text)


def check_all(compiled: Compiled, messages: Sequence[Message]) -> None:
    """Check messages in order; raise `InvalidInput` for the first that is not allowed."""
    for index, message in enumerate(messages):
        compiled.check(index, message)
