"""The job over made-up days against an oracle that looks at every second, whatever order the messages come in."""

from datetime import date
from pathlib import Path
from random import Random

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ams.pipeline.jobs.availability.inputs import Options
from ams.pipeline.jobs.availability.job import run
from ams.pipeline.tables import rows_of
from bench.oracles import availability as oracle
from demo.pipeline.samples.mishaps import Mishaps
from demo.pipeline.samples.monitoring import files, results, sync_messages
from tests.pipeline.jobs.availability.support import rows
from tests.pipeline.jobs.recorded import published, recorded_run

EVE, DAY = date(2024, 3, 4), date(2024, 3, 5)
MISHAPS = Mishaps(late=0.1, doubled=0.1, broken=0.01)
FIGURES = ("type", "endpoint_group", "service", "hostname", "availability", "reliability", "up", "unknown", "down")


@pytest.mark.long
def test_the_figures_of_made_up_days_are_those_of_the_oracle(spark: SparkSession, tmp_path: Path) -> None:
    """Messages are shuffled over the days, and a third comes twice or late: with the second half of what is fed.

    What is monitored comes in messages too, and the profile of how it counts from a file.
    """
    made = [sample for day in (EVE, DAY) for sample in results(7, day, sites=2, mishaps=MISHAPS, day_late=0.05)]
    paths = files(7, DAY, tmp_path / "files", sites=2)
    random = Random(7)
    random.shuffle(made)
    again = random.sample(made, len(made) // 3)
    late, early = made[: len(made) // 3], made[len(made) // 3 :]
    synced = list(sync_messages(7, DAY, sites=2))
    told = published([*early, *late, *again, *synced, *synced])
    work = tmp_path / "work"
    options = Options(sync_topic="sync_data", aggregation_profile=paths["aggregation_profile"])

    run(recorded_run(spark, work, told[: len(early)]), options)
    assert not (work / "results").exists()
    run(recorded_run(spark, work, told[len(early) :]), options)
    figures = rows_of(spark, work / "results" / "figures").where("type != 'group'")
    for day in (EVE, DAY):
        expected = oracle.day_figures(made, paths, day)
        found = rows(figures.where(F.col("date") == day.isoformat()), *FIGURES)
        assert {row[:4]: row[4:] for row in found} == expected
        assert len(found) == len(expected)
