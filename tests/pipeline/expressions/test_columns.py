"""What Spark makes of expressions, all of them in one action."""

from collections.abc import Mapping
from datetime import date
from typing import Any

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from ams.pipeline.expressions import aggregate, expression
from ams.pipeline.expressions.functions import AGGREGATES, CASTING, FUNCTIONS
from ams.pipeline.expressions.types import BIGINT, DOUBLE, STRING, struct
from tests.pipeline.expressions.columns import COLUMNS, ROW

AS_SPARK: Mapping[str, Any] = {
    "jobs + 1": 8,
    "jobs - wall": 4.5,
    "jobs / 2": 3.5,
    "jobs % 4": 3,
    "-jobs": -7,
    "abs(-wall)": 2.5,
    "jobs > wall AND NOT (jobs = 1)": True,
    "jobs >= 7 and jobs <= 7 and jobs < 8 and jobs <> 8 and jobs != 8 and jobs == 7": True,
    "jobs in (1, 7)": True,
    "jobs not in (1, 7)": False,
    "jobs BETWEEN 1 AND 7 AND ok": True,
    "jobs not between 1 and 7 or not ok": False,
    "attributes['none'] = 'x' or true": True,
    "attributes['none'] is null": True,
    "NOT attributes['none'] IS NOT NULL": True,
    "ok is true and not ok is false": True,
    "!ok": False,
    "attributes['none'] <=> null": True,
    "attributes['vo']": "ops",
    "tags[1]": "y",
    "place.lat": 51.5,
    "place.`end` || `order`": "efirst",
    "order || timestamp": "firstnoon",
    "lower(trim(site))": "site.a",
    "UPPER(site)": " SITE.A ",
    "length(site) + length(data)": 9,
    '\'it\'\'s\' || "a ""b"""': 'it\'sa "b"',
    r"'a\tb\'c\\d'": "a\tb'c\\d",
    "concat(trim(site), '/', cast(jobs as string))": "Site.A/7",
    "concat(site, attributes['none'])": None,
    "substring(site, 2, 4)": "Site",
    "replace(site, '.', '-')": " Site-A ",
    "startswith(site, ' S')": True,
    "endswith(site, 'A')": False,
    "contains(site, 'ite')": True,
    "split('a,b,', ',')": ["a", "b", ""],
    "sha2('', 256)": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
    "floor(wall)": 2,
    "ceil(wall)": 3,
    "least(jobs, 3)": 3,
    "greatest(jobs, wall)": 7.0,
    "if(attributes['none'] = 'x', 1, 2)": 2,
    "case when jobs > 9 then 'many' when jobs > 5 then 'some' else 'few' end": "some",
    "case jobs when 1 then 'one' when 7 then 'seven' end": "seven",
    "case when jobs > 9 then 1 end": None,
    "coalesce(attributes['none'], site)": " Site.A ",
    "cast(wall as string)": "2.5",
    "cast('12' as bigint)": 12,
    "cast(wall as BIGINT)": 2,
    "cast(ok as bigint)": 1,
    "cast('2.5' as double)": 2.5,
    "cast('true' as boolean)": True,
    "cast('x' as binary)": b"x",
    "to_json(tags)": '["x","y"]',
    "to_timestamp('2024-03-05T10:20:30Z') = at": True,
    "timestamp '2024-03-05T10:20:30Z' = at": True,
    "timestamp_seconds(1709634030) = at": True,
    "DATE '2024-03-05' = to_date(at)": True,
    "cast(at as date)": date(2024, 3, 5),
    "to_date('2024')": date(2024, 1, 1),
    "cast(' 2024-3-5 ' as date)": date(2024, 3, 5),
    "date_format(at, 'yyyy-MM')": "2024-03",
    "date_format(to_date(at), 'dd.MM.yyyy HH:mm:ss')": "05.03.2024 00:00:00",
    "year(at)": 2024,
    "unix_seconds(date_trunc('hour', at))": 1709632800,
    "unix_seconds(date_trunc('week', at))": 1709510400,
    "size(tags) + size(attributes)": 3,
    "array_contains(tags, 'x')": True,
    "map_contains_key(attributes, 'vo')": True,
    "nothing is null and not nothing is null": False,
    "if(null, 1, 2)": 2,
    "coalesce(nothing, 'x')": "x",
    f"jobs in ({', '.join(map(str, range(400)))})": True,
    "null": None,
    ".5 + 1. + 1e1": 11.5,
    "1 + 2 * 3 - 4 / 2": 5.0,
    f"jobs{' + 1' * 110}": 117,
    "(" * 19 + "jobs" + ")" * 19: 7,
    "2 - 1 - 1 = 0 or 1 = 2 and 1 = 3": True,
    "not 1 = 2 and 1 = 2": False,
}
"""Expressions that come to the same in Spark's own SQL."""

