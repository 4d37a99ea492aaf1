"""The columns that expressions are tried on."""

from datetime import UTC, datetime

from pyspark.sql.types import ArrayType

from ams.pipeline.expressions.types import BIGINT, BINARY, BOOLEAN, DOUBLE, NULL, STRING, STRINGS, TIMESTAMP, struct

COLUMNS = {
    "site": STRING,
    "jobs": BIGINT,
    "wall": DOUBLE,
    "ok": BOOLEAN,
    "at": TIMESTAMP,
    "tags": ArrayType(STRING),
    "attributes": STRINGS,
    "place": struct({"lat": DOUBLE, "end": STRING}),
    "data": BINARY,
    "lowest": BIGINT,
    "nothing": NULL,
    "order": STRING,
    "timestamp": STRING,
}
AT = datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)
ROW = (
    *(" Site.A ", 7, 2.5, True, AT, ["x", "y"], {"vo": "ops"}, {"lat": 51.5, "end": "e"}, b"\xff"),
    *(-(2**63), None, "first", "noon"),
)
