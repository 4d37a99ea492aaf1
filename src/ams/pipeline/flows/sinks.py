"""Where a definition's rows go, and how often each may come."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from ams.pipeline.checkpoint import CHECKPOINT
from ams.pipeline.columns import PLACE
from ams.pipeline.expressions import Expression
from ams.pipeline.expressions.types import STRING, struct
from ams.pipeline.flows.steps.schemas import ORDERING_KEY, SOURCE
from ams.pipeline.flows.steps.whole import Deduplicate
from ams.pipeline.running import Run

Types = Mapping[str, DataType]
"""The columns of the rows."""

_LINEAGE = ("topic", "offset")

ROWS = "rows"
"""The table that keeps the rows which steps on all of them are computed from."""


class Sink(Protocol):
    """Takes rows."""

    def add(self, run: Run, rows: DataFrame, batch_id: int) -> None:
        """Take the rows of a batch, exactly once."""

    def replace(self, run: Run, rows: DataFrame) -> None:
        """Take all rows there are, in the place of those it took before."""


@dataclass(frozen=True, slots=True)
class Kept:
    """A Delta table in the folder of the run: rows are added by batches, or all of it is replaced.

    Rows of single messages say from which: in `topic` and `offset`, unless the definition has columns of these names.
    """

    name: str
    columns: Types
    partition_by: Sequence[str] = ()

    def add(self, run: Run, rows: DataFrame, batch_id: int) -> None:
        """Add the rows of a batch."""
        table = run.table(self.name, struct({**self.columns, **self._lineage()}), tuple(self.partition_by))
        run.append(table, self._made(rows), batch_id)

    def replace(self, run: Run, rows: DataFrame) -> None:
        """Replace the partitions that have rows."""
        result = run.result(self.name, struct({**self.columns, **self._lineage()}), tuple(self.partition_by))
        result.replace(self._made(rows))

    def _made(self, rows: DataFrame) -> DataFrame:
        named_by = {name: self.columns[name] for name in self.partition_by}  # their values become names of folders
        placed = {name: F.col(SOURCE).getField(name) for name in self._lineage()}
        return _without_nul(rows.withColumns(placed) if placed else rows, named_by)

    def _lineage(self) -> Types:
        own = {name.lower() for name in self.columns}
        return {name: PLACE[name].dataType for name in _LINEAGE if SOURCE in own and name not in own}


@dataclass(frozen=True, slots=True)
class Postgres:
    """A table of a database that `AMS_PIPELINE_DATABASE` names: one row for each key, the newest."""

    table: str
    key: Sequence[str]
    columns: Types

    def add(self, run: Run, rows: DataFrame, batch_id: int) -> None:
        """Put the last row of each key of a batch in the place of the one before."""
        self.replace(run, Deduplicate(self.key, last=True).apply(rows))

    def replace(self, run: Run, rows: DataFrame) -> None:
        """Put the rows in the place of those with the same keys; what has no counterpart stays."""
        from ams.pipeline.postgres import address, upsert

        sent = {name: kind for name, kind in self.columns.items() if name != SOURCE}
        upsert(_without_nul(rows, sent).select(*sent), address(""), self.table, self.key)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic of the project: each row is published as a message, exactly once."""

    name: str
    columns: Types
    data: Expression | None = None
    """What the message holds; None for all columns as JSON."""
    attributes: Mapping[str, Expression] = field(default_factory=dict)
    ordering_key: Expression | None = None
    """None for messages without one; also what is null or empty is none."""
    create: bool = False
    key_window: int | None = None
    """Seconds the service knows idempotency keys, where it is said."""

    def add(self, run: Run, rows: DataFrame, batch_id: int) -> None:
        """Publish the rows of a batch, in the order of the messages they come from.

        Raises `StaleCheckpoint` for one that was begun so long ago that some of it could be published twice.
        """
        from ams.pipeline.sink import KEY_WINDOW_SECONDS, publish, refuse_stale

        refuse_stale(run.work / CHECKPOINT, self.key_window or KEY_WINDOW_SECONDS)
        order = {f"_{name}": F.col(SOURCE).getField(name) for name in ("publish_time", "project", "topic", "offset")}
        placed = [value.alias(name) for name, value in order.items()]
        parts = {"data": self._data(), "attributes": self._attributes(), ORDERING_KEY: self._ordering_key()}
        made = rows.select(*(value.alias(name) for name, value in parts.items()), *placed)
        options = {**run.source, "topic": self.name, "createTopics": str(self.create).lower()}
        publish(made, options, tuple(order))

    def replace(self, run: Run, rows: DataFrame) -> None:
        """Never: what was published cannot be taken back. Definitions that would are refused."""
        raise NotImplementedError

    def _data(self) -> Column:
        if self.data is not None:
            return self.data.column()
        return F.to_json(F.struct(*(name for name in self.columns if name != SOURCE)))

    def _ordering_key(self) -> Column:
        key = self.ordering_key
        found = F.lit(None) if key is None else key.column()
        return found.cast("string")

    def _attributes(self) -> Column:
        """Return a map of those that are not null."""
        pairs = [(F.lit(name), each.column()) for name, each in self.attributes.items()]
        found = F.array(*(F.struct(name.alias("name"), value.cast("string").alias("value")) for name, value in pairs))
        return F.map_from_entries(F.filter(found, lambda each: each["value"].isNotNull())) if pairs else _nothing()


@dataclass(frozen=True, slots=True)
class Console:
    """Standard output, for a look at a few rows."""

    rows: int

    def add(self, run: Run, rows: DataFrame, batch_id: int) -> None:
        """Show the first rows of a batch."""
        rows.drop(SOURCE).show(self.rows, truncate=False)

    def replace(self, run: Run, rows: DataFrame) -> None:
        """Show the first rows of all."""
        rows.drop(SOURCE).show(self.rows, truncate=False)


def _without_nul(rows: DataFrame, columns: Types) -> DataFrame:
    """Return rows whose texts in these columns have U+FFFD for each NUL, which no folder or database takes."""
    texts = [name for name, kind in columns.items() if kind == STRING]
    return rows.withColumns({name: F.translate(name, "\0", "\ufffd") for name in texts}) if texts else rows


def _nothing() -> Column:
    return F.from_json(F.lit("{}"), "map<string,string>")
