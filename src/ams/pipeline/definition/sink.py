"""Where a definition's rows go."""

import re
from collections.abc import Mapping, Sequence

from pyspark.sql.types import DataType

from ams.core.names import is_name
from ams.core.yaml_tree import Value, bad
from ams.pipeline.definition.fields import expressions, known_columns
from ams.pipeline.definition.findings import Findings
from ams.pipeline.definition.reading import Steps
from ams.pipeline.expressions import Expression, expression, types
from ams.pipeline.flows.sinks import ROWS, Console, Kept, Postgres, Sink, Topic
from ams.pipeline.flows.steps.schemas import SOURCE

KINDS: Mapping[str, Sequence[str]] = {
    "table": ("partition_by",),
    "postgres": ("key",),
    "topic": ("data", "attributes", "ordering_key", "create", "key_window"),
    "console": (),
}
"""Each kind of sink, and what else can be said of it."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}", re.ASCII)
_TABLE = re.compile(r"([A-Za-z_][A-Za-z0-9_]{0,62}\.)?[A-Za-z_][A-Za-z0-9_]{0,62}", re.ASCII)
_PARTITIONS = (types.STRING, types.BIGINT, types.DATE, types.BOOLEAN)
_MOST_ROWS = 1000
_LONGEST_WINDOW = 10**9
"""Seconds."""


def read_sink(value: Value, steps: Steps, findings: Findings) -> Sink | None:
    """Read the section `sink`; None when something is wrong with it."""
    allowed = [*KINDS, *(name for names in KINDS.values() for name in names)]
    said = findings.mapping(value, allowed)
    kinds = [name for name in KINDS if name in said]
    if len(kinds) != 1:
        findings.add(value, f"one of {', '.join(KINDS)} must be said{', not several' if kinds else ''}")
        return None
    [kind] = kinds
    for name in said:
        if name != kind and name not in KINDS[kind]:
            findings.add(said[name], f"{name} is not of a sink {kind}")
    made: Sink | None = None
    with findings.catch(value):
        made = _READ[kind](said, steps, findings)
    return made  # noqa: RET504  # what is caught is remembered, and ends here too


def _table(said: Mapping[str, Value], steps: Steps, findings: Findings) -> Sink:
    name = said["table"].text()
    if not _NAME.fullmatch(name) or name == ROWS:
        raise bad(said["table"].place, f"a name in the folder of the run is expected, such as sites, and not {ROWS}")
    by = known_columns(said["partition_by"], steps.columns, findings) if "partition_by" in said else []
    for each in by:
        if steps.columns[each] not in _PARTITIONS:
            findings.add(
                said["partition_by"], f"{each} is {types.shown(steps.columns[each])}, which would make too many folders"
            )
    return Kept(name, dict(steps.columns), by)


def _postgres(said: Mapping[str, Value], steps: Steps, findings: Findings) -> Sink:
    table = said["postgres"].text()
    if not _TABLE.fullmatch(table):
        raise bad(
            said["postgres"].place,
            "the name of a table is expected; the database is named by AMS_PIPELINE_DATABASE, as it is secret",
        )
    if "key" not in said:
        raise bad(said["postgres"].place, "key must be said: the columns that are one row's alone")
    key = known_columns(said["key"], _flat(steps.columns), findings)
    for name, kind in _flat(steps.columns).items():
        if types.is_nested(kind):
            findings.add(said["postgres"], f"{name} is a {kind.typeName()}: select what goes into the table")
    return Postgres(table, key, dict(steps.columns))


def _topic(said: Mapping[str, Value], steps: Steps, findings: Findings) -> Sink:
    name = said["topic"].text()
    if not is_name(name):
        raise bad(said["topic"].place, f"{name[:64]!r} is no name: letters, digits, - and _")
    if steps.whole:
        raise bad(
            said["topic"].place, "what deduplicate and aggregate make is made anew each time: it cannot be published"
        )
    data = None
    if "data" in said:
        with findings.catch(said["data"]):
            data = expression(said["data"].text(), steps.columns)
            if data.type not in (types.STRING, types.BINARY):
                raise bad(said["data"].place, f"a message holds string or binary, not {types.shown(data.type)}")
    attributes = expressions(said["attributes"], steps.columns, findings) if "attributes" in said else {}
    for each, made in attributes.items():
        if not types.fits(made.type, types.STRING):
            findings.add(said["attributes"], f"attribute {each} is {_no_text(made)}")
    key = None
    if "ordering_key" in said:
        with findings.catch(said["ordering_key"]):
            key = expression(said["ordering_key"].text(), steps.key_columns)
            if not types.fits(key.type, types.STRING):
                raise bad(said["ordering_key"].place, f"an ordering key is string, not {_no_text(key)}")
    create = said["create"].switch() if "create" in said else False
    window = said["key_window"].number(1, _LONGEST_WINDOW) if "key_window" in said else None
    return Topic(name, dict(steps.columns), data, attributes, key, create, window)


def _console(said: Mapping[str, Value], _steps: Steps, _findings: Findings) -> Sink:
    return Console(said["console"].number(1, _MOST_ROWS))


def _no_text(given: Expression) -> str:
    return f"{types.shown(given.type)}; cast(... as string) makes text of it"


def _flat(columns: Mapping[str, DataType]) -> dict[str, DataType]:
    return {name: kind for name, kind in columns.items() if name != SOURCE}


_READ = {"table": _table, "postgres": _postgres, "topic": _topic, "console": _console}
