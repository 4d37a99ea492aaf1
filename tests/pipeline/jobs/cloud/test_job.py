"""The job `cloud-info` over made-up descriptions, against what plain regular expressions find in them."""

import json
import re
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.cloud.job import Options, run
from ams.pipeline.samples.cloud import SITES, messages, topic
from ams.pipeline.samples.mishaps import NONE, Mishaps
from tests.pipeline.jobs.recorded import Message, published, quarantined, recorded_run, rows_of

MISHAPS = Mishaps(late=0.2, doubled=0.2, broken=0.1)
EVERY = timedelta(minutes=7)
SPOILT = (b"no colon", b"hello", b"\xff", b",X=", b": X=", b'"Id"', b"_ie")
NOW = datetime(2024, 3, 6, 12, tzinfo=UTC)
OPTIONS = Options(now=NOW.isoformat())


def test_the_latest_description_of_each_site_counts_in_whatever_order_they_come(
    spark: SparkSession, tmp_path: Path
) -> None:
    told = published(messages(5, date(2024, 3, 5), hours=12, mishaps=MISHAPS), every=EVERY)
    shuffled = list(told)
    Random(1).shuffle(shuffled)
    one = recorded_run(spark, tmp_path / "one", told)
    two = recorded_run(spark, tmp_path / "two", shuffled[:90], [*shuffled[90:], *told[:50]])

    run(one, OPTIONS)
    run(two, OPTIONS)

    newest = latest_of(told)
    assert len(newest) == SITES
    assert {row[:3]: row[3] for row in sites(one)} == {place: images for place, (images, _) in newest.items()}
    assert {row[:3]: row[4] for row in sites(one)} == {
        place: at < NOW - timedelta(hours=12) for place, (_, at) in newest.items()
    }
    assert {row[4] for row in sites(one)} == {False, True}
    for result in ("sites", "images", "flavours", "shares", "endpoints"):
        assert rows_of(one, result) == rows_of(two, result) != []
    assert catalogue_of(one) == catalogue_of(two)
    assert sorted(quarantined(one)) == sorted((data, reason) for data, reason in quarantined(one) if reason)
    assert len(quarantined(one)) == sum(is_spoilt(message["data"]) for message in told) > 5


def test_the_three_shapes_come_to_the_same_tables(spark: SparkSession, tmp_path: Path) -> None:
    job = recorded_run(
        spark, tmp_path, published(messages(6, date(2024, 3, 5), sites=3, images=2, hours=1, mishaps=NONE))
    )

    run(job, Options(now="2024-03-05T13:00:00Z", topics=(topic(0), topic(1), "SITE_CLOUD-0[2-9]_*")))

    columns = "vo, name, cpus, ram_mb, disk_gb, accelerators"
    assert [row for row in rows_of(job, "flavours", columns) if row[:2] == ("ops", "gpu")] == [
        ("ops", "gpu", 8, 65536, 200, 2),
        ("ops", "gpu", 8, 65536, 200, 2),
        ("ops", "gpu", 8, 65536, 200, None),
    ]
    assert rows_of(job, "endpoints", "DISTINCT interface") == [("org.openstack.nova",)]
    assert len(rows_of(job, "shares")) == 9
    told = catalogue_of(job)
    assert [(site["site"], site["shape"], site["stale"]) for site in told["sites"]] == [
        ("CLOUD-00", "glue2-ldif", True),
        ("CLOUD-01", "glue21-json", True),
        ("CLOUD-02", "cmdb-json", True),
    ]
    [ops] = [place for place in told["vos"]["ops"] if place["site"] == "CLOUD-01"]
    assert ops["endpoint_id"] == "1235G0"
    assert ops["flavours"] == ["gpu", "large", "medium", "small", "tiny"]


def test_a_time_that_is_none_is_a_wrong_option(spark: SparkSession, tmp_path: Path) -> None:
    job = recorded_run(spark, tmp_path, published(messages(6, date(2024, 3, 5), sites=1, hours=1)))

    with pytest.raises(WrongOption, match="option now: 'noon' is no time"):
        run(job, Options(now="noon"))


def sites(job: Any) -> list[tuple[Any, ...]]:
    return rows_of(job, "sites", "topic, site, endpoint_id, images, stale")


def catalogue_of(job: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((job.work / "results" / "catalogue.json").read_bytes())
    return value


def latest_of(told: list[Message]) -> dict[tuple[str, str, str], tuple[int, datetime]]:
    """Return for each topic, site and endpoint how many images the newest readable description has, and its time."""
    found = {}
    for message in sorted(told, key=lambda each: (each["publish_time"], each["offset"])):
        if not is_spoilt(message["data"]):
            _, site, _, endpoint = message["topic"].split("_")
            images = len(set(re.findall(rb"[0-9a-f]{8}-0f93-48da-b0eb-[0-9a-f]{12}", message["data"])))
            found[message["topic"], site, endpoint] = (images, message["publish_time"])
    return found


def is_spoilt(data: bytes) -> bool:
    return not data or any(mark in data for mark in SPOILT)
