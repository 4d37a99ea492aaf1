"""The columns of a message as Spark has them, wherever it is read from: AMS, Kafka, or an archive."""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ams.pipeline.messages import MESSAGE

MESSAGES: StructType = from_arrow_schema(MESSAGE)

PLACE = StructType(MESSAGES.fields[:5])
"""Where a message stands: the first columns of `MESSAGES`, and the struct `source` of what was read out of one."""

CONTENT = StructType(MESSAGES.fields[:7])

BROKEN = StructType([*CONTENT.fields, StructField("reason", StringType(), nullable=False)])
