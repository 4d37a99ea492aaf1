"""`ams schemas`: what messages must be, and what is wrong with those that are not."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from ams.cli.arguments import SCHEMA, TOPIC, AttributePairs, SchemaName, option, pairs
from ams.cli.command import Columns, CommandGroup, Session
from ams.cli.exit_codes import Usage
from ams.cli.messages import content_of
from ams.cli.output import columns, document, fields, short_name, text_block
from ams.client import wire
from ams.client.wire import Call
from ams.wire.projects import DEFINITION, DESCRIPTOR

app = CommandGroup(
    "ams schemas create reading --file reading.json",
    "ams schemas dry-run reading readings --messages 1000",
    "ams schemas validate reading --data '{}'",
    of_project=True,
)


SchemaLanguage = Literal["json", "avro", "protobuf"]
File = Annotated[
    str | None,
    option("What payloads must be, as JSON, or a definition for --type protobuf; - is standard input.", metavar="FILE"),
]
Attributes = Annotated[str | None, option("What attributes must be, as JSON; - is standard input.", metavar="FILE")]


def _text(schema: wire.Schema) -> str:
    lines = [fields({"schema": short_name(schema.name), "type": schema.type, "uuid": schema.uuid})]
    for name, part in (("payload", schema.schema), ("attributes", schema.attributes)):
        if part:
            lines.append(f"{name}\n{_format_part(part)}")
    return "\n".join(lines)


def _checks(schema: wire.Schema) -> str:
    parts = {"payload": schema.schema, "attributes": schema.attributes}
    return ", ".join(name for name, part in parts.items() if part) or "nothing"


@app.shows(_text)
def create(
    session: Session,
    schema: SchemaName,
    file: File = None,
    attributes: Attributes = None,
    kind: Annotated[SchemaLanguage, option("What payloads are.", "--type")] = "json",
) -> Call[wire.Schema]:
    """Make a schema of payloads (--file), of attributes (--attributes), or of both."""
    if file is None and attributes is None:
        raise Usage("give --file or --attributes, or both: what payloads or attributes must be")
    content, rules = _parts(file, attributes, kind)
    return wire.create_schema(session.project, schema, content, kind=kind, attributes=rules)


_COLUMNS: Columns = {"SCHEMA": lambda each: short_name(each.name), "TYPE": "type", "CHECKS": _checks}
app.sends("list", wire.list_schemas, _COLUMNS, "List the schemas of the project, oldest first.", items="schemas")
app.sends("show", wire.get_schema, _text, "Show one schema.", SCHEMA)


def _revisions(found: wire.Revisions) -> str:
    lines = []
    for each in found.revisions:
        lines.append(fields({"revision": each.revision, "created": each.created_on, "type": each.type}))
        lines += [_format_part(part) for part in (each.schema, each.attributes) if part]
    return "\n".join(lines)


app.sends("revisions", wire.list_revisions, _revisions, "Show all that a schema has said, newest first.", SCHEMA)


@app.shows(_text)
def update(
    session: Session,
    schema: SchemaName,
    file: File = None,
    attributes: Attributes = None,
    kind: Annotated[SchemaLanguage | None, option("What payloads are.", "--type")] = None,
    rename: Annotated[str, option("The new name.", metavar="NAME")] = "",
    no_attributes: Annotated[bool, option("Allow any attributes.", "--no-attributes")] = False,
) -> Call[wire.Schema]:
    """Change a schema, in force from the next publish on; what is not given stays."""
    if attributes is not None and no_attributes:
        raise Usage("give --attributes or --no-attributes, not both")
    content, rules = _parts(file, attributes, kind)
    return wire.update_schema(
        session.project, schema, content, name=rename, kind=kind or "", attributes={} if no_attributes else rules
    )


app.sends("delete", wire.delete_schema, "schema {schema} deleted",
    "Remove a schema; its topics take any message from then on.", SCHEMA)  # fmt: skip


@app.does()
def validate(
    session: Session,
    schema: SchemaName,
    file: Annotated[
        str | None, option("The payload; - is standard input, as when nothing is given.", metavar="FILE")
    ] = None,
    data: Annotated[str | None, option("The payload as text.")] = None,
    attr: AttributePairs = None,
) -> None:
    """Ask whether a message would be allowed, without publishing it; ends with 1 when it would not."""
    if data is not None and file is not None:
        raise Usage("give --data or --file, not both")
    attributes = pairs(attr, "--attr", "NAME=VALUE")
    payload = content_of(file or "-") if data is None else data.encode("utf-8", "surrogateescape")
    asked = session.call(wire.get_schema(session.project, schema))
    if asked.attributes:
        call = wire.validate_message(session.project, schema, wire.message(payload, attributes))
    elif asked.type in ("avro", "protobuf"):
        call = wire.validate_datum(session.project, schema, payload)
    else:
        call = wire.validate_document(session.project, schema, payload)
    session.call(call)
    session.confirm(f"schema {schema} allows it")


def _dry_run_text(done: wire.DryRun) -> str:
    counted = f"checked {done.checked}, would be refused: {done.refused}"
    refused = columns(("ID", "REASON"), [(each.message_id, each.reason) for each in done.reasons])
    return f"{counted}\n{refused}" if done.reasons else counted


MESSAGES = {"messages": (Annotated[int, option("How many of the newest messages.", metavar="N", min=1)], 100)}
app.sends("dry-run", wire.dry_run, _dry_run_text,
    "Show which messages of a topic a schema would have refused.", SCHEMA | TOPIC | MESSAGES)  # fmt: skip


def _parts(
    file: str | None, attributes: str | None, kind: SchemaLanguage | None
) -> tuple[dict[str, Any] | None, dict[str, Any] | None]:
    if file == attributes == "-":
        raise Usage("standard input can be one of --file and --attributes")
    if kind == "protobuf" and file is not None:
        return {DEFINITION: content_of(file).decode(errors="replace")}, _object(attributes)
    return _object(file), _object(attributes)


def _format_part(part: Mapping[str, Any]) -> str:
    return text_block(part[DEFINITION]) if DESCRIPTOR in part else document(part)


def _object(file: str | None) -> dict[str, Any] | None:
    if file is None:
        return None
    try:
        return msgspec.json.decode(content_of(file), type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        raise Usage(f"{file} is no JSON object") from None
