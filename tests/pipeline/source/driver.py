"""A program that reads a subscription as a stream and notes each batch in a file: `driver MASTER FOLDER`.

What it reads is named by the environment; the token is an option, too, the way that could leak most.
"""

import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from ams.pipeline.session import local_session

BATCH = "40"


def main(master: str, folder: Path) -> None:
    settings = {"spark.master": master, "spark.executor.memory": "512m", "spark.log.level": "INFO"}
    spark = local_session("reader", memory="512m", settings=settings)

    def note(rows: DataFrame, batch_id: int) -> None:
        offsets = sorted(row.offset for row in rows.select("offset").collect())
        (folder / f"batch-{batch_id}").write_text(",".join(map(str, offsets)))

    stream = spark.readStream.format("ams").option("subscription", "spark").option("token", os.environ["AMS_TOKEN"])
    frame = stream.option("maxOffsetsPerTrigger", BATCH).option("minPartitions", "2").load()
    frame.explain("extended")
    writer = frame.writeStream.foreachBatch(note).option("checkpointLocation", str(folder / "checkpoint"))
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    query.explain(extended=True)
    print(query.lastProgress)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
