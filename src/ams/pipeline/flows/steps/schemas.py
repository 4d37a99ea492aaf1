"""The columns that every row of a definition has."""

from collections.abc import Mapping

from pyspark.sql.types import DataType

from ams.pipeline.columns import PLACE
from ams.pipeline.expressions.types import BINARY, STRINGS, struct

SOURCE, ATTRIBUTES = "source", "attributes"
"""Columns every row has besides those of its record: where its message stands, and the attributes of that."""
ORDERING_KEY = "ordering_key"
"""A column of messages as they come, for ordering keys alone: it is in no table that a definition makes of them."""

_PLACE = {field.name: field.dataType for field in PLACE.fields}
PLACE_TYPE = struct(_PLACE)
"""Of the column `source`."""
MESSAGE_TYPES: Mapping[str, DataType] = {**_PLACE, ATTRIBUTES: STRINGS, "data": BINARY, SOURCE: PLACE_TYPE}
"""The columns a definition begins with."""
