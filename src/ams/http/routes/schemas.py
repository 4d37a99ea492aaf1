"""Schemas (contract 15), with our extensions: attributes, and dry runs."""

import contextlib
from typing import Any

import msgspec

from ams.core.clock import resource_date
from ams.core.errors import InvalidInput, refuse_if
from ams.core.messages import message
from ams.core.names import revision_id, schema_path
from ams.http.bodies import BodyReader, bad_request, strings
from ams.http.routing import Call, Versioned, forward, shown_list
from ams.service import schemas
from ams.storage.registry import records
from ams.validation.compiled import Candidate
from ams.wire import projects as wire

DEFAULT_DRY_RUN = 100  # default number of messages of a dry run


class _CandidateMessage(msgspec.Struct, forbid_unknown_fields=True):
    """A message to validate with its attributes; anything else is a payload."""

    attributes: dict[str, str]
    data: str = ""


_BAD_DRY_RUN_TEXT = "Invalid Dry Run Arguments"
_details = BodyReader(wire.SchemaBody, "Invalid Schema Arguments")
_message = msgspec.json.Decoder(_CandidateMessage)


class SchemaRoutes:
    """The routes of schemas."""

    def __init__(self, schemas: schemas.Schemas) -> None:
        self._schemas = schemas
        self.schemas_delete = forward(schemas.delete, "schema")

    async def schemas_list(self, call: Call) -> wire.Schemas:
        found = await self._schemas.list(call.caller)
        return wire.Schemas(await shown_list(found, lambda each: _wire_schema(call, each)))

    async def schemas_show(self, call: Call) -> Versioned:
        schema = await self._schemas.show(call.caller, call.schema)
        return Versioned(_wire_schema(call, schema), schema)

    async def schemas_revisions(self, call: Call) -> wire.Revisions:
        return wire.Revisions(await shown_list(await self._schemas.revisions(call.caller, call.schema), _revision))

    async def schemas_create(self, call: Call) -> wire.Schema:
        details = _details.read_first(await call.body())
        return _wire_schema(call, await self._schemas.create(call.caller, call.schema, details))

    async def schemas_update(self, call: Call) -> wire.Schema:
        body = await call.body()
        schema = await self._schemas.show(call.caller, call.schema)
        return _wire_schema(call, await self._schemas.update(call.caller, schema, _details.read_first(body)))

    async def schemas_validate_message(self, call: Call) -> wire.Validated:
        body = await call.body()
        schema = await self._schemas.show(call.caller, call.schema)
        await self._schemas.validate(schema, _candidate(schema, body))
        return wire.Validated("Message validated successfully")

    async def schemas_dry_run(self, call: Call) -> wire.DryRun:
        wanted = await call.read(wire.DryRunBody, _BAD_DRY_RUN_TEXT)
        count = DEFAULT_DRY_RUN if wanted.messages is None else wanted.messages
        refuse_if(count < 1, _BAD_DRY_RUN_TEXT)
        with call.watch_client() as gone:
            return await self._schemas.dry_run(call.caller, call.schema, wanted.topic or "", count, gone=gone)


def _candidate(schema: records.Schema, body: bytes) -> Candidate:
    """Parse a message if the schema has rules for attributes, else a payload (contract 15.2)."""
    if schema.content.attributes is not None:
        with contextlib.suppress(ValueError, RecursionError):
            whole = _message.decode(body)
            return message(whole.data, whole.attributes)
    if schema.content.payload is not None:
        if schema.content.type == "json":
            return body
        if not body:
            raise bad_request()
        data = strings(body).get("data")
        if data is not None:
            return data
    raise InvalidInput("Invalid Schema Payload Arguments")


def _wire_schema(call: Call, schema: records.Schema) -> wire.Schema:
    return wire.Schema(schema.id, schema_path(call.project, schema.name), *_as_stored(schema.content))


def _revision(schema: records.Schema) -> wire.Revision:
    revision = revision_id(schema.id, schema.revision)
    return wire.Revision(revision, resource_date(schema.created_on), *_as_stored(schema.content))


def _as_stored(content: records.SchemaContent) -> tuple[str, Any, Any]:
    """Return type, rules for data and for attributes, unparsed: parsing would be slow for a list of large schemas."""
    payload, attributes = ({} if each is None else msgspec.Raw(each) for each in (content.payload, content.attributes))
    return content.type, payload, attributes
