"""The job `schema-check`: which archived messages a schema would have refused, with the service's own errors.

Long checks run in a worker process with limited time and memory, as in the service, so that the verdict is the same.
"""

import asyncio
import base64
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType
from pyspark.storagelevel import StorageLevel

from ams.client import wire
from ams.core.errors import InvalidInput, Overloaded
from ams.core.messages import message
from ams.pipeline.columns import PLACE
from ams.pipeline.errors import Broken, CheckFailed, WrongOption
from ams.pipeline.jobs.archive import Selection, read_archive
from ams.pipeline.jobs.base import Job, columns
from ams.pipeline.jobs.fields import in_utf8
from ams.pipeline.protobuf import compile_definition
from ams.pipeline.report.page import table
from ams.pipeline.run import Run
from ams.pipeline.service_calls import Service, open_service
from ams.pipeline.session import persist_rows
from ams.validation.compiled import PROTOBUF, compile_stored
from ams.validation.cost import INLINE_UNITS, Budget, OverBudget
from ams.validation.long_checks import MESSAGE, LongChecks, Piece, Task
from ams.validation.protobuf import with_descriptor
from ams.workers.pool import Pool

CHECKED = columns(StructType(PLACE.fields[:3]), ("string", "reason"))


class SchemaCheckOptions(Selection, frozen=True, kw_only=True):
    """Options of `schema-check`."""

    archive: str
    """The folder of the archive."""
    schema: str = ""
    """A schema of the project, by its name."""
    file: str = ""
    """Or a file that says what payloads must be, as `ams schemas create --file` takes it."""
    attributes_file: str = ""
    """Or a file that says what attributes must be."""
    type: Literal["json", "avro", "protobuf"] = "json"
    """Format of payloads that are checked against a file: `json`, `avro` or `protobuf`."""
    most: Annotated[int, msgspec.Meta(ge=0)] = 20
    """How many of the messages that would be refused are told."""

    def __post_init__(self) -> None:
        Selection.__post_init__(self)
        if bool(self.schema) == bool(self.file or self.attributes_file):
            raise WrongOption("schema", "give a schema by its name, or files, one of the two")


class SchemaParts(msgspec.Struct, frozen=True):
    """A schema as the service stores it: parts as JSON text, None where there is none."""

    type: str
    payload: str | None
    attributes: str | None


def run(run: Run, options: SchemaCheckOptions) -> None:
    """Print refused messages: a count per topic, and the first ones. Raises `CheckFailed` if there are any."""
    if options.schema:
        with open_service(run.source) as (service, project):
            if not project:
                raise WrongOption("schema", "is one of a project, and none is named")
            rules = rules_named(service, project, options.schema)
    else:
        rules = of_files(options.type, options.file, options.attributes_file)
    verdicts = _check_messages(read_archive(run.spark, options.archive, options), rules)
    with persist_rows(verdicts, StorageLevel.DISK_ONLY) as found:
        topic = F.concat_ws("/", "project", "topic").alias("topic")
        sums = F.count("*").alias("checked"), F.count("reason").alias("refused")
        counts = found.groupBy(topic).agg(*sums).orderBy("topic").collect()
        refused = found.where("reason IS NOT NULL").orderBy(*CHECKED.names[:3]).limit(options.most).collect()
    messages, total = (sum(row[name] for row in counts) for name in ("checked", "refused"))
    run.count(messages)
    print(table(("TOPIC", "CHECKED", "REFUSED"), [tuple(row) for row in counts]), flush=True)
    for row in refused:
        print(f"{row.project}/{row.topic} {row.offset}: {row.reason}", flush=True)
    if total:
        raise CheckFailed(f"{total} of {messages} messages would be refused")


def _check_messages(messages: DataFrame, rules: SchemaParts) -> DataFrame:
    def check(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with Verdicts(rules) as verdicts:
            for batch in batches:
                told = (batch.column(name).to_pylist() for name in ("offset", "data", "attributes"))
                reasons = [verdicts.refusal(at, data, dict(named)) for at, data, named in zip(*told, strict=True)]
                places = {name: batch.column(name) for name in CHECKED.names[:3]}
                yield pa.RecordBatch.from_pydict({**places, "reason": pa.array(reasons, pa.string())})

    return messages.select("project", "topic", "offset", "attributes", "data").mapInArrow(check, CHECKED)


def of_files(kind: str, payload: str, attributes: str) -> SchemaParts:
    """Read a schema from the files that `ams schemas create` would take; raise `WrongOption`."""
    try:
        read = _compile_file if kind == PROTOBUF else _read_json_schema
        own = read("file", payload) if payload else None
        rules = SchemaParts(kind, own, _read_json_schema("attributes_file", attributes) if attributes else None)
        compile_stored(rules.type, rules.payload, rules.attributes)
    except InvalidInput as error:
        raise WrongOption("file" if payload else "attributes_file", error.message) from None
    return rules


def rules_named(service: Service, project: str, name: str) -> SchemaParts:
    """Ask for a schema; raise a `ClientError`."""
    found = service.call(wire.get_schema(project, name))
    return SchemaParts(found.type, _text(found.schema), _text(found.attributes))


def _read_json_schema(option: str, path: str) -> str | None:
    try:
        return _text(msgspec.json.decode(_content(option, path), type=dict[str, Any]))
    except (msgspec.MsgspecError, Broken) as error:
        raise WrongOption(option, f"{path} is no JSON object: {error}") from None


def _compile_file(option: str, path: str) -> str:
    definition = _content(option, path).decode(errors="replace")
    return with_descriptor(definition, compile_definition(definition))


def _content(option: str, path: str) -> bytes:
    try:
        return in_utf8(Path(path).read_bytes())
    except OSError as error:
        raise WrongOption(option, f"{path}: {error.strerror}") from None


def _text(part: dict[str, Any]) -> str | None:
    return msgspec.json.encode(part).decode() if part else None


class Verdicts(AbstractContextManager["Verdicts"]):
    """A schema, compiled once for many messages; for one thread."""

    def __init__(self, rules: SchemaParts) -> None:
        self._rules = rules
        self._compiled = compile_stored(rules.type, rules.payload, rules.attributes)
        self._runner = asyncio.Runner()
        self._pool = Pool(1)

    def __exit__(self, *_: object) -> None:
        self._runner.run(self._pool.close())
        self._runner.close()

    def refusal(self, offset: int, data: bytes, attributes: Mapping[str, str]) -> str | None:
        """Return why a message would be refused, or None. Never quotes its content."""
        budget = Budget(INLINE_UNITS)
        try:
            self._compiled.check(offset, data, budget)
            if self._compiled.attributes is not None:
                self._compiled.attributes.check(offset, attributes, budget)
        except InvalidInput as error:
            return error.message
        except OverBudget:
            fragment = message(base64.b64encode(data).decode("ascii"), attributes, plain=True).fragment
            pieces = [Piece(offset, MESSAGE, fragment)]
            task = Task(self._rules.type, self._rules.payload, self._rules.attributes, pieces, all=False)
            try:
                refused = self._runner.run(LongChecks(self._pool).check(None, task))
            except InvalidInput as error:
                return error.message
            except Overloaded as error:
                raise RuntimeError(f"message {offset} could not be checked: {error.message}") from error
            return refused[0].text if refused else None
        return None


SUMMARY = "Which archived messages a schema would have refused"
JOB = Job("schema-check", SUMMARY, SchemaCheckOptions, run, harmless=frozenset(SchemaCheckOptions.__struct_fields__))
