"""A program that reads a subscription as a stream and notes each batch in a file: `driver MASTER FOLDER`.

What it reads is named by `AMS_ENDPOINT` and `AMS_PROJECT`; the token is an option, the way that could leak most.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from ams.pipeline.java import archive_options, java
from ams.pipeline.session import JAVA_OPTIONS, SETTINGS

BATCH = "40"


def main(master: str, folder: Path) -> None:
    sizes = {"spark.driver.memory": "512m", "spark.executor.memory": "512m", JAVA_OPTIONS: archive_options(java())}
    builder = SparkSession.builder.master(master)
    for name, value in {**SETTINGS, **sizes, "spark.log.level": "INFO"}.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def note(rows: DataFrame, batch_id: int) -> None:
        offsets = sorted(row.offset for row in rows.select("offset").collect())
        (folder / f"batch-{batch_id}").write_text(",".join(map(str, offsets)))

    stream = spark.readStream.format("ams").option("subscription", "spark").option("token", os.environ["TOKEN"])
    frame = stream.option("maxOffsetsPerTrigger", BATCH).option("minPartitions", "2").load()
    frame.explain("extended")
    writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(extended=True)
    print(query.lastProgress)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
