"""Says, as JSON by folders of executors, where tasks have `ams` from: `where MASTER`."""

import json
import sys
from collections.abc import Iterator

import pyarrow as pa

from ams.pipeline.session import local_session


def main(master: str) -> None:
    small = {"spark.executor.memory": "512m", "spark.executor.cores": "1", "spark.master": master}
    spark = local_session("where", memory="512m", settings=small)

    def look(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os

        import ams

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"folder": [os.getcwd()], "place": [os.path.dirname(ams.__file__)]})

    rows = spark.range(8, numPartitions=4).mapInArrow(look, "folder string, place string").collect()
    print(json.dumps({row["folder"]: row["place"] for row in rows}))
    spark.stop()


if __name__ == "__main__":
    main(sys.argv[1])
