"""Columns of a message in Spark, the same for AMS, Kafka and archives."""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StringType, StructField, StructType

from ams.pipeline.messages import MESSAGE

MESSAGES: StructType = from_arrow_schema(MESSAGE)

PLACE = StructType(MESSAGES.fields[:5])  # position of a message

SOURCE = "source"  # the struct `PLACE` in a parsed record

ORDER = ("publish_time", "project", "topic", "offset")  # columns that order messages

CONTENT = StructType(MESSAGES.fields[:7])

BROKEN = StructType([*CONTENT.fields, StructField("reason", StringType(), nullable=False)])
