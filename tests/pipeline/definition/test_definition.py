import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.yaml_tree import MAX_BYTES
from ams.pipeline.definition.plans import read_plan
from ams.pipeline.errors import PipelineError, WrongDefinition, WrongOption
from ams.pipeline.job_run import RunPlan

GOOD_DEFINITION = """\
source:
  topic: jobs
  from: 2024-03-05T10:00:00+01:00
  max_messages: 1000
steps:
  - filter: attributes['type'] = 'job'
  - parse:
      format: json
      fields: {site: string, wall: double, tags: [string], at: timestamp}
      required: site
  - derive:
      day: to_date(at)
  - explode: {column: tags, as: tag}
  - join: {file: sites.csv, by: site, fields: {site: string, country: string}}
  - deduplicate: {by: [site, day]}
  - aggregate:
      by: [country, day]
      values: {rows: count(*), wall: sum(wall) / count(*), p95: "percentile(wall, 0.95)"}
  - filter: rows > 1
sink:
  table: walls
  partition_by: day
"""


def plan(folder: Path, text: str, *settings: str) -> RunPlan:
    (folder / "sites.csv").write_text("site,country\nA,NL\nB,FR\n")
    file = folder / "walls.yaml"
    file.write_text(text)
    return read_plan(str(file), settings)


def find_mistakes(folder: Path, text: str) -> list[tuple[int, str]]:
    with pytest.raises(WrongDefinition) as raised:
        plan(folder, text)
    return [(each.line, each.reason) for each in raised.value.findings]


def test_a_definition_becomes_a_plan_that_says_what_it_does(tmp_path: Path) -> None:
    made = plan(tmp_path, GOOD_DEFINITION)

    assert (made.name, made.rows["source"]) == ("walls", "topic jobs startingTimestamp=2024-03-05T09:00:00.000Z")
    assert made.lines[0].split(maxsplit=1)[1] == (
        "topic jobs maxOffsetsPerTrigger=1000 startingTimestamp=2024-03-05T09:00:00.000Z"
    )
    assert [line.split()[0] for line in made.lines] == [
        *("source", "filter", "parse", "derive", "explode", "join", "deduplicate", "aggregate", "filter", "sink")
    ]
    assert [line.split()[0] for line in made.rows["steps"]] == ["filter", "parse", "derive", "explode", "join"]
    assert list(made.rows["files"]) == ["sites.csv"]


def test_everything_that_is_wrong_is_told_at_once_with_its_line(tmp_path: Path) -> None:
    text = """\
source:
  topic: no name
steps:
  - parse:
      format: json
      fields:
        site: strng
        wall: double
        source: string
  - derive:
      b: wal
  - explod: {}
  - filter: wall
  - aggregate: {by: [nowhere], values: {x: wall, y: sum(site), z: count()}}
sink:
  table: ../../etc
"""
    assert find_mistakes(tmp_path, text) == [
        (2, "'no name' is no name of a topic or subscription"),
        (7, "no type 'strng'; did you mean string?, [TYPE], or names with types"),
        (9, "'source' is taken: every row has it"), (11, "no column 'wal'; did you mean wall?"),
        (12, "no step 'explod'; did you mean explode?"), (13, "filter needs boolean, not double"),
        (14, "no column 'nowhere'; there are attributes, b, site, source, wall"),
        (14, "'wall' is no key: it stands in a function over rows, such as max(wall)"),
        (14, "rows are counted by count(*)"),
        (16, "a name in the folder of the run is expected, such as sites, and not rows"),
    ]  # fmt: skip


@pytest.mark.parametrize(("said", "line", "column"), [
    ("wal > 1", 9, 13), ("'wall > 1 and  site = ''a'' and wal > 1'", 9, 45),
    ('"wall > 1 and \\"a\\" = site\\tand wal > 1"', 9, 45), ("|\n      wall > 1\n        and wal > 1", 11, 13),
    (">-\n      wall > 1\n\n      and wal > 1", 12, 11), ("wall > 1\n      and wal > 1", 10, 11),
    ("wall > 1 and", 9, 22),
])  # fmt: skip
def test_a_mistake_in_an_expression_has_its_line_and_column(tmp_path: Path, said: str, line: int, column: int) -> None:
    text = GOOD_DEFINITION.replace("    - filter: rows > 1\n", "").replace(
        "  - derive:", f"  - filter: {said}\n  - derive:", 1
    )
    text = text.replace("      required: site\n", "").replace("  from: 2024-03-05T10:00:00+01:00\n", "")

    with pytest.raises(WrongDefinition) as raised:
        plan(tmp_path, text)

    first = raised.value.findings[0]
    assert (first.line, first.column) == (line, column), text.splitlines()[first.line - 1][(first.column or 1) - 1 :]
    assert f"walls.yaml:{line}:{column}: " in str(raised.value)


