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
from demo.pipeline.samples.cloud import messages
from demo.pipeline.samples.mishaps import Mishaps
from tests.pipeline.jobs.recorded import Message, published, quarantined, recorded_run, rows_of

MISHAPS = Mishaps(late=0.2, doubled=0.2, broken=0.1)
EVERY = timedelta(minutes=10)
SPOILT = (b"no colon", b"hello", b"\xff", b",X=", b": X=", b'"Id"', b"_ie")
NOW = datetime(2024, 3, 6, 7, tzinfo=UTC)
OPTIONS = Options(now=NOW.isoformat())


@pytest.mark.long
def test_the_latest_description_of_each_site_counts_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    told = published(messages(2, date(2024, 3, 5), sites=6, images=4, mishaps=MISHAPS), every=EVERY)
    shuffled = list(told)
    Random(1).shuffle(shuffled)
    one = recorded_run(spark, tmp_path / "one", told)
    two = recorded_run(spark, tmp_path / "two", shuffled[:90], [*shuffled[90:], *told[:50]])

    run(one, OPTIONS)
    run(two, OPTIONS)

    places = {(message["topic"], message["offset"]) for message in newest_of(told)}
    newest = latest_of(told)
    assert len(newest) == 6
    assert {row[:3]: row[3:] for row in sites(one)} == newest
    assert {stale for _, stale in newest.values()} == {False, True}
    for result in ("sites", "images", "flavours", "shares", "endpoints"):
        assert rows_of(one, result) == rows_of(two, result) != []
        assert set(rows_of(one, result, 'DISTINCT topic, "offset"')) == places
    assert catalogue_of(one) == catalogue_of(two)
    assert len(quarantined(one)) == sum(is_spoilt(message["data"]) for message in told) > 5
    [ops] = [place for place in catalogue_of(one)["vos"]["ops"] if place["site"] == "CLOUD-01"]
    assert ops["endpoint_id"] == "1235G0"
    assert ops["flavours"] == ["gpu", "large", "medium", "small", "tiny"]


def test_what_cannot_be_is_a_wrong_option() -> None:
    with pytest.raises(WrongOption, match="option now: 'noon' is no time"):
        Options(now="noon")
    with pytest.raises(WrongOption, match="option stale_hours"):
        Options(stale_hours=0)


def sites(job: Any) -> list[tuple[Any, ...]]:
    return rows_of(job, "sites", "topic, site, endpoint_id, images, stale")


def catalogue_of(job: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((job.work / "results" / "catalogue.json").read_bytes())
    return value


def latest_of(told: list[Message]) -> dict[tuple[str, str, str], tuple[int, bool]]:
    """Return for each topic, site and endpoint how many images its newest description has, and whether it is old."""
    found = {}
    for message in newest_of(told):
        _, site, _, endpoint = message["topic"].split("_")
        images = len(set(re.findall(rb"[0-9a-f]{8}-0f93-48da-b0eb-[0-9a-f]{12}", message["data"])))
        found[message["topic"], site, endpoint] = (images, message["publish_time"] < NOW - timedelta(hours=12))
    return found


def newest_of(told: list[Message]) -> list[Message]:
    """Return of each topic the newest message that can be read."""
    good = [message for message in told if not is_spoilt(message["data"])]
    oldest_first = sorted(good, key=lambda each: (each["publish_time"], each["offset"]))
    return list({each["topic"]: each for each in oldest_first}.values())


def is_spoilt(data: bytes) -> bool:
    return not data.strip() or any(mark in data for mark in SPOILT)
