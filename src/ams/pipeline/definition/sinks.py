"""The section `sink` of a definition: where rows go."""

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ams.core.yaml_tree import Value, bad
from ams.pipeline.checkpoint import CHECKPOINT
from ams.pipeline.definition.fields import (
    NAME,
    ORDERING_KEY,
    PLACED,
    SOURCE,
    Findings,
    expressions,
    known_columns,
    resource_name,
)
from ams.pipeline.definition.step_reader import ORDER, Steps, one_of_each
from ams.pipeline.expressions import Expression, expression, types
from ams.pipeline.job_run import Run
from ams.pipeline.options import KEY_WINDOW_SECONDS

ROWS = "rows"  # table of the rows that steps on all rows read

_TABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_PARTITIONS = (types.STRING, types.BIGINT, types.DATE, types.BOOLEAN)
_LINEAGE = ("topic", "offset")
_DATA = ("a message holds string or binary", types.STRING, types.BINARY)
_KEY = ("an ordering key is string", types.STRING, types.NULL)
_MOST_ROWS = 1000
_LONGEST_WINDOW = 10**9  # seconds

SinkFields = Mapping[str, Value]


class Sink(NamedTuple):
    """Writes rows."""

    add: Callable[[Run, DataFrame, int], None]  # writes a batch, exactly once
    replace: Callable[[Run, DataFrame], None] | None
    """Replaces all rows written before; None if they cannot be replaced."""


def read_sink(value: Value, steps: Steps, findings: Findings) -> Sink | None:
    """Read the section `sink`; None if it is invalid."""
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


def _table(said: SinkFields, steps: Steps, findings: Findings) -> Sink:
    """Rows of single messages get columns `topic` and `offset`, unless the definition has them."""
    name, columns = said["table"].text(), steps.columns
    if not NAME.fullmatch(name) or name == ROWS:
        raise bad(said["table"].place, f"a name in the folder of the run is expected, such as sites, and not {ROWS}")
    by = tuple(known_columns(said.get("partition_by"), columns, findings))
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

    return Sink(
        lambda run, rows, batch_id: run.append(run.table(name, schema, by), place_rows(rows), batch_id),
        lambda run, rows: run.result(name, schema, by).replace(place_rows(rows)),
    )


def _postgres(said: SinkFields, steps: Steps, findings: Findings) -> Sink:
    table, place = said["postgres"].text(), said["postgres"].place
    if not _TABLE.fullmatch(table):
        database = "the database is named by AMS_PIPELINE_DATABASE, as it is secret"
        raise bad(place, f"the name of a table is expected; {database}")
    if "key" not in said:
        raise bad(place, "key must be said: the columns that are one row's alone")
    sent = {name: kind for name, kind in steps.columns.items() if name != SOURCE}
    key = known_columns(said["key"], sent, findings)
    for name, kind in sent.items():
        if types.is_nested(kind):
            findings.add(said["postgres"], f"{name} is a {kind.typeName()}: select what goes into the table")

    def put(_: Run, rows: DataFrame) -> None:
        """Insert or update rows by key; others stay."""
        from ams.pipeline.postgres import address, upsert

        upsert(_without_nul(rows, sent).select(*sent), address(""), table, key)

    return Sink(lambda run, rows, _: put(run, one_of_each(rows, key, last=True)), put)


def _topic(said: SinkFields, steps: Steps, findings: Findings) -> Sink:
    name, place = resource_name(said["topic"]), said["topic"].place
    if steps.whole:
        raise bad(place, "what deduplicate and aggregate make is made anew each time: it cannot be published")
    readers: dict[str, Callable[[Value], Any]] = {
        "data": lambda each: _of_type(each, steps.columns, *_DATA),
        "attributes": lambda each: _attributes(each, steps, findings),
        ORDERING_KEY: lambda each: _of_type(each, steps.key_columns, *_KEY),
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

    return Sink(put, None)


def _of_type(value: Value, columns: Mapping[str, DataType], needed: str, *kinds: DataType) -> Expression:
    found = expression(value.text(), columns)
    if found.type not in kinds:
        raise bad(value.place, f"{needed}, not {_no_text(found)}")
    return found


def _attributes(value: Value, steps: Steps, findings: Findings) -> dict[str, Expression]:
    found = expressions(value, lambda text: expression(text, steps.columns), findings)
    for name, made in found.items():
        if not types.fits(made.type, types.STRING):
            findings.add(value, f"attribute {name} is {_no_text(made)}")
    return found


def _console(said: SinkFields, _: Steps, __: Findings) -> Sink:
    shown = said["console"].number(1, _MOST_ROWS)

    def show(_: Run, rows: DataFrame, __: int = 0) -> None:
        rows.drop(SOURCE).show(shown, truncate=False)

    return Sink(show, show)


def _no_text(given: Expression) -> str:
    return f"{types.type_text(given.type)}; cast(... as string) makes text of it"


def _without_nul(rows: DataFrame, columns: Mapping[str, DataType]) -> DataFrame:
    """Replace NUL by U+FFFD in texts of these columns: folders and databases reject NUL."""
    texts = [name for name, kind in columns.items() if kind == types.STRING]
    return rows.withColumns({name: F.translate(name, "\0", "\ufffd") for name in texts}) if texts else rows


_KINDS: Mapping[str, tuple[Callable[[SinkFields, Steps, Findings], Sink], Sequence[str]]] = {
    "table": (_table, ("partition_by",)),
    "postgres": (_postgres, ("key",)),
    "topic": (_topic, ("data", "attributes", "ordering_key", "create", "key_window")),
    "console": (_console, ()),
}
