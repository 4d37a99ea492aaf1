"""Expressions: their values on Spark, their types, and refusals before Spark starts."""

import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType

from ams.pipeline.expressions import WrongExpression, aggregate, expression, types
from ams.pipeline.expressions.functions import AGGREGATES, CASTING, FUNCTIONS
from ams.pipeline.expressions.parser import MAX_DEPTH, MAX_LENGTH, MAX_LEVELS
from ams.pipeline.expressions.types import BIGINT, BINARY, BOOLEAN, DOUBLE, NULL, STRING, STRINGS, TIMESTAMP, struct

COLUMNS = {
    "site": STRING, "jobs": BIGINT, "wall": DOUBLE, "ok": BOOLEAN, "at": TIMESTAMP, "tags": ArrayType(STRING),
    "attributes": STRINGS, "place": struct({"lat": DOUBLE, "end": STRING}), "data": BINARY, "lowest": BIGINT,
    "nothing": NULL, "order": STRING, "timestamp": STRING,
}  # fmt: skip
ROW_TIME = datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)
ROW = (
    *(" Site.A ", 7, 2.5, True, ROW_TIME, ["x", "y"], {"vo": "ops"}, {"lat": 51.5, "end": "e"}, b"\xff"),
    *(-(2**63), None, "first", "noon"),
)


SPARK_RESULTS: Mapping[str, Any] = {
    "jobs + 1": 8, "jobs - wall": 4.5, "jobs / 2": 3.5, "jobs % 4": 3, "-jobs": -7, "abs(-wall)": 2.5,
    "jobs > wall AND NOT (jobs = 1)": True,
    "jobs >= 7 and jobs <= 7 and jobs < 8 and jobs <> 8 and jobs != 8 and jobs == 7": True, "jobs in (1, 7)": True,
    "jobs not in (1, 7)": False, "jobs BETWEEN 1 AND 7 AND ok": True, "jobs not between 1 and 7 or not ok": False,
    "attributes['none'] = 'x' or true": True, "attributes['none'] is null": True,
    "NOT attributes['none'] IS NOT NULL": True, "ok is true and not ok is false": True, "!ok": False,
    "attributes['none'] <=> null": True, "attributes['vo']": "ops", "tags[1]": "y", "place.lat": 51.5,
    "place.`end` || `order`": "efirst", "order || timestamp": "firstnoon", "lower(trim(site))": "site.a",
    "UPPER(site)": " SITE.A ", "length(site) + length(data)": 9, '\'it\'\'s\' || "a ""b"""': 'it\'sa "b"',
    r"'a\tb\'c\\d'": "a\tb'c\\d", "concat(trim(site), '/', cast(jobs as string))": "Site.A/7",
    "concat(site, attributes['none'])": None, "substring(site, 2, 4)": "Site", "replace(site, '.', '-')": " Site-A ",
    "startswith(site, ' S')": True, "endswith(site, 'A')": False, "contains(site, 'ite')": True,
    "split('a,b,', ',')": ["a", "b", ""],
    "sha2('', 256)": "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855", "floor(wall)": 2,
    "ceil(wall)": 3, "least(jobs, 3)": 3, "greatest(jobs, wall)": 7.0, "if(attributes['none'] = 'x', 1, 2)": 2,
    "case when jobs > 9 then 'many' when jobs > 5 then 'some' else 'few' end": "some",
    "case jobs when 1 then 'one' when 7 then 'seven' end": "seven", "case when jobs > 9 then 1 end": None,
    "coalesce(attributes['none'], site)": " Site.A ", "cast(wall as string)": "2.5", "cast('12' as bigint)": 12,
    "cast(wall as BIGINT)": 2, "cast(ok as bigint)": 1, "cast('2.5' as double)": 2.5, "cast('true' as boolean)": True,
    "cast('x' as binary)": b"x", "to_json(tags)": '["x","y"]', "to_timestamp('2024-03-05T10:20:30Z') = at": True,
    "timestamp '2024-03-05T10:20:30Z' = at": True, "timestamp_seconds(1709634030) = at": True,
    "DATE '2024-03-05' = to_date(at)": True, "cast(at as date)": date(2024, 3, 5),
    "to_date('2024')": date(2024, 1, 1), "cast(' 2024-3-5 ' as date)": date(2024, 3, 5),
    "date_format(at, 'yyyy-MM')": "2024-03", "date_format(to_date(at), 'dd.MM.yyyy HH:mm:ss')": "05.03.2024 00:00:00",
    "year(at)": 2024, "unix_seconds(date_trunc('hour', at))": 1709632800,
    "unix_seconds(date_trunc('week', at))": 1709510400, "size(tags) + size(attributes)": 3,
    "array_contains(tags, 'x')": True, "map_contains_key(attributes, 'vo')": True,
    "nothing is null and not nothing is null": False, "if(null, 1, 2)": 2, "coalesce(nothing, 'x')": "x",
    f"jobs in ({', '.join(map(str, range(400)))})": True, "null": None, ".5 + 1. + 1e1": 11.5,
    "1 + 2 * 3 - 4 / 2": 5.0, f"jobs{' + 1' * 110}": 117, "(" * 19 + "jobs" + ")" * 19: 7,
    "2 - 1 - 1 = 0 or 1 = 2 and 1 = 3": True, "not 1 = 2 and 1 = 2": False,
}  # fmt: skip
"""Expressions with the same value in Spark's own SQL."""

