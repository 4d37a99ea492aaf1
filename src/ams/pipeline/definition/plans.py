"""Turns a definition file, or a job's name, into a plan; reads the sections `source` and `sink`."""

import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from functools import partial, reduce
from itertools import chain
from typing import Any, NamedTuple

import msgspec
import yaml
from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ams.core.errors import BadDocument
from ams.core.yaml_tree import Value, bad, parse_tree, read_tree
from ams.pipeline.checkpoint import CHECKPOINT
from ams.pipeline.definition import fields
from ams.pipeline.definition.fields import NAME, ORDERING_KEY, PLACED, SOURCE, Findings
from ams.pipeline.definition.step_reader import ORDER, BatchCounts, Steps, one_of_each, through
from ams.pipeline.definition.steps import read_steps
from ams.pipeline.errors import Finding, WrongDefinition, WrongOption
from ams.pipeline.expressions import Expression, expression, types
from ams.pipeline.job_run import Handle, Run, RunPlan
from ams.pipeline.jobs import load
from ams.pipeline.jobs.base import Job, read_options, takes_text
from ams.pipeline.message_parser import parse_messages
from ams.pipeline.options import KEY_WINDOW_SECONDS
from ams.pipeline.tables import Table

_WHAT = ("topic", "topics", "subscription")
_STARTS = ("earliest", "latest")
_MAX_MESSAGES = 10**9


class StreamSource(NamedTuple):
    """Topics, or a subscription in the options of `format("ams")`."""

    topics: tuple[str, ...] = ()
    options: Mapping[str, str] = {}

    def describe(self, only: str = "") -> str:
        """Return it as text, with the options whose names begin with `only`."""
        others = dict(self.options)
        subscription = others.pop("subscription", "")
        what = f"subscription {subscription}" if subscription else f"topic {', '.join(self.topics)}"
        return " ".join([what, *(f"{name}={value}" for name, value in others.items() if name.startswith(only))])


def _read_source(value: Value, findings: Findings) -> StreamSource:
    told = findings.mapping(value, (*_WHAT, *_OPTIONS))
    chosen = [name for name in _WHAT if name in told]
    if len(chosen) != 1:
        findings.add(value, f"one of {', '.join(_WHAT)} must be said, and only one")
        return StreamSource()

    def read_names(each: Value) -> tuple[str, ...]:
        if not fields.values_of(each):
            raise bad(each.place, "at least one name is expected here")
        return tuple(findings.each(fields.values_of(each), fields.resource_name))

    said = findings.values(told, {chosen[0]: read_names, **_OPTIONS})
    names = said.pop(chosen[0], ())
    options = dict(sorted(option for each in said.values() for option in each.items()))
    if chosen[0] != "subscription":
        return StreamSource(names, options)
    if len(names) > 1:
        findings.add(told["subscription"], "only one subscription can be read")
    return StreamSource((), {**options, "subscription": "".join(names[:1])})


