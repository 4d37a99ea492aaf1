"""The steps a definition can be made of: what each does to a DataFrame."""

from typing import Protocol

from pyspark.sql import DataFrame

from ams.pipeline.flows.steps.rows import Derive, Explode, Filter, Join, Select
from ams.pipeline.flows.steps.whole import Aggregate, Deduplicate

__all__ = ["Aggregate", "Deduplicate", "Derive", "Explode", "Filter", "Join", "Select", "Step"]


class Step(Protocol):
    """Something that is done to rows."""

    def apply(self, rows: DataFrame) -> DataFrame:
        """Return the rows after it."""