OWN_RESULTS: Mapping[str, Any] = {
    "jobs / 0": None, "jobs % 0": None, "9223372036854775807 + jobs": None, "-lowest": None, "abs(lowest)": None,
    "tags[7]": None, "tags[-1]": None, "tags[9223372036854775807]": None,
    "substring(site, 9223372036854775807, 4)": None, "split('a.b|c', '.')": ["a", "b|c"],
    "split('a.b|c', '|')": ["a.b", "c"], "floor(9223372036854775807) - ceil(9223372036854775806)": 1,
    "null + null": None, "-null * 2 / null % 1": None, "not null and null": None, "abs(null)": None,
    "least(null, 1)": 1, "coalesce(size(null), length(null))": None, "lower(null) || null": None,
    "if(nothing, 1, 2)": 2, "nothing = 1 or null in (1, 2)": None, "to_date(nothing)": None, "round(wall, 0)": 3.0,
    "round(wall, 400)": 2.5, "cast(data as string)": None, "cast('x' as bigint)": None, "cast(1e300 as bigint)": None,
    "try_cast('x' as double)": None, "cast('yesterday' as timestamp)": None,
    "timestamp_seconds(9223372036854775807)": None, "cast('2024-02-30' as date)": None,
    "cast('to' || 'day' as date)": None, "cast('today UTC+01:00' as timestamp)": None,
    "cast('12:30' || '' as timestamp)": None, "cast('+20000-01-01' as timestamp)": None,
    "cast('9999-12-31T23:59:59-01:00' as timestamp)": None, "size(if(ok, null, tags))": None,
}  # fmt: skip
"""Expressions that fail in Spark, or differ there: here invalid operations give null, and a separator is not a
pattern."""


@pytest.mark.long
def test_expressions_come_to_what_they_say_and_nothing_odd_ends_a_job(spark: SparkSession) -> None:
    results = {**SPARK_RESULTS, **OWN_RESULTS}
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
    [row] = rows.select(*(F.expr(text).alias(f"c{place}") for place, text in enumerate(SPARK_RESULTS))).collect()
    assert dict(zip(SPARK_RESULTS, row, strict=True)) == SPARK_RESULTS


def test_every_function_is_tried() -> None:
    tried = " ".join([*SPARK_RESULTS, *OWN_RESULTS]).lower()
    assert [name for name in (*FUNCTIONS, *CASTING) if f"{name}(" not in tried] == []


FIGURES = {
    "count(*)": 5, "count(wall)": 4, "count(DISTINCT wall)": 3, "count(if(wall > 1, 1, null))": 3, "sum(jobs)": 15,
    "sum(jobs) / count(*)": 3.0, "avg(wall)": 2.25, "min(site)": "a", "max(wall) - min(wall)": 3.0,
    "median(jobs)": 3.0, "percentile(jobs, 0.75)": 4.0, "site || '!'": "a!",
}  # fmt: skip
ROWS = [("a", 1, 1.0), ("a", 2, 2.0), ("a", 3, None), ("a", 4, 4.0), ("a", 5, 2.0)]
KINDS = {"site": STRING, "jobs": BIGINT, "wall": DOUBLE}