START = "source: {topic: jobs}\n"
FIELDS = "{site: string, wall: double, tags: [string], m: 'map<string, string>'}"
JSON = "steps: [{parse: {format: json, fields: " + FIELDS + "}}, %s]\n"
END = "sink: {console: 5}\n"
WRONG_SOURCES = [
    ("[topic]", "names with values are expected here, not a list"),
    ("{}", "one of topic, topics, subscription must be said, and only one"),
    ("{topic: a, subscription: b}", "one of topic, topics, subscription must be said, and only one"),
    ("{subscription: [a, b]}", "only one subscription can be read"),
    ("{topics: []}", "at least one name is expected here"),
    ("{topic: a, from: yesterday}", "'yesterday' is neither earliest, latest nor a time"),
    ("{topic: a, from: 0001-01-01T00:00+14:00}", "is neither earliest, latest nor a time"),
    ("{topic: a, max_messages: 0}", "a whole number from 1 to 1000000000 is expected here"),
    ("{topic: a, token: secret}", "unknown key 'token'"),
]
WRONG_SINKS = [
    ("{}", "one of table, postgres, topic, console must be said"),
    ("{console: 1, topic: x}", "one of table, postgres, topic, console must be said, not several"),
    ("{table: rows}", "a name in the folder of the run is expected"),
    ("{table: a, partition_by: data}", "data is binary, which would make too many folders"),
    ("{postgres: 'postgresql://u:p@h/d', key: topic}", "the name of a table is expected"),
    ("{postgres: t}", "key must be said"),
    ("{postgres: t, key: topic}", "attributes is a map: select what goes into the table"),
    ("{topic: out, data: offset}", "a message holds string or binary, not bigint"),
    ("{topic: out, attributes: {n: offset}}", "attribute n is bigint; cast(... as string) makes text of it"),
    ("{topic: out, ordering_key: offset}", "an ordering key is string, not bigint"),
    ("{topic: out, data: data, attributes: {k: ordering_key}}", "ordering_key"),
    ("{table: out, ordering_key: data}", "ordering_key is not of a sink table"),
]
WRONG_STEPS = [
    ("{parse: {format: json, fields: {a: string}}}", "messages are parsed once"),
    ("{select: [site, nowhere]}", "no column 'nowhere'"), ("{select: [site, site]}", "'site' is said twice"),
    ("{derive: {source: site}}", "'source' is taken"), ("{derive: {'a b': site}}", "'a b' is no name of a column"),
    ("{explode: {column: site}}", "site is no array but string"),
    ("{deduplicate: {by: m}}", "m is a map, which cannot be a key"),
    ("{deduplicate: {by: site, keep: best}}", "'best' is none of first, last"),
    ("{aggregate: {values: {}}}", "at least one name with a figure is expected here"),
    ("{filter: {a: b}}", "text is expected here, not names with values"),
    ("{filter: 'true', select: [site]}", "a step is one word with what it needs"),
    ("{join: {file: sites.csv, by: site, fields: {site: string, town: string}}}", "has no column town"),
    ("{join: {file: sites.csv, by: site, fields: {site: bigint}}}", "site is string in the rows"),
    ("{join: {file: sites.csv, by: site, fields: {town: string}}}", "site is string in the rows"),
    ("{derive: {Site: upper(site)}}", "'Site' and 'site' are one to Spark"),
    ("{select: {a: site, A: site}}", "'A' and 'a' are one to Spark"),
    ("{explode: {column: tags, as: Wall}}", "'Wall' and 'wall' are one to Spark"),
    ("{aggregate: {by: site, values: {SITE: count(*)}}}", "'SITE' and 'site' are one to Spark"),
    ("{join: {file: sites.csv, by: site, fields: {site: string, Wall: string}}}", "'Wall' and 'wall' are one to Spark"),
    ("{join: {file: sites.csv, by: site, fields: {site: string, wall: string}}}", "a column wall already"),
]  # fmt: skip
"""Behind `parse`."""
WRONG_PARSING = [
    ("{derive: {a: '1'}}, {parse: {format: json}}", "only filter can stand before parse"),
    ("{parse: {format: xml}}", "'xml' is none of json, avro, protobuf, text"),
    ("{parse: {format: json}}", "fields must be said"), ("{parse: {format: avro}}", "schema must be said"),
    ("{parse: {format: text, fields: {a: string, b: string}}}", "several fields need a separator"),
    ("{parse: {format: text, fields: {a: [string]}}}", "text holds no array"),
    ("{parse: {format: protobuf, fields: {a: string}}}", "schema must be said"),
    ("{parse: {format: protobuf, fields: {a: string}, schema: sites.csv}}", "line 1: Expected top-level statement"),
    ("{parse: {format: avro, schema: none.avsc}}", "No such file or directory"),
    ("{parse: {format: json, fields: {a: {b: string, B: string}}}}", "'B' and 'b' are one to"),
]  # fmt: skip
WRONG_DEFINITIONS = [
    ("{}", "'source' must be said"), ("[1]", "names with values are expected here, not a list"),
    (START, "'sink' must be said"),
    (START + "job: archive\n" + END, "unknown key 'source'; there are name, job, options"),
    ("name: a b\nsource: {topic: jobs}\n" + END, "'a b' is no name"),
    (START + JSON % "{filter: 'true'}" + "sink: {topic: out, ordering_key: ordering_key}\n", "ordering_key"),
    (START + "steps: [{select: [data]}]\nsink: {topic: out, ordering_key: ordering_key}\n", "no column"),
    (START + JSON % "{deduplicate: {by: site}}" + "sink: {topic: out}\n", "it cannot be published"),
    (START + JSON % "{select: [site]}" + "sink: {postgres: t, key: source}\n", "no column 'source'"),
    *((f"source: {said}\n" + END, reason) for said, reason in WRONG_SOURCES),
    *((START + f"sink: {said}\n", reason) for said, reason in WRONG_SINKS),
    *((START + JSON % said + END, reason) for said, reason in WRONG_STEPS),
    *((START + f"steps: [{said}]\n" + END, reason) for said, reason in WRONG_PARSING),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), WRONG_DEFINITIONS)
