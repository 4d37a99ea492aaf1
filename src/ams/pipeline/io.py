"""Topics as DataFrames with the columns `columns.MESSAGES`: from AMS, or from the Kafka that AMS keeps them on.

    read_topic(spark, "garden/plants", endpoint="https://ams.example", tokenFile="reader.token")
    read_topic(spark, "garden/plants", kafka=Kafka(servers="broker.example:9092"))

Options are those of `format("ams")`; of them `startingOffsets` and `endingOffsets` (`earliest` and `latest`),
`startingTimestamp`, `maxOffsetsPerTrigger`, `minPartitions` and `failOnDataLoss` mean the same with Kafka.
"""

from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.errors import WrongOption
from ams.pipeline.kafka import Kafka, load
from ams.pipeline.options import names
from ams.pipeline.session import activated

FILTERS = "spark.sql.python.filterPushdown.enabled"
_OF_KAFKA = {
    name.lower(): name
    for name in (
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "maxOffsetsPerTrigger",
        "minPartitions",
        "failOnDataLoss",
    )
}


def read_topic(spark: SparkSession, topic: str, *, kafka: Kafka | None = None, **options: str) -> DataFrame:
    """Return the messages of a topic (`PROJECT/TOPIC`, or `TOPIC` with the option `project`) as they are now."""
    if kafka is not None:
        [name] = names("topic", topic, options.pop("project", None))
        return load(spark.read.options(**_for_kafka(options)), kafka, name)
    filters = {"pushFilters": str(spark.conf.get(FILTERS))}
    return activated(spark).read.format("ams").options(**{**filters, **options}, topic=topic).load()


def stream_topic(spark: SparkSession, topic: str, *, kafka: Kafka | None = None, **options: str) -> DataFrame:
    """Return the messages of a topic as a stream, from its end on unless `startingOffsets` says otherwise."""
    if kafka is not None:
        [name] = names("topic", topic, options.pop("project", None))
        return load(spark.readStream.options(**_for_kafka(options)), kafka, name)
    return activated(spark).readStream.format("ams").options(**options, topic=topic).load()


def _for_kafka(options: dict[str, str]) -> dict[str, str]:
    for option, value in options.items():
        if option.lower() not in _OF_KAFKA:
            raise WrongOption(option, "means nothing to Kafka")
        if option.lower().endswith("offsets") and value not in ("earliest", "latest"):
            raise WrongOption(option, "with Kafka is earliest or latest")
    return options