@pytest.mark.long
def test_figures_come_to_what_they_say(spark: SparkSession) -> None:
    made = [aggregate(text, KINDS, ["site"]).column().alias(text) for text in FIGURES]
    [row] = spark.createDataFrame(ROWS, struct(KINDS)).groupBy("site").agg(*made).collect()
    assert row.asDict() == {"site": "a", **FIGURES}


def test_every_figure_is_tried() -> None:
    assert [name for name in AGGREGATES if f"{name}(" not in " ".join(FIGURES)] == []


NO_PATTERNS = "there are no patterns: contains, startswith and endswith look for text"
CAST = "cast(... as {}) makes one of text"
SINGLE_TYPES = "string|number|boolean|timestamp|date|binary"


def get_refusal(text: str) -> WrongExpression:
    with pytest.raises(WrongExpression) as raised:
        expression(text, COLUMNS)
    return raised.value


@pytest.mark.parametrize(("text", "position", "reason"), [
    ("", 1, "an expression is expected here"), ("else 1", 1, "an expression is expected here"),
    ("site = ", 6, "a value is missing beside '='"), ("jobs +", 6, "a value is missing beside '+'"),
    ("+ 1", 3, "a value is missing beside '1'"), ("site 'x'", 6, "'x' is not expected here"),
    ("'a' 'b'", 5, "two texts side by side are joined by ||"),
    ("site = 'open", 8, "a text or a name in quotes has no end"),
    ("jobs in ()", 1, "at least one value is expected in the brackets"),
    ("jobs in 1", 9, "( is expected behind IN"), ("lower(site,)", 12, "a value is expected beside each comma"),
    ("concat(,site)", 8, "a value is expected beside each comma"),
    ("concat(site,,site)", 13, "a value is expected beside each comma"),
    ("jobs between 1 2", 1, "AND is missing"), ("case when ok 1 end", 11, "THEN is missing"),
    ("concat(site, as)", 14, "AS means nothing here; a column of this name is written `as`"),
    ("place.and = 'x'", 7, "AND means nothing here; a column of this name is written `and`"),
    ("case ok end", 9, "a value is missing beside 'end'"),
    ("case when ok then 1", 19, "expected END after CASE beside '1'"), ("(jobs", 2, "expecting ) beside 'jobs'"),
    ("jobs)", 5, "')' is not expected here"), ("tags[]", 6, "a value is missing beside ']'"),
    ("tags[0, 1]", 1, "one item of an array or a map is asked for in [ ], not of array<string>"),
    ("place.'end'", 7, "the name of a field is expected behind the point"),
    ("place.lat()", 7, "the name of a field is expected behind the point"),
    ("9223372036854775808", 1, "a whole number has at most 63 bits"), ("1e999", 1, "this number is too large"),
    ("1L", 1, "'1L' is no number; they are written as 1, 1.5 or 1e3"),
    ("1_000", 1, "'1_000' is no number; they are written as 1, 1.5 or 1e3"),
    ("0x1F", 2, "'x1F' is not expected here"), ("x'1F'", 2, "'1F' is not expected here"),
    ("r'a'", 2, "'a' is not expected here"),
    ("§", 1, "no column '§'; there are at, attributes, data, jobs, lowest, nothing, ok, order, place, site, tags,"),
    ("(" * (MAX_DEPTH + 1), MAX_DEPTH + 1, f"deeper than {MAX_DEPTH} levels"),
    ("case " * (MAX_DEPTH + 1), 5 * MAX_DEPTH + 1, f"deeper than {MAX_DEPTH} levels"),
    ("end and " * 10 + "(" * (MAX_DEPTH + 1), MAX_DEPTH + 81, f"deeper than {MAX_DEPTH} levels"),
    ("jobs" + "+1" * MAX_LEVELS, 1, f"more than {MAX_LEVELS} operators in a chain"),
    ("tags" + "[0]" * MAX_LEVELS, 1, f"more than {MAX_LEVELS} operators in a chain"),
    ("a" * (MAX_LENGTH + 1), MAX_LENGTH, f"longer than {MAX_LENGTH} characters"),
])  # fmt: skip
def test_what_is_no_expression_is_refused_with_its_place(text: str, position: int, reason: str) -> None:
    refused = get_refusal(text)
    assert (refused.position, refused.reason[: len(reason)]) == (position, reason)


