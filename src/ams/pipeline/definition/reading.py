"""The steps of a definition while they are read, each with the columns that are there before it."""

import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from ams.core.yaml_tree import Value, read_capped
from ams.pipeline.definition.expectations import Watch
from ams.pipeline.definition.fields import MESSAGE_TYPES, ORDERING_KEY
from ams.pipeline.expressions import types
from ams.pipeline.parsing import Parse

Step = Callable[[DataFrame, Watch], DataFrame]
"""Something that is done to rows."""


@dataclass(slots=True)
class Steps:
    """Steps in their order, and the columns behind the last of them."""

    folder: str
    """Where the definition is: files it names are relative to it."""
    before: list[Step] = field(default_factory=list)
    """On messages, before they are parsed."""
    parse: Parse | None = None
    parsed: Mapping[str, DataType] = field(default_factory=dict)
    """The columns a parse makes, `attributes` among them, `source` not."""
    rows: list[Step] = field(default_factory=list)
    """On each row by itself."""
    whole: list[Step] = field(default_factory=list)
    """On all rows there are, computed anew whenever there are more: so it does not matter when a row came."""
    columns: dict[str, DataType] = field(default_factory=lambda: dict(MESSAGE_TYPES))
    """At the point that was read up to."""
    row_columns: dict[str, DataType] = field(default_factory=dict)
    """Of the rows that are kept, before the steps on all of them."""
    lines: list[str] = field(default_factory=list)
    """What each does, for people."""
    row_lines: list[str] = field(default_factory=list)
    """What those do that decide which rows there are before the steps on all of them."""
    checks: list[str] = field(default_factory=list)
    """Expectations that rows are only counted by, or that end the run."""
    expected: set[str] = field(default_factory=set)
    """The names of expectations."""
    said: list[str] = field(default_factory=list)
    """The names of the steps."""
    files: dict[str, str] = field(default_factory=dict)
    """Files they name, with hashes of what these hold."""

    @property
    def key_columns(self) -> Mapping[str, DataType]:
        """The columns that ordering keys can be made of: that of the message too, until parse or select leaves it."""
        is_there = {"parse", "select"}.isdisjoint(self.said)
        return {ORDERING_KEY: types.STRING, **self.columns} if is_there else self.columns

    def file(self, value: Value) -> bytes:
        """Return what a file holds that the definition names; raise `BadDocument` if it cannot be read."""
        content = read_capped(os.path.join(self.folder, value.text()))
        self.files[value.text()] = hashlib.sha256(content).hexdigest()
        return content

    def add(self, step: Step) -> None:
        """Append a step on rows, which is one on all rows behind another of these."""
        (self.whole if self.whole else self.rows).append(step)

    def add_whole(self, step: Step) -> None:
        """Append a step on all rows."""
        if not self.whole:
            self.row_columns = dict(self.columns)
        self.whole.append(step)


def through(steps: Sequence[Step], rows: DataFrame, watch: Watch) -> DataFrame:
    """Return rows after steps."""
    for step in steps:
        rows = step(rows, watch)
    return rows