def test_each_mistake_has_its_reason(tmp_path: Path, text: str, reason: str) -> None:
    assert any(reason in told for _, told in find_mistakes(tmp_path, text)), find_mistakes(tmp_path, text)


EXPECT_DEFINITION = START + JSON % "{expect: %s}" + END


@pytest.mark.parametrize(("said", "reason"), [
    ("[]", "at least one expectation is expected here"),
    ("{}", "one of not_null, range, unique, condition, share must be said"),
    ("{not_null: site, unique: site}", "must be said, not several"),
    ("{not_null: []}", "at least one column is expected here"),
    ("{not_null: [sit]}", "no column 'sit'; did you mean site?"),
    ("{unique: site, nulls: site}", "unknown key 'nulls'; there are not_null, range, unique, condition, share"),
    ("{range: {min: 1}}", "column must be said, and min or max, or both"),
    ("{range: {column: wall}}", "column must be said, and min or max, or both"),
    ("{range: {column: wall, max: soon}}", "no column 'soon'; there are none"),
    ("{range: {column: site, min: 1}}", "site is string, which is not compared with bigint"),
    ("{range: {column: m, min: 'null'}}", "m is map<string,string>, which is not compared with null"),
    ("{unique: m}", "m is a map, which cannot be a key"),
    ("{condition: wall}", "condition needs boolean, not double"),
    ("{share: {condition: wall > 1}}", "condition and at_least must be said"),
    ("{share: {condition: wall > 1, at_least: 90}}", "a share from 0 to 1 is expected here, such as 0.95"),
    ("{unique: site, on_failure: ignore}", "'ignore' is none of set_aside, fail, warn"),
    ("{share: {condition: wall > 1, at_least: 1}, on_failure: set_aside}", "'set_aside' is none of fail, warn"),
    ("[{unique: site}, {unique: site}]", "there is an expectation 'unique site' already"),
    ('{unique: site, name: "a\\nb"}', "the name of an expectation is one line of at most 200 characters"),
])  # fmt: skip
def test_each_mistake_in_what_is_expected_has_its_reason(tmp_path: Path, said: str, reason: str) -> None:
    told = find_mistakes(tmp_path, EXPECT_DEFINITION % said)
    assert [reason in each for _, each in told] == [True], told


def test_nothing_is_set_aside_of_a_result(tmp_path: Path) -> None:
    steps = "{aggregate: {by: [site], values: {n: count(*)}}}, {expect: {unique: n, on_failure: set_aside}}"
    assert find_mistakes(tmp_path, START + JSON % steps + END) == [
        (2, "behind steps over all rows none is set aside: expect it before, or filter")
    ]


def test_expectations_that_set_nothing_aside_may_change(tmp_path: Path) -> None:
    """With `--accept-change`: the rows do not depend on them."""
    row = "{not_null: site}"
    plans = [
        plan(tmp_path, EXPECT_DEFINITION % f"[{said}]")
        for said in (row, f"{row}, {{share: {{condition: wall > 1, at_least: 0.9}}}}", "{unique: site}")
    ]

    assert plans[0].rows == plans[1].rows != plans[2].rows
    assert plans[1].options == {**plans[0].options, "expectations": ["fail expectation share wall > 1, of 90 %"]}