@pytest.mark.parametrize(("text", "reason"), [
    ("reflect('java.lang.Runtime', 'getRuntime')", "no function 'reflect'"),
    ("`reflect`('java.lang.Runtime', 'x')", "no function 'reflect'"),
    ("current_date", "no column 'current_date'"),
    ("regexp_replace(site, 'a', 'b')", "no function 'regexp_replace'; did you mean replace?"),
    ("site in (select site)", "SELECT is not taken: there are no subqueries"),
    ("exists (select 1)", "EXISTS is not taken: there are no subqueries"),
    ("sum(jobs) over (partition by site)", "OVER is not taken: there are no window functions"),
    ("sum(jobs) filter (where ok)", "FILTER is not taken: write if(..., x, null) in the brackets"),
    ("site like 'a%'", f"LIKE is not taken: {NO_PATTERNS}"),
    ("site rlike '(a+)+'", f"RLIKE is not taken: {NO_PATTERNS}"),
    ("interval 1 day", "INTERVAL is not taken"),
    ("jobs div 2", "DIV is not taken: write floor(a / b)"),
    ("at at time zone 'CET'", "AT TIME ZONE is not taken here"),
    ("jobs is distinct from 1", "NULL SAFE NEQ is not taken here"),
    ("(jobs, jobs)", "TUPLE is not taken here"),
    ("[jobs]", "ARRAY is not taken here"),
    ("lower(site) ignore nulls", "IGNORE NULLS is not taken here"),
    ("lower(site ignore nulls)", "IGNORE NULLS is not taken here"),
    ("lower(distinct site)", "DISTINCT is not taken here"),
    ("jobs is 1", "IS NULL, or IS TRUE and IS FALSE of boolean, is expected here"),
    ("parquet.`/etc/passwd`", "no column 'parquet'"),
    ("`si``te`", "no column 'si`te'; did you mean site?"),
    ("site from jobs", "FROM is not taken: there are no subqueries"),
    ("site collate UTF8_LCASE", "'collate' is not expected here"),
    ("ok; drop table jobs", "one expression is expected, without ;"),
    ("ok -- true", "comments stand in lines of YAML, behind #"),
    ("ok /* x */", "comments stand in lines of YAML, behind #"),
    ("/*+ broadcast(x) */ ok", "comments stand in lines of YAML, behind #"),
    ("-- ok", "an expression is expected here"),
    ("site -> site", "there are no lambdas"),
    ("lower(text => site)", "arguments have no names"),
    ("site := 'x'", "there are no parameters here"),
    ("site::string", "write cast(... as TYPE)"),
    ("ok && ok", "write AND"),
    ("jobs & 1", "there are no operations on bits"),
    ("site.*", "the name of a field is expected behind the point"),
    ("*", "STAR is not taken here"),
    ("{{ site }}", "there are no templates here"),
    *((each, "there are no parameters here") for each in ("${site}", ":site", "@site", "?")),
    ("site\\", "'\\\\' means nothing here"),
    ("tags[0:1]", "there are no parameters here"),
    ("_metadata.file_path", "no column '_metadata'"),
    ("Site = 'x'", "no column 'Site'; did you mean site?"),
    ("cast(site as int)", "no type 'int' here; write bigint"),
    ("cast(site as decimal(3, 2))", "no type 'decimal' here; write double"),
    ("cast(site as whole)", "no type 'whole' here; write bigint"),
    ("cast(site as string format 'x')", "'format' is not expected here"),
    ("cast(site as)", "expected TYPE after CAST"),
    ("cast(site)", "expected AS after CAST"),
    ("day(at)", "no function 'day'; write to_date(x)"),
    ("starts_with(site, 'x')", "no function 'starts_with'; did you mean startswith?"),
    ("has(attributes, 'vo')", "no function 'has'; write map_contains_key(x, key)"),
    ("count_distinct(site)", "no function 'count_distinct'; write count(DISTINCT x)"),
    ("max(jobs)", "max is over rows: it is for the step aggregate"),
])  # fmt: skip
def test_nothing_leads_out_of_the_columns_and_functions_on_the_list(text: str, reason: str) -> None:
    assert reason in get_refusal(text).reason


