import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ams.client import Message, wire
from ams.pipeline.errors import CheckFailed
from ams.pipeline.jobs.archive.table import archive_table, dated
from ams.pipeline.jobs.schema_check.job import Options, run
from ams.pipeline.running import Run
from tests.pipeline.garden import Garden

SCHEMA = {"type": "object", "required": ["magnitude"]}


def test_a_schema_is_held_against_an_archive(
    spark: SparkSession, garden: Garden, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    garden.topic("stars", [Message(b'{"magnitude": 4.8}'), Message(b"{}"), Message(b"a secret"), Message(b"{}")])
    garden.client.call(wire.create_schema(garden.name, "star", SCHEMA))
    stars = spark.read.format("ams").options(**garden.options, topic="stars").load()
    archive = str(tmp_path / "archive")
    archive_table(spark, archive).append(dated(stars), 0, "1f0c9a7e")
    job = Run(spark, tmp_path / "work", garden.options)
    capsys.readouterr()

    with pytest.raises(CheckFailed, match="3 of 4 messages would be refused"):
        run(job, Options(archive=archive, schema="star", most=2))

    dry_run = garden.client.call(wire.dry_run(garden.name, "star", "stars"))
    assert dry_run.reasons[0].reason == "Message 1 data is not valid,(root): magnitude is required"
    name = f"{garden.name}/stars"
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "TOPIC".ljust(len(name)) + "  CHECKED  REFUSED",
        f"{name}        4        3",
        *(f"{name} {each.message_id}: {each.reason}" for each in dry_run.reasons[:2]),
    ]

    (tmp_path / "any.json").write_text(json.dumps({"title": "anything"}))
    with pytest.raises(CheckFailed, match="1 of 4 messages would be refused"):
        run(job, Options(archive=archive, file=str(tmp_path / "any.json")))
    assert "secret" not in capsys.readouterr().out
