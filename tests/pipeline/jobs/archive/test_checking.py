from pyspark.sql import SparkSession

from ams.pipeline.jobs.archive.checking import steps, told


def test_gaps_and_doubles_are_told(spark: SparkSession) -> None:
    offsets = [("meadow", "plants", number) for number in (0, 1, 3, 4, 4, 9)] + [("meadow", "stones", 5)]
    rows = steps(spark.createDataFrame(offsets, "project string, topic string, offset long")).collect()

    assert sorted(told((row.project, row.topic, row.previous, row.offset)) for row in rows) == [
        "meadow/plants: offset 2 is missing",
        "meadow/plants: offset 4 is there twice",
        "meadow/plants: offsets 5 to 8 are missing",
    ]