@pytest.mark.parametrize(("text", "position", "reason"), [
    ("site + 1", 1, "+ needs number here, not string; texts are joined by ||"),
    ("site = jobs", 1, f"string is not compared with bigint; {CAST.format('bigint')}"),
    ("ok or at > '2024-03-05'", 7, f"timestamp is not compared with string; {CAST.format('timestamp')}"),
    ("tags = tags", 1, "array<string> cannot be compared"), ("data < data", 1, "binary cannot be compared"),
    ("1 < jobs < 3", 1, "boolean is not compared with bigint"),
    ("jobs and ok", 1, "AND needs boolean here, not bigint"),
    ("not jobs", 5, "NOT needs boolean here, not bigint"),
    ("ok and true + 1", 8, "+ needs number here, not boolean"), ("-site", 2, "- needs number here, not string"),
    ("site || jobs", 9, "|| needs string here, not bigint"),
    ("lower(jobs)", 7, "lower needs string here, not bigint"),
    ("lower()", 1, "lower takes (string), not 0 arguments"),
    ("concat()", 1, "concat takes (string, ...), not 0 arguments"),
    ("split(site, site)", 13, "split needs a separator that is no pattern, written down"),
    ("split(site, '\\\\.')", 13, "split needs a separator that is no pattern, written down"),
    ("split(site, '[,;]')", 13, "split needs a separator that is no pattern, written down"),
    ("date_format(at, 'EEEE')", 17, "date_format needs a format of yyyy MM dd HH mm ss, written down"),
    ("sha2(site, 1)", 12, "sha2 needs a 224|256|384|512, written down"),
    ("if(ok, 1, 'x')", 1, "the arguments of if do not go together: boolean, bigint, string"),
    ("case when ok then 1 else 'x' end", 11, "the arguments of CASE do not go together: boolean, bigint, string"),
    ("case jobs when 'x' then 1 end", 6, f"bigint is not compared with string; {CAST.format('bigint')}"),
    ("jobs between 1 and 'x'", 1, f"bigint is not compared with string; {CAST.format('bigint')}"),
    ("site.x", 6, "string has no fields"), ("attributes.x", 12, "map<string,string> has no fields; write ['x']"),
    ("place.lon", 7, "no field 'lon'; there are end, lat"),
    ("site[0]", 1, "one item of an array or a map is asked for in [ ], not of string"),
    ("tags['x']", 6, "items are asked for by bigint, not string"),
    ("attributes[0]", 12, "items are asked for by string, not bigint"),
    ("site in ('a', 1)", 15, f"string is not compared with bigint; {CAST.format('bigint')}"),
    ("jobs is true", 9, "IS NULL, or IS TRUE and IS FALSE of boolean, is expected here"),
    ("cast(tags as string)", 6, "array<string> cannot be cast as string"),
    ("lowe(site)", 1, "no function 'lowe'; did you mean lower?"),
])  # fmt: skip
def test_wrong_types_are_refused_with_their_place(text: str, position: int, reason: str) -> None:
    refused = get_refusal(text)
    assert (refused.position, refused.reason) == (position, reason)