@pytest.mark.parametrize("step", [
    "{aggregate: {by: [site], values: {n: coun(*)}}}, {filter: n > 1}",
    "{derive: {n: coun(wall)}}, {aggregate: {by: [site, n], values: {m: sum(n)}}}",
    "{select: {site: site, n: coun(wall)}}, {deduplicate: {by: [site, n]}}",
])  # fmt: skip
def test_one_mistake_is_told_once(tmp_path: Path, step: str) -> None:
    found = find_mistakes(tmp_path, START + JSON % step + "sink: {table: a}\n")
    assert [reason.partition(";")[0] for _, reason in found] == ["no function 'coun'"]


def record(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": "r", "fields": fields}


@pytest.mark.parametrize(("schema", "reason"), [
    ("x", "the schema is not JSON"), ('"string"', "the schema must be of a record"),
    (record({"name": "a"}), "not an Avro schema"),
    (record({"name": "a", "type": ["string", "int"]}), "a union of several"),
    (record({"name": "a", "type": ["null", "r"]}), "record r holds itself"),
    (record({"name": "a", "type": {"type": "array", "items": "null"}}), "null has no column type"),
    (record({"name": "source", "type": "int"}), "'source' is taken"),
    (record({"name": "a", "type": "int"}, {"name": "A", "type": "int"}), "'a' and 'A' are one to Spark"),
])  # fmt: skip
def test_avro_schemas_that_no_columns_can_be_made_of_are_refused(tmp_path: Path, schema: Any, reason: str) -> None:
    (tmp_path / "s.avsc").write_text(schema if isinstance(schema, str) else json.dumps(schema))
    text = START + "steps: [{parse: {format: avro, schema: s.avsc}}]\n" + END
    assert reason in find_mistakes(tmp_path, text)[0][1]


def test_an_avro_schema_gives_the_columns(tmp_path: Path) -> None:
    schema = record(
        {"name": "timestamp", "type": "string"}, {"name": "message", "type": ["null", "string"], "default": None},
        {"name": "tags", "type": ["null", {"type": "map", "values": ["null", "string"]}]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    )  # fmt: skip
    (tmp_path / "s.avsc").write_text(json.dumps(schema))
    steps = "steps: [{parse: {format: avro, schema: s.avsc}}, {filter: \"tags['vo'] = 'x' and year(at) = 1\"}]\n"

    assert plan(tmp_path, START + steps + END).name == "walls"


def test_a_file_that_says_nothing_or_too_much_is_refused(tmp_path: Path) -> None:
    assert find_mistakes(tmp_path, "") == [(1, "it says nothing")]
    with pytest.raises(Exception, match=f"larger than {MAX_BYTES} bytes"):
        plan(tmp_path, "#" * (MAX_BYTES + 1))


def test_a_file_may_name_a_job_whose_options_settings_win_over(tmp_path: Path) -> None:
    text = "job: archive\noptions: {topics: [jobs], closed_after: 3}\n"
    made = plan(tmp_path, text, "closed_after=5", "path=2024")  # a path is text, whatever it looks like
    assert made.name == "archive"
    assert {'option   topics = ["jobs"]', "option   closed_after = 5", 'option   path = "2024"'} <= set(made.lines)


def test_wrong_options_of_a_job_are_told_with_their_lines(tmp_path: Path) -> None:
    text = "job: archive\noptions:\n  closed_after: [1]\n  merge: perhaps\n  colour: red\n"

    assert [(line, reason.partition(";")[0]) for line, reason in find_mistakes(tmp_path, text)] == [
        (3, "option closed_after: Expected int, got array"), (4, "option merge: Expected bool, got str"),
        (5, "option colour: there is no such option"),
    ]  # fmt: skip
    assert "there is no job 'nothing'" in find_mistakes(tmp_path, "job: nothing\n")[0][1]


@pytest.mark.parametrize(("settings", "reason"), [
    (("closed_after=x",), "option closed_after: Expected int, got str"),
    (("closed_after=-1",), "option closed_after: Expected int >= 0"),
    (("nothing",), "'nothing' must look like KEY=VALUE"), (("closed_after=[",), "not YAML"),
])  # fmt: skip
def test_wrong_settings_name_their_option(settings: tuple[str, ...], reason: str) -> None:
    with pytest.raises(WrongOption, match=reason):
        read_plan("archive", settings)


@settings(max_examples=60)
@given(st.text(alphabet="aeps:{}[],'- \n\"()=1", max_size=80))
def test_any_text_is_a_definition_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    file = tmp_path_factory.getbasetemp() / "any.yaml"
    file.write_text(START + "steps:\n  - filter: " + text + "\n" + END)
    try:
        read_plan(str(file))
    except (PipelineError, ValueError) as error:
        assert str(error)
    except Exception as error:
        assert type(error).__name__ == "BadDocument"
