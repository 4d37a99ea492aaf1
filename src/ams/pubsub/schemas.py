"""The service SchemaService: schemas of AMS in Avro and Protocol Buffers, and their revisions.

A revision's id is made of the schema's identity and the revision's number (`revision_id`). A schema in JSON Schema,
which Google does not have, is shown with the type 0.
"""

from collections.abc import Callable, Mapping, Sequence

import msgspec

from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SchemaName, is_resource_name, revision_id
from ams.pubsub import fields
from ams.pubsub import protos as pb
from ams.pubsub.calls import PubsubCall
from ams.pubsub.errors import name_missing
from ams.pubsub.fields import SCHEMAS, PubsubName
from ams.pubsub.messages import MAX_RESPONSE_BYTES, in_answers
from ams.pubsub.protos import Message
from ams.service.schemas import Schemas
from ams.service.validators import MAX_REVISIONS_TRIED
from ams.storage.registry.records import Schema, SchemaContent
from ams.validation.compiled import AVRO, MAX_SCHEMA_BYTES, PROTOBUF
from ams.validation.protobuf import definition_of
from ams.wire.projects import DEFINITION, SchemaBody

NAME = "google.pubsub.v1.SchemaService"
ENCODINGS: Mapping[int, str] = {1: "JSON", 2: "BINARY"}
_BASIC, _FULL = 1, 2  # views of a schema
_PROTOBUF = 1
_TYPES: Mapping[str, int] = {PROTOBUF: _PROTOBUF, AVRO: 2}
_MOST_FULL = 100  # schemas of a page that has their definitions
_MOST_DIGITS = 18  # of the number of a revision


class SchemaRpcs:
    """Methods of the service SchemaService."""

    def __init__(self, schemas: Schemas) -> None:
        self._schemas = schemas

    async def create_schema(self, call: PubsubCall, request: Message) -> Message:
        fields.check_new_name(call.name)
        details = _details(request.schema)
        return _show_schema(call, await self._schemas.create(call.caller, SchemaName(call.name.leaf), details), _FULL)

    async def get_schema(self, call: PubsubCall, request: Message) -> Message:
        """Show a schema at its newest revision, or at the one in the name."""
        _, _, revision = request.name.partition("@")
        return _show_schema(call, await self._find(call, call.name.leaf, revision), _view(request, _FULL))

    async def list_schemas(self, call: PubsubCall, request: Message) -> Message:
        wanted, view = fields.page_request(request), _view(request, _BASIC)
        if wanted.token and not is_resource_name(wanted.token):
            raise InvalidInput("Invalid page token")
        size = min(wanted.size, _MOST_FULL) if view == _FULL else wanted.size
        found = await self._schemas.page(call.caller, wanted.token, size + 1)
        shown = [_show_schema(call, each, view) for each in found[:size]]
        return _fill(pb.ListSchemasResponse(), shown, found, lambda last: last.name)

    async def list_schema_revisions(self, call: PubsubCall, request: Message) -> Message:
        wanted, view = fields.page_request(request), _view(request, _BASIC)
        token = wanted.token
        if token and not (token.isascii() and token.isdigit() and len(token) <= _MOST_DIGITS):
            raise InvalidInput("Invalid page token")
        size = min(wanted.size, _MOST_FULL) if view == _FULL else wanted.size
        revisions = await self._schemas.revisions(call.caller, SchemaName(call.name.leaf))
        found = [each for each in revisions if not token or each.revision < int(token)]
        shown = [_show_schema(call, each, view) for each in found[:size]]
        return _fill(pb.ListSchemaRevisionsResponse(), shown, found, lambda last: str(last.revision))

    async def commit_schema(self, call: PubsubCall, request: Message) -> Message:
        schema = await self._schemas.show(call.caller, SchemaName(call.name.leaf))
        details = _details(request.schema)
        if schema.content.type != details.type:
            raise InvalidInput("The type of a schema cannot change: a revision has the type of those before it.")
        await self._check_room(call, schema.name)
        return _show_schema(call, await self._schemas.update(call.caller, schema, details), _FULL)

    async def rollback_schema(self, call: PubsubCall, request: Message) -> Message:
        old = await self._find(call, call.name.leaf, _said_revision(request.revision_id))
        await self._check_room(call, old.name)
        return _show_schema(call, await self._schemas.roll_back(call.caller, old.name, old.revision), _FULL)

    async def delete_schema_revision(self, call: PubsubCall, request: Message) -> Message:
        revision = _said_revision(request.name.partition("@")[2] or request.revision_id)
        old = await self._find(call, call.name.leaf, revision)
        return _show_schema(call, await self._schemas.delete_revision(call.caller, old.name, old.revision), _FULL)

    async def delete_schema(self, call: PubsubCall, request: Message) -> Message:
        await self._schemas.delete(call.caller, SchemaName(call.name.leaf))
        return pb.Empty()

    async def validate_schema(self, call: PubsubCall, request: Message) -> Message:
        if request.schema.name:
            fields.read_name(request.schema.name, SCHEMAS)
        await self._schemas.check(call.caller.here.id, _content(request.schema))
        return pb.ValidateSchemaResponse()

    async def validate_message(self, call: PubsubCall, request: Message) -> Message:
        """Validate the data of a message by a schema, stored or not."""
        encoding = ENCODINGS.get(request.encoding)
        if encoding is None:
            raise InvalidInput("The encoding of the message must be JSON or BINARY (argument=encoding).")
        if request.name:
            name, _, revision = request.name.partition("@")
            content = (await self._find(call, fields.name_in(name, call.project, SCHEMAS), revision)).content
        else:
            content = _content(request.schema)
        if encoding == "BINARY" and content.type == "json":
            raise InvalidInput("A schema of type json has the encoding JSON")
        await self._schemas.validate_payload(call.caller, content, request.message, encoding)
        return pb.ValidateMessageResponse()

    async def _find(self, call: PubsubCall, leaf: str, revision: str = "") -> Schema:
        name = SchemaName(leaf)
        with name_missing(f"{leaf}@{revision}" if revision else leaf):
            if not revision:
                return await self._schemas.show(call.caller, name)
            return await self._schemas.revision_by_id(call.caller, name, revision)

    async def _check_room(self, call: PubsubCall, name: SchemaName) -> None:
        if len(await self._schemas.revisions(call.caller, name)) >= MAX_REVISIONS_TRIED:
            raise Conflict(f"A schema has at most {MAX_REVISIONS_TRIED} revisions: delete one first.")