@pytest.mark.parametrize(("text", "reason"), [
    ("jobs", "'jobs' is no key: it stands in a function over rows, such as max(jobs)"),
    ("sum(jobs) + jobs", "'jobs' is no key: it stands in a function over rows, such as max(jobs)"),
    ("max(sum(jobs))", "sum is over rows: it is for the step aggregate, and not within another such function"),
    ("lower(count(*))", "lower needs string here, not bigint"), ("count()", "rows are counted by count(*)"),
    ("count(site, jobs)", "count takes (any), not 2 arguments"),
    ("count(DISTINCT site, jobs)", f"count(DISTINCT ...) takes ({SINGLE_TYPES}), not 2"),
    ("count(DISTINCT tags)", f"count(DISTINCT ...) needs {SINGLE_TYPES} here, not array"),
    ("sum(*)", "STAR is not taken here"), ("sum(DISTINCT jobs)", "DISTINCT is not taken here"),
    ("sum(site)", "sum needs number here, not string"),
    ("percentile(jobs, 95)", "percentile needs a share from 0 to 1, written down"),
    ("p95(jobs)", "no function 'p95'; write percentile(x, 0.95)"),
])  # fmt: skip
def test_figures_that_cannot_be_are_refused(text: str, reason: str) -> None:
    with pytest.raises(WrongExpression) as raised:
        aggregate(text, COLUMNS, ["site"])
    assert reason in raised.value.reason


@pytest.mark.parametrize("text", [
    "ok" + " between false and true" * 60, "case " * 18 + "jobs" + " when 1 then 2 when 2 then 3 end" * 18,
    "abs(" * 18 + "jobs" + ")" * 18, "cast(cast(" * 9 + "at" + " as string) as timestamp)" * 9,
    "timestamp_seconds(unix_seconds(" * 9 + "at" + "))" * 9,
])  # fmt: skip
def test_what_would_be_written_thousands_of_times_for_spark_is_refused(text: str) -> None:
    with pytest.raises(WrongExpression, match="make columns of its parts before"):
        expression(text, COLUMNS)


def test_the_reference_has_every_function_and_type() -> None:
    reference = Path("docs/reference/pipeline.md").read_text()
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", reference, re.MULTILINE)
    named = {name for row in rows for name in row.split(", ")}
    assert [name for name in (*FUNCTIONS, *CASTING) if f"`{name}`" not in named] == []
    assert [name for name in AGGREGATES if f"`{name}(" not in reference] == []
    assert [name for name in types.NAMED if f"`{name}`" not in reference] == []


PIECES = [
    *COLUMNS, *FUNCTIONS, *AGGREGATES,
    "and", "OR", "not", "in", "is", "null", "true", "false", "between", "case", "when", "then", "else", "end", "as",
    "distinct", "cast(", "try_cast(", "date", "interval", "select", "from", "over", "unnest", "any", "all", "for",
    "array", "map", "struct", "list", "with", "row", "{fn", "lateral", "timestamp '", "at time zone", "next value for",
    "\0", "\n", "\ud800", "(", ")", "[", "]", ",", ".", "+", "-", "*", "/", "%", "=", "==", "!=", "<>", "<=>", "<", ">",
    "||", "!", ":=", "'", '"', "`", "''", "--", "/*", "*/", "/*+", ";", "::", "->", "=>", "{", "}", "{{", "$", "@", ":",
    "?", "\\", "1", "0.5", "1e9", "1L", "0x1F", "x'1F'", "b'1'", "r'a'", "'a'", '"b"', "`jobs`", "é", "𝄞",
]  # fmt: skip


@given(
    st.text(max_size=60)
    | st.lists(st.sampled_from(PIECES), max_size=40).map(" ".join)
    | st.lists(st.sampled_from(PIECES), max_size=40).map("".join)
)
def test_any_text_is_an_expression_or_refused(text: str) -> None:
    for read in (lambda: expression(text, COLUMNS), lambda: aggregate(text, COLUMNS, ["site"])):
        try:
            assert isinstance(read().type, DataType)
        except WrongExpression as error:
            assert 1 <= error.position <= len(text) + 1
            assert "sqlglot" not in error.reason


@pytest.mark.parametrize("piece", [
    *PIECES, "not ", "- ", "f(", "((", "a[", "case when ", "cast(", "a in (", "a.", "1+", "f((a, ", "timestamp(",
])  # fmt: skip
def test_long_and_deep_texts_are_refused_or_read_at_once(piece: str) -> None:
    for count in (MAX_DEPTH - 1, 200, MAX_LENGTH):
        for text in (piece * count, (piece * count)[:MAX_LENGTH], (piece * count + "jobs" + ")" * count)[:MAX_LENGTH]):
            try:
                expression(text, COLUMNS)
            except WrongExpression as error:
                assert error.reason