def _start(value: Value) -> dict[str, str]:
    text = value.text()
    if text in _STARTS:
        return {"startingOffsets": text}
    try:
        moment = datetime.fromisoformat(text)
        moment = moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        reason = f"{text[:40]!r} is neither earliest, latest nor a time such as 2024-03-05T10:00Z"
        raise bad(value.place, reason) from None
    return {"startingTimestamp": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")}


_OPTIONS: Mapping[str, Callable[[Value], dict[str, str]]] = {
    "from": _start,
    "max_messages": lambda each: {"maxOffsetsPerTrigger": str(each.number(1, _MAX_MESSAGES))},
    "partitions": lambda each: {"minPartitions": str(each.number(1, _MAX_MESSAGES))},
    "fail_on_data_loss": lambda each: {"failOnDataLoss": str(each.switch()).lower()},
}


ROWS = "rows"  # table of the rows that steps on all rows read

_TABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_PARTITIONS = (types.STRING, types.BIGINT, types.DATE, types.BOOLEAN)
_LINEAGE = ("topic", "offset")
_DATA = ("a message holds string or binary", types.STRING, types.BINARY)
_KEY = ("an ordering key is string", types.STRING, types.NULL)
_MOST_ROWS = 1000
_LONGEST_WINDOW = 10**9  # seconds

SinkFields = Mapping[str, Value]


class _Sink(NamedTuple):
    add: Callable[[Run, DataFrame, int], None]  # writes a batch, exactly once
    replace: Callable[[Run, DataFrame], None] | None  # replaces rows written before; None if they cannot be


def _read_sink(value: Value, steps: Steps, findings: Findings) -> _Sink | None:
    said = findings.mapping(value, [*_KINDS, *(name for _, names in _KINDS.values() for name in names)])
    kinds = [name for name in _KINDS if name in said]
    if len(kinds) != 1:
        findings.add(value, f"one of {', '.join(_KINDS)} must be said{', not several' if kinds else ''}")
        return None
    [kind] = kinds
    read, others = _KINDS[kind]
    for name in said:
        if name not in (kind, *others):
            findings.add(said[name], f"{name} is not of a sink {kind}")
    return findings.read(value, lambda _: read(said, steps, findings))


def _table(said: SinkFields, steps: Steps, findings: Findings) -> _Sink:
    """Rows of single messages get columns `topic` and `offset`, unless the definition has them."""
    name, columns = said["table"].text(), steps.columns
    if not NAME.fullmatch(name) or name == ROWS:
        raise bad(said["table"].place, f"a name in the folder of the run is expected, such as sites, and not {ROWS}")
    by = tuple(fields.known_columns(said.get("partition_by"), columns, findings))
    for each in by:
        if columns[each] not in _PARTITIONS:
            kind = types.type_text(columns[each])
            findings.add(said["partition_by"], f"{each} is {kind}, which would make too many folders")
    own = {each.lower() for each in columns}
    lineage = [each for each in _LINEAGE if SOURCE in columns and each not in own]
    schema = types.struct({**columns, **{each: PLACED[each] for each in lineage}})

    def place_rows(rows: DataFrame) -> DataFrame:
        placed = [F.col(SOURCE).getField(each).alias(each) for each in lineage]
        return _without_nul(rows.select("*", *placed), {each: columns[each] for each in by})  # folder names

    return _Sink(
        lambda run, rows, batch_id: run.append(run.table(name, schema, by), place_rows(rows), batch_id),
        lambda run, rows: run.result(name, schema, by).replace(place_rows(rows)),
    )


def _postgres(said: SinkFields, steps: Steps, findings: Findings) -> _Sink:
    table, place = said["postgres"].text(), said["postgres"].place
    if not _TABLE.fullmatch(table):
        database = "the database is named by AMS_PIPELINE_DATABASE, as it is secret"
        raise bad(place, f"the name of a table is expected; {database}")
    if "key" not in said:
        raise bad(place, "key must be said: the columns that are one row's alone")
    sent = {name: kind for name, kind in steps.columns.items() if name != SOURCE}
    key = fields.known_columns(said["key"], sent, findings)
    for name, kind in sent.items():
        if types.is_nested(kind):
            findings.add(said["postgres"], f"{name} is a {kind.typeName()}: select what goes into the table")

    def put(_: Run, rows: DataFrame) -> None:
        """Insert or update rows by key; others stay."""
        from ams.pipeline.postgres import address, upsert

        upsert(_without_nul(rows, sent).select(*sent), address(""), table, key)

    return _Sink(lambda run, rows, _: put(run, one_of_each(rows, key, last=True)), put)


def _topic(said: SinkFields, steps: Steps, findings: Findings) -> _Sink:
    name, place = fields.resource_name(said["topic"]), said["topic"].place
    if steps.whole:
        raise bad(place, "what deduplicate and aggregate make is made anew each time: it cannot be published")
    # The key of the message itself is a column until parse or select drops it.
    own_key = {ORDERING_KEY: types.STRING} if {"parse", "select"}.isdisjoint(steps.said) else {}
    key_columns = {**own_key, **steps.columns}
    readers: dict[str, Callable[[Value], Any]] = {
        "data": lambda each: _of_type(each, steps.columns, *_DATA),
        "attributes": lambda each: _attributes(each, steps, findings),
        ORDERING_KEY: lambda each: _of_type(each, key_columns, *_KEY),
        "create": Value.switch,
        "key_window": lambda each: each.number(1, _LONGEST_WINDOW),
    }
    read = findings.values(said, readers)
    columns = [name for name in steps.columns if name != SOURCE]
    data, key = read.get("data"), read.get(ORDERING_KEY)

    def put(run: Run, rows: DataFrame, _: int) -> None:
        """Publish a batch in the order of its messages. Raises `StaleCheckpoint` if some could be published twice."""
        from ams.pipeline.sink import publish
        from ams.pipeline.sink.writer import refuse_stale

        refuse_stale(run.work / CHECKPOINT, read.get("key_window", KEY_WINDOW_SECONDS))
        order = {f"_{each}": F.col(SOURCE).getField(each) for each in ORDER}
        texts = [(F.lit(name), each.column().cast("string")) for name, each in read.get("attributes", {}).items()]
        given = F.create_map(*chain.from_iterable(texts)).cast("map<string,string>")
        parts = {
            "data": data.column() if data else F.to_json(F.struct(*columns)),
            "attributes": F.map_filter(given, lambda _, value: value.isNotNull()),
            ORDERING_KEY: (key.column() if key else F.lit(None)).cast("string"),
        }
        options = {**run.source, "topic": name, "createTopics": str(read.get("create", False)).lower()}
        publish(rows.select(*(made.alias(each) for each, made in {**parts, **order}.items())), options, tuple(order))

    return _Sink(put, None)


def _of_type(value: Value, columns: Mapping[str, DataType], needed: str, *kinds: DataType) -> Expression:
    found = expression(value.text(), columns)
    if found.type not in kinds:
        raise bad(value.place, f"{needed}, not {_no_text(found)}")
    return found


def _attributes(value: Value, steps: Steps, findings: Findings) -> dict[str, Expression]:
    found = fields.expressions(value, lambda text: expression(text, steps.columns), findings)
    for name, made in found.items():
        if not types.fits(made.type, types.STRING):
            findings.add(value, f"attribute {name} is {_no_text(made)}")
    return found


def _console(said: SinkFields, _: Steps, __: Findings) -> _Sink:
    shown = said["console"].number(1, _MOST_ROWS)

    def show(_: Run, rows: DataFrame, __: int = 0) -> None:
        rows.drop(SOURCE).show(shown, truncate=False)

    return _Sink(show, show)


def _no_text(given: Expression) -> str:
    return f"{types.type_text(given.type)}; cast(... as string) makes text of it"


def _without_nul(rows: DataFrame, columns: Mapping[str, DataType]) -> DataFrame:
    """Replace NUL by U+FFFD in texts of these columns: folders and databases reject NUL."""
    texts = [name for name, kind in columns.items() if kind == types.STRING]
    return rows.withColumns({name: F.translate(name, "\0", "\ufffd") for name in texts}) if texts else rows


_KINDS: Mapping[str, tuple[Callable[[SinkFields, Steps, Findings], _Sink], Sequence[str]]] = {
    "table": (_table, ("partition_by",)),
    "postgres": (_postgres, ("key",)),
    "topic": (_topic, ("data", "attributes", "ordering_key", "create", "key_window")),
    "console": (_console, ()),
}


OF_JOBS = ("name", "job", "options")
OF_STEPS = ("name", "source", "steps", "sink")
_ENDINGS = (".yaml", ".yml")


def is_file(target: str) -> bool:
    """Return whether a target is a file; `-` is standard input."""
    return target == "-" or target.endswith(_ENDINGS) or "/" in target


def read_plan(target: str, settings: Sequence[str] = ()) -> RunPlan:
    """Read a file or a job; `KEY=VALUE` settings override options. Raises `WrongDefinition`, `WrongOption`."""
    if not is_file(target):
        job = load(target)
        options, wrong = read_options(job.options, _settings(job, settings))
        if options is None:
            raise WrongOption(wrong[0].option, "; ".join([wrong[0].reason, *map(str, wrong[1:])]))
        return _plan_of(job, job.name, options)
    root = read_tree(target)
    if root is None:
        raise WrongDefinition(target, [Finding(1, "it says nothing")])
    findings = Findings(root.file)
    plan = _plan(root, target, settings, findings)
    findings.end()
    assert plan is not None
    return plan


def _plan(root: Value, target: str, settings: Sequence[str], findings: Findings) -> RunPlan | None:
    stem = "stdin" if target == "-" else os.path.splitext(os.path.basename(target))[0]
    said = findings.mapping(root, dict.fromkeys((*OF_JOBS, *OF_STEPS)))
    if "job" in said:
        findings.mapping(root, OF_JOBS)
        name = _name(said, said["job"].text(), findings)
        return findings.read(said["job"], lambda _: _plan_of_file(said, settings, findings, name))
    findings.mapping(root, OF_STEPS, ("source", "sink"))
    if settings:
        findings.add(root, "--set is for options of jobs; a definition of steps has none")
    return _plan_of_steps(said, _name(said, stem, findings), os.path.dirname(target), findings)


def _plan_of_steps(said: Mapping[str, Value], name: str, folder: str, findings: Findings) -> RunPlan | None:
    source = _read_source(said["source"], findings) if "source" in said else None
    steps = read_steps(said.get("steps"), folder, findings)
    sink = _read_sink(said["sink"], steps, findings) if "sink" in said else None
    if source is None or sink is None:
        return None
    to = said["sink"].plain()
    after = {"steps": steps.lines[len(steps.lines) - len(steps.whole) :], "sink": to}
    told = ", ".join(f"{name}: {each}" for name, each in to.items())
    return RunPlan(
        name=name,
        summary=f"{source.describe()} to {next(iter(to))}",
        run=_Flow(source, steps, sink).run,
        # Other options of the source may change between runs: they do not decide which messages are read.
        rows={"source": source.describe("starting"), "steps": steps.row_lines, "files": steps.files},
        options=after | ({"expectations": steps.checks} if steps.checks else {}),
        lines=[f"{'source':11} {source.describe()}", *steps.lines, f"{'sink':11} {told}"],
    )


def _name(said: Mapping[str, Value], otherwise: str, findings: Findings) -> str:
    name = otherwise
    if "name" in said:
        with findings.catch(said["name"]):
            name = said["name"].text()
            if not NAME.fullmatch(name):
                raise bad(said["name"].place, f"{name[:64]!r} is no name: letters, digits, - and _, 64 of them at most")
    return name


def _plan_of_file(said: Mapping[str, Value], settings: Sequence[str], findings: Findings, name: str) -> RunPlan | None:
    job = load(said["job"].text())
    places = said["options"].mapping() if "options" in said else {}
    options, wrong = read_options(job.options, {**_values(places, job, findings), **_settings(job, settings)})
    for each in wrong:
        place = places.get(each.option, said.get("options", said["job"]))
        findings.add(place, f"option {each.option}: {each.reason}")
    return _plan_of(job, name, options) if options is not None else None


def _plan_of(job: Job[Any], name: str, options: msgspec.Struct) -> RunPlan:
    values: dict[str, Any] = msgspec.to_builtins(options)
    shown = {name: msgspec.json.encode(value).decode() for name, value in values.items()}
    return RunPlan(
        name=name,
        summary=job.summary,
        run=lambda run: job.run(run, options),
        rows={"job": job.name},
        options={name: value for name, value in values.items() if name not in job.harmless},
        lines=[f"job      {job.name}: {job.summary}", *(f"option   {key} = {value}" for key, value in shown.items())],
    )


def _settings(job: Job[Any], settings: Sequence[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for each in settings:
        name, equals, text = each.partition("=")
        if not equals:
            raise WrongOption("--set", f"{each!r} must look like KEY=VALUE")
        try:
            if takes_text(job.options, name):
                found[name] = text
            else:
                tree = parse_tree(text, f"--set {name}")
                found[name] = tree.plain() if tree else None
        except BadDocument as error:
            raise WrongOption(name, error.reason) from None
    return found


def _values(said: Mapping[str, Value], job: Job[Any], findings: Findings) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in said.items():
        with findings.catch(value):
            is_scalar = isinstance(value.node, yaml.ScalarNode) and not value.is_null
            found[name] = value.text() if is_scalar and takes_text(job.options, name) else value.plain()
    return found


class _Flow(NamedTuple):
    """A definition, ready to run. Steps on all rows keep the rows in a table; the sink gets their result."""

    source: StreamSource
    steps: Steps
    sink: _Sink

    def run(self, run: Run) -> None:
        messages = run.topic(*self.source.topics, **self.source.options)
        take: Handle = partial(self.sink.add, run)
        refresh: Callable[[], None] | None = None
        if self.steps.whole:
            table = run.table(ROWS, types.struct(self.steps.row_columns))
            take, refresh = partial(run.append, table), partial(self._result, run, table)
        run.stream(messages, lambda batch, number: self._batch(run, batch, number, take), refresh)

    def _batch(self, run: Run, batch: DataFrame, number: int, take: Handle) -> None:
        steps = self.steps
        with ExitStack() as stack:
            watch = BatchCounts(f"batch {number}", run.say, stack)
            rows = through(steps.before, batch.withColumn(SOURCE, F.struct(*PLACED)), watch)
            if steps.parse is not None:
                read = parse_messages(rows, steps.parse, types.struct(steps.parsed), StorageLevel.DISK_ONLY)
                rows, broken = stack.enter_context(read)
                watch.aside.append(broken)
            rows = through(steps.rows, rows, watch)
            if watch.aside:
                run.quarantine(reduce(DataFrame.union, watch.aside), number)
            take(rows, number)
            run.expect(watch.counts, number)

    def _result(self, run: Run, table: Table) -> None:
        assert self.sink.replace is not None, "definitions with other sinks are refused"
        with ExitStack() as stack:
            watch = BatchCounts("the result", run.say, stack)
            self.sink.replace(run, through(self.steps.whole, table.read(), watch))
            run.expect(watch.counts)