OURS: Mapping[str, Any] = {
    "jobs / 0": None,
    "jobs % 0": None,
    "9223372036854775807 + jobs": None,
    "-lowest": None,
    "abs(lowest)": None,
    "tags[7]": None,
    "tags[-1]": None,
    "tags[9223372036854775807]": None,
    "substring(site, 9223372036854775807, 4)": None,
    "split('a.b|c', '.')": ["a", "b|c"],
    "split('a.b|c', '|')": ["a.b", "c"],
    "floor(9223372036854775807) - ceil(9223372036854775806)": 1,
    "null + null": None,
    "-null * 2 / null % 1": None,
    "not null and null": None,
    "abs(null)": None,
    "least(null, 1)": 1,
    "coalesce(size(null), length(null))": None,
    "lower(null) || null": None,
    "if(nothing, 1, 2)": 2,
    "nothing = 1 or null in (1, 2)": None,
    "to_date(nothing)": None,
    "round(wall, 0)": 3.0,
    "round(wall, 400)": 2.5,
    "cast(data as string)": None,
    "cast('x' as bigint)": None,
    "cast(1e300 as bigint)": None,
    "try_cast('x' as double)": None,
    "cast('yesterday' as timestamp)": None,
    "timestamp_seconds(9223372036854775807)": None,
    "cast('2024-02-30' as date)": None,
    "cast('to' || 'day' as date)": None,
    "cast('today UTC+01:00' as timestamp)": None,
    "cast('12:30' || '' as timestamp)": None,
    "cast('+20000-01-01' as timestamp)": None,
    "cast('9999-12-31T23:59:59-01:00' as timestamp)": None,
    "size(if(ok, null, tags))": None,
}
"""Expressions that Spark fails at, or reads otherwise: what cannot be computed is null, and a separator no pattern."""


@pytest.mark.long
def test_expressions_come_to_what_they_say_and_nothing_odd_ends_a_job(spark: SparkSession) -> None:
    results = {**AS_SPARK, **OURS}
    kinds = {text: expression(text, COLUMNS) for text in results}
    schema = struct({f"c{place}": each.type for place, each in enumerate(kinds.values())})
    made = [
        each.column().cast(field.dataType).alias(field.name)
        for each, field in zip(kinds.values(), schema.fields, strict=True)
    ]

    [row] = spark.createDataFrame([ROW], struct(COLUMNS)).repartition(1).select(*made).collect()

    assert dict(zip(results, row, strict=True)) == results


def test_they_mean_what_spark_itself_takes_them_for(spark: SparkSession) -> None:
    rows = spark.createDataFrame([ROW], struct(COLUMNS)).repartition(1)

    [row] = rows.select(*(F.expr(text).alias(f"c{place}") for place, text in enumerate(AS_SPARK))).collect()

    assert dict(zip(AS_SPARK, row, strict=True)) == AS_SPARK


def test_every_function_is_tried() -> None:
    tried = " ".join([*AS_SPARK, *OURS]).lower()

    assert [name for name in (*FUNCTIONS, *CASTING) if f"{name}(" not in tried] == []


