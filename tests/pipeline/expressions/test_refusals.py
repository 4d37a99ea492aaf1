"""What is no expression, told before Spark starts; types, too."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType

from ams.pipeline.expressions import WrongExpression, aggregate, expression, types
from ams.pipeline.expressions.functions import AGGREGATES, CASTING, FUNCTIONS
from ams.pipeline.expressions.parsing import MAX_DEPTH, MAX_LENGTH, MAX_LEVELS, parse
from tests.pipeline.expressions.columns import COLUMNS

NO_PATTERNS = "there are no patterns: contains, startswith and endswith look for text"
CAST = "cast(... as {}) makes one of text"
SINGLE = "string|number|boolean|timestamp|date|binary"


def refusal(text: str) -> WrongExpression:
    with pytest.raises(WrongExpression) as raised:
        expression(text, COLUMNS)
    return raised.value


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 1, "an expression is expected here"),
        ("else 1", 1, "an expression is expected here"),
        ("site = ", 6, "a value is missing beside '='"),
        ("jobs +", 6, "a value is missing beside '+'"),
        ("+ 1", 3, "a value is missing beside '1'"),
        ("site 'x'", 6, "'x' is not expected here"),
        ("'a' 'b'", 5, "two texts side by side are joined by ||"),
        ("site = 'open", 8, "a text or a name in quotes has no end"),
        ("jobs in ()", 1, "at least one value is expected in the brackets"),
        ("jobs in 1", 9, "( is expected behind IN"),
        ("lower(site,)", 12, "a value is expected beside each comma"),
        ("concat(,site)", 8, "a value is expected beside each comma"),
        ("concat(site,,site)", 13, "a value is expected beside each comma"),
        ("jobs between 1 2", 1, "AND is missing"),
        ("case when ok 1 end", 11, "THEN is missing"),
        ("concat(site, as)", 14, "AS means nothing here; a column of this name is written `as`"),
        ("place.and = 'x'", 7, "AND means nothing here; a column of this name is written `and`"),
        ("case ok end", 9, "a value is missing beside 'end'"),
        ("case when ok then 1", 19, "expected END after CASE beside '1'"),
        ("(jobs", 2, "expecting ) beside 'jobs'"),
        ("jobs)", 5, "')' is not expected here"),
        ("tags[]", 6, "a value is missing beside ']'"),
        ("tags[0, 1]", 1, "one item of an array or a map is asked for in [ ], not of array<string>"),
        ("place.'end'", 7, "the name of a field is expected behind the point"),
        ("place.lat()", 7, "the name of a field is expected behind the point"),
        ("9223372036854775808", 1, "a whole number has at most 63 bits"),
        ("1e999", 1, "this number is too large"),
        ("1L", 1, "'1L' is no number; they are written as 1, 1.5 or 1e3"),
        ("1_000", 1, "'1_000' is no number; they are written as 1, 1.5 or 1e3"),
        ("0x1F", 2, "'x1F' is not expected here"),
        ("x'1F'", 2, "'1F' is not expected here"),
        ("r'a'", 2, "'a' is not expected here"),
        ("§", 1, "no column '§'; there are at, attributes, data, jobs, lowest, nothing, ok, order, place, site, tags,"),
        ("(" * (MAX_DEPTH + 1), MAX_DEPTH + 1, f"deeper than {MAX_DEPTH} levels"),
        ("case " * (MAX_DEPTH + 1), 5 * MAX_DEPTH + 1, f"deeper than {MAX_DEPTH} levels"),
        ("end and " * 10 + "(" * (MAX_DEPTH + 1), MAX_DEPTH + 81, f"deeper than {MAX_DEPTH} levels"),
        ("jobs" + "+1" * MAX_LEVELS, 1, f"more than {MAX_LEVELS} operators in a chain"),
        ("tags" + "[0]" * MAX_LEVELS, 1, f"more than {MAX_LEVELS} operators in a chain"),
        ("a" * (MAX_LENGTH + 1), MAX_LENGTH, f"longer than {MAX_LENGTH} characters"),
    ],
)
def test_what_is_no_expression_is_refused_with_its_place(text: str, position: int, reason: str) -> None:
    refused = refusal(text)

    assert (refused.position, refused.reason[: len(reason)]) == (position, reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
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
        ("${site}", "there are no parameters here"),
        (":site", "there are no parameters here"),
        ("@site", "there are no parameters here"),
        ("?", "there are no parameters here"),
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
    ],
)
def test_nothing_leads_out_of_the_columns_and_functions_on_the_list(text: str, reason: str) -> None:
    assert reason in refusal(text).reason


@pytest.mark.parametrize(
    "name",
    ["java_method", "try_reflect", "assert_true", "raise_error", "input_file_name", "current_user", "now", "rand",
     "__import__", "array", "named_struct"],
)  # fmt: skip
def test_functions_of_spark_that_are_not_on_the_list_are_none(name: str) -> None:
    assert refusal(f"{name}(site)").reason.startswith(f"no function '{name}'")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("jobs + 1", types.BIGINT),
        ("jobs + 1.5", types.DOUBLE),
        ("jobs / 2", types.DOUBLE),
        ("-wall", types.DOUBLE),
        ("jobs > wall", types.BOOLEAN),
        ("site in ('a', 'b') and not ok", types.BOOLEAN),
        ("attributes['x']", types.STRING),
        ("tags[0]", types.STRING),
        ("place.lat", types.DOUBLE),
        ("coalesce(null, jobs, 1.5)", types.DOUBLE),
        ("if(ok, 'a', null)", types.STRING),
        ("case when ok then jobs else wall end", types.DOUBLE),
        ("split(site, '-')", ArrayType(types.STRING)),
        ("abs(jobs)", types.BIGINT),
        ("to_date(at)", types.DATE),
        ("date '2024-03-05'", types.DATE),
        ("null", types.NULL),
        ("null is null", types.BOOLEAN),
    ],
)
def test_types_are_known_before_spark_starts(text: str, wanted: DataType) -> None:
    assert expression(text, COLUMNS).type == wanted


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("site + 1", 1, "+ needs number here, not string; texts are joined by ||"),
        ("site = jobs", 1, f"string is not compared with bigint; {CAST.format('bigint')}"),
        ("ok or at > '2024-03-05'", 7, f"timestamp is not compared with string; {CAST.format('timestamp')}"),
        ("tags = tags", 1, "array<string> cannot be compared"),
        ("data < data", 1, "binary cannot be compared"),
        ("1 < jobs < 3", 1, "boolean is not compared with bigint"),
        ("jobs and ok", 1, "AND needs boolean here, not bigint"),
        ("not jobs", 5, "NOT needs boolean here, not bigint"),
        ("ok and true + 1", 8, "+ needs number here, not boolean"),
        ("-site", 2, "- needs number here, not string"),
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
        ("site.x", 6, "string has no fields"),
        ("attributes.x", 12, "map<string,string> has no fields; write ['x']"),
        ("place.lon", 7, "no field 'lon'; there are end, lat"),
        ("site[0]", 1, "one item of an array or a map is asked for in [ ], not of string"),
        ("tags['x']", 6, "items are asked for by bigint, not string"),
        ("attributes[0]", 12, "items are asked for by string, not bigint"),
        ("site in ('a', 1)", 15, f"string is not compared with bigint; {CAST.format('bigint')}"),
        ("jobs is true", 9, "IS NULL, or IS TRUE and IS FALSE of boolean, is expected here"),
        ("cast(tags as string)", 6, "array<string> cannot be cast as string"),
        ("lowe(site)", 1, "no function 'lowe'; did you mean lower?"),
    ],
)
def test_wrong_types_are_refused_with_their_place(text: str, position: int, reason: str) -> None:
    refused = refusal(text)

    assert (refused.position, refused.reason) == (position, reason)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("jobs", "'jobs' is no key: it stands in a function over rows, such as max(jobs)"),
        ("sum(jobs) + jobs", "'jobs' is no key: it stands in a function over rows, such as max(jobs)"),
        ("max(sum(jobs))", "sum is over rows: it is for the step aggregate, and not within another such function"),
        ("lower(count(*))", "lower needs string here, not bigint"),
        ("count()", "rows are counted by count(*)"),
        ("count(site, jobs)", "count takes (any), not 2 arguments"),
        ("count(DISTINCT site, jobs)", f"count(DISTINCT ...) takes ({SINGLE}), not 2"),
        ("count(DISTINCT tags)", f"count(DISTINCT ...) needs {SINGLE} here, not array"),
        ("sum(*)", "STAR is not taken here"),
        ("sum(DISTINCT jobs)", "DISTINCT is not taken here"),
        ("sum(site)", "sum needs number here, not string"),
        ("percentile(jobs, 95)", "percentile needs a share from 0 to 1, written down"),
        ("p95(jobs)", "no function 'p95'; write percentile(x, 0.95)"),
    ],
)
def test_figures_that_cannot_be_are_refused(text: str, reason: str) -> None:
    with pytest.raises(WrongExpression) as raised:
        aggregate(text, COLUMNS, ["site"])

    assert reason in raised.value.reason


@pytest.mark.parametrize(
    "text",
    [
        "ok" + " between false and true" * 60,
        "case " * 18 + "jobs" + " when 1 then 2 when 2 then 3 end" * 18,
        "abs(" * 18 + "jobs" + ")" * 18,
        "cast(cast(" * 9 + "at" + " as string) as timestamp)" * 9,
        "timestamp_seconds(unix_seconds(" * 9 + "at" + "))" * 9,
    ],
)
def test_what_would_be_written_thousands_of_times_for_spark_is_refused(text: str) -> None:
    with pytest.raises(WrongExpression, match="make columns of its parts before"):
        expression(text, COLUMNS)


def test_the_reference_has_every_function_and_type() -> None:
    reference = Path("docs/reference/pipeline.md").read_text()

    assert [name for name in (*FUNCTIONS, *CASTING) if f"| `{name}` |" not in reference] == []
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


@pytest.mark.parametrize(
    "piece",
    [*PIECES, "not ", "- ", "f(", "((", "a[", "case when ", "cast(", "a in (", "a.", "1+", "f((a, ", "timestamp("],
)
def test_long_and_deep_texts_are_refused_or_read_at_once(piece: str) -> None:
    for count in (MAX_DEPTH - 1, 200, MAX_LENGTH):
        for text in (piece * count, (piece * count)[:MAX_LENGTH], (piece * count + "jobs" + ")" * count)[:MAX_LENGTH]):
            try:
                expression(text, COLUMNS)
            except WrongExpression as error:
                assert error.reason


def test_a_tree_is_never_too_deep_to_be_gone_through() -> None:
    deepest = "(" * MAX_DEPTH + "jobs" + ")" * MAX_DEPTH
    assert expression(deepest, COLUMNS).type == types.BIGINT
    assert expression("jobs" + " + 1" * (MAX_LEVELS - 3), COLUMNS).type == types.BIGINT
    assert parse("lower(" * MAX_DEPTH + "site" + ")" * MAX_DEPTH)
