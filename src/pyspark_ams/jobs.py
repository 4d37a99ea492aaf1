"""Parts of jobs: `from pyspark_ams.jobs import Json, Run, job` (docs/reference/pipeline.md)."""

from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import Broken
from ams.pipeline.expectations import Expectation
from ams.pipeline.jobs.base import first_published, job, last_published
from ams.pipeline.payloads import Avro, Json, Protobuf, Text
from ams.pipeline.run import Run
from ams.pipeline.sink import publish
from ams.pipeline.tables import Table, rows_of

__all__ = [
    "MESSAGES", "Avro", "Broken", "Expectation", "Json", "Protobuf", "Run", "Table", "Text", "first_published", "job",
    "last_published", "publish", "rows_of",
]  # fmt: skip