FIGURES = {
    "count(*)": 5,
    "count(wall)": 4,
    "count(DISTINCT wall)": 3,
    "count(if(wall > 1, 1, null))": 3,
    "sum(jobs)": 15,
    "sum(jobs) / count(*)": 3.0,
    "avg(wall)": 2.25,
    "min(site)": "a",
    "max(wall) - min(wall)": 3.0,
    "median(jobs)": 3.0,
    "percentile(jobs, 0.75)": 4.0,
    "site || '!'": "a!",
}
ROWS = [("a", 1, 1.0), ("a", 2, 2.0), ("a", 3, None), ("a", 4, 4.0), ("a", 5, 2.0)]
KINDS = {"site": STRING, "jobs": BIGINT, "wall": DOUBLE}


@pytest.mark.long
def test_figures_are_those_of_duckdb(spark: SparkSession) -> None:
    made = [aggregate(text, KINDS, ["site"]).column().alias(text) for text in FIGURES]

    [row] = spark.createDataFrame(ROWS, struct(KINDS)).groupBy("site").agg(*made).collect()
    in_duckdb = ", ".join(FIGURES).replace("percentile(jobs, 0.75)", "quantile_cont(jobs, 0.75)")
    values = ", ".join(f"('{site}', {jobs}, {wall or 'NULL'})" for site, jobs, wall in ROWS)
    told = duckdb.sql(f"SELECT {in_duckdb} FROM (VALUES {values}) t(site, jobs, wall) GROUP BY site").fetchall()

    assert row.asDict() == {"site": "a", **FIGURES}
    assert [float(each) if not isinstance(each, str) else each for each in told[0]] == list(FIGURES.values())


def test_every_figure_is_tried() -> None:
    assert [name for name in AGGREGATES if f"{name}(" not in " ".join(FIGURES)] == []


NUMBERS = st.sampled_from(["jobs", "wall", "3", "0.5", "(jobs - 9)"])
TRUTHS = st.sampled_from(["ok", "true", "attributes['none'] = 'x'", "jobs IS NULL", "nothing IS NULL"])
RECKONED = st.recursive(
    NUMBERS,
    lambda below: (
        st.tuples(below, st.sampled_from([" + ", " - ", " * "]), below).map("".join)
        | st.tuples(below, st.sampled_from([" / 4", " % 5"])).map("".join)
        | below.map("- {}".format)
        | st.tuples(below, below).map("if(ok, {0[0]}, {0[1]})".format)
        | st.tuples(below, below).map("CASE WHEN {0[0]} > {0[1]} THEN 1 ELSE {0[1]} END".format)
    ),
    max_leaves=6,
)
JUDGED = st.recursive(
    TRUTHS
    | st.tuples(RECKONED, st.sampled_from([" = ", " <> ", " < ", " >= ", " <=> "]), RECKONED).map("".join)
    | st.tuples(RECKONED, RECKONED).map("{0[0]} BETWEEN {0[1]} AND 9".format)
    | RECKONED.map("{} IS NOT NULL".format)
    | RECKONED.map("{} NOT IN (1, 2)".format),
    lambda below: (
        st.tuples(below, st.sampled_from([" AND ", " OR "]), below).map("".join)
        | below.map("NOT {}".format)
        | below.map("({}) IS TRUE".format)
    ),
    max_leaves=6,
)


@pytest.mark.long
@settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(RECKONED | JUDGED, min_size=80, max_size=80))
def test_operators_bind_as_they_do_in_spark(spark: SparkSession, texts: list[str]) -> None:
    rows = spark.createDataFrame([ROW], struct(COLUMNS)).repartition(1)
    ours = [expression(text, COLUMNS).column().cast("double").alias(f"c{place}") for place, text in enumerate(texts)]
    theirs = [F.expr(text).cast("double").alias(f"c{place}") for place, text in enumerate(texts)]

    [made], [wanted] = rows.select(*ours).collect(), rows.select(*theirs).collect()

    assert dict(zip(texts, made, strict=True)) == dict(zip(texts, wanted, strict=True))
