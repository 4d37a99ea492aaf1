"""What Spark makes of expressions, all of them in one action."""

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

from pyspark.sql import SparkSession

from ams.pipeline.expressions import parse, type_of, types
from ams.pipeline.expressions.compiling import column
from ams.pipeline.expressions.functions import FUNCTIONS
from ams.pipeline.flows.steps.schemas import spark_type, struct

COLUMNS = {
    "site": types.TEXT,
    "jobs": types.WHOLE,
    "wall": types.NUMBER,
    "at": types.TIME,
    "tags": types.list_of(types.TEXT),
    "attributes": types.map_of(types.TEXT),
    "place": types.record({"lat": types.NUMBER}),
    "data": types.BYTES,
    "least": types.WHOLE,
    "nothing": types.NULL,
}
AT = datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)
ROW = (" Site.A ", 7, 2.5, AT, ["x", "y"], {"vo": "ops"}, {"lat": 51.5}, b"\xff", -(2**63), None)

RESULTS: Mapping[str, Any] = {
    "jobs + 1": 8,
    "jobs - wall": 4.5,
    "jobs / 2": 3.5,
    "jobs / 0": None,
    "jobs % 4": 3,
    "jobs % 0": None,
    "9223372036854775807 + jobs": None,
    "-jobs": -7,
    "-least": None,
    "abs(least)": None,
    "abs(-wall)": 2.5,
    "jobs > wall and not (jobs == 1)": True,
    "jobs in (1, 7)": True,
    "jobs not in (1, 7)": False,
    "attributes['none'] == 'x' or true": True,
    "attributes['none'] is null": True,
    "attributes['vo']": "ops",
    "tags[1]": "y",
    "tags[7]": None,
    "tags[-1]": None,
    "tags[9223372036854775807]": None,
    "place.lat": 51.5,
    "lower(trim(site))": "site.a",
    "upper(site)": " SITE.A ",
    "length(site) + length(data)": 9,
    "concat(site, attributes['none'])": None,
    "concat(trim(site), '/', text(jobs))": "Site.A/7",
    "substring(site, 2, 4)": "Site",
    "substring(site, 9223372036854775807, 4)": None,
    "replace(site, '.', '-')": " Site-A ",
    "starts_with(site, ' S')": True,
    "ends_with(site, 'A')": False,
    "split(trim(site), '.')": ["Site", "A"],
    "split('a\\Eb\\E', '\\E')": ["a", "b", ""],
    "sha256('')": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "round(wall, 0)": 3.0,
    "floor(wall)": 2,
    "ceil(wall)": 3,
    "least(jobs, 3)": 3,
    "greatest(jobs, wall)": 7.0,
    "if(attributes['none'] == 'x', 1, 2)": 2,
    "coalesce(attributes['none'], site)": " Site.A ",
    "text(data)": None,
    "text(wall)": "2.5",
    "whole('12')": 12,
    "whole('x')": None,
    "whole(wall)": 2,
    "whole(1e300)": None,
    "number('2.5')": 2.5,
    "json(tags)": '["x","y"]',
    "time('2024-03-05T10:20:30Z') == at": True,
    "time('yesterday')": None,
    "time(1709634030) == at": True,
    "time(9223372036854775807)": None,
    "day(at)": date(2024, 3, 5),
    "day('2024-02-30')": None,
    "day(concat('to', 'day'))": None,
    "time('today UTC+01:00')": None,
    "time(concat('12:30', ''))": None,
    "day('2024')": date(2024, 1, 1),
    "day(' 2024-3-5 ')": date(2024, 3, 5),
    "time('+20000-01-01')": None,
    "time('9999-12-31T23:59:59-01:00')": None,
    "nothing is null and not nothing is null": False,
    "if(nothing, 1, 2)": 2,
    "if(null, 1, 2)": 2,
    "coalesce(nothing, 'x')": "x",
    f"jobs in ({', '.join(map(str, range(400)))})": True,
    "month(at)": "2024-03",
    "year(at)": 2024,
    "seconds(hour(at))": 1709632800,
    "seconds(minute(at))": 1709634000,
    "size(tags) + size(attributes)": 3,
    "contains(tags, 'x') and contains(site, 'ite')": True,
    "has(attributes, 'vo')": True,
    "null": None,
}


def test_expressions_come_to_what_they_say_and_nothing_odd_ends_a_job(spark: SparkSession) -> None:
    trees = {text: parse(text) for text in RESULTS}
    made = [
        column(tree, COLUMNS).cast(spark_type(type_of(tree, COLUMNS))).alias(f"c{place}")
        for place, tree in enumerate(trees.values())
    ]

    rows = spark.createDataFrame([ROW], struct(COLUMNS)).repartition(1).select(*made).collect()

    assert dict(zip(RESULTS, rows[0], strict=True)) == dict(RESULTS)


def test_every_function_is_tried() -> None:
    tried = " ".join(RESULTS)

    assert [name for name in FUNCTIONS if f"{name}(" not in tried] == []