def _show_schema(call: PubsubCall, schema: Schema, view: int) -> Message:
    content = schema.content
    payload = (content.payload or "{}") if view == _FULL else ""
    return pb.Schema(
        name=PubsubName(call.project, SCHEMAS, schema.name).path,
        type_=_TYPES.get(content.type, 0),
        definition=definition_of(payload) if payload and content.type == PROTOBUF else payload,
        revision_id=revision_id(schema.id, schema.revision),
        revision_create_time=fields.timestamp(schema.created_on),
    )


def _content(schema: Message) -> SchemaContent:
    """Return what a request says of a schema, not compiled yet; raise `InvalidInput`."""
    if schema.type_ not in _TYPES.values():
        raise InvalidInput("The type of a schema must be AVRO or PROTOCOL_BUFFER (argument=schema.type).")
    if len(schema.definition.encode()) > MAX_SCHEMA_BYTES:  # as it is kept, with all its white space
        raise InvalidInput(
            f"The definition of a schema has at most {MAX_SCHEMA_BYTES} bytes (argument=schema.definition)."
        )
    if schema.type_ == _PROTOBUF:
        fields.refuse(schema, {"compiled_proto_schema": "the definition is compiled here"})
        return SchemaContent(PROTOBUF, msgspec.json.encode({DEFINITION: schema.definition}).decode(), None)
    try:
        is_object = isinstance(msgspec.json.decode(schema.definition), dict)
    except (ValueError, RecursionError):
        is_object = False
    if not is_object:
        raise InvalidInput("The definition of a schema must be an object of JSON (argument=schema.definition).")
    return SchemaContent(AVRO, schema.definition, None)


def _details(schema: Message) -> SchemaBody:
    """Return the same for the use case; the definition is kept as it was written, to the byte."""
    content = _content(schema)
    if content.type == PROTOBUF:
        return SchemaBody(type=content.type, schema={DEFINITION: schema.definition})
    return SchemaBody(type=content.type, schema=msgspec.Raw(schema.definition))  # type: ignore[arg-type]


def _fill(
    answer: Message, shown: Sequence[Message], found: Sequence[Schema], token: Callable[[Schema], str]
) -> Message:
    """Return an answer with as many of `found` as clients take, one at least; `token` makes the next page's token."""
    page = next(iter(in_answers(shown, MAX_RESPONSE_BYTES)), [])
    answer.schemas.extend(page)
    if len(page) < len(found):
        answer.next_page_token = token(found[len(page) - 1])
    return answer


def _view(request: Message, usual: int) -> int:
    view: int = request.view or usual
    if view not in (_BASIC, _FULL):
        raise InvalidInput("The view must be BASIC or FULL (argument=view).")
    return view


def _said_revision(identity: str) -> str:
    if not identity:
        raise InvalidInput("You have passed an invalid argument to the service (argument=revision_id).")
    return identity
