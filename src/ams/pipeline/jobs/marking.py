"""Attributes that tell where a message was before."""

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F


def marked(marks: Mapping[str, Column]) -> Column:
    """Return the attributes of a message with these among them; those of the same names are replaced."""
    kept = F.map_filter("attributes", lambda name, _: ~name.isin(*marks))
    pairs = [each for name, value in marks.items() for each in (F.lit(name), value)]
    return F.map_concat(kept, F.create_map(*pairs))
