"""The job `schema-check`."""

import io
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest
from fastavro import schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ams.client import Message, wire
from ams.core.errors import InvalidInput
from ams.core.messages import message
from ams.pipeline.definition.plans import read_plan
from ams.pipeline.errors import CheckFailed, WrongOption
from ams.pipeline.jobs.archive import archive_table, dated
from ams.pipeline.jobs.schema_check import Options, Rules, Verdicts, of_files, run
from ams.pipeline.running import Run
from ams.validation import compile_stored
from ams.validation.cost import Budget
from tests.pipeline.garden import Garden

READING = {
    "type": "object",
    "properties": {"site": {"type": "string", "maxLength": 8}, "celsius": {"type": "number"}},
    "required": ["site"],
}
ATTRIBUTES = {"required": ["origin"], "patterns": {"origin": "^[A-Z]+$"}}
RULES = Rules("json", json.dumps(READING), json.dumps(ATTRIBUTES))
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["site", "celsius", "other"]), inner),
    max_leaves=5,
)


def of_the_service(rules: Rules, offset: int, data: bytes, attributes: dict[str, str]) -> str | None:
    compiled = compile_stored(rules.type, rules.payload, rules.attributes)
    try:
        compiled.check(offset, message(b64encode(data).decode(), attributes), Budget())
    except InvalidInput as error:
        return error.message
    return None


@settings(deadline=None)
@given(JSON.map(lambda value: json.dumps(value).encode()) | st.binary(), st.sampled_from(["ATHENS", "athens", None]))
def test_verdicts_are_those_of_the_service(data: bytes, origin: str | None) -> None:
    attributes = {} if origin is None else {"origin": origin}

    with Verdicts(RULES) as verdicts:
        assert verdicts.refusal(7, data, attributes) == of_the_service(RULES, 7, data, attributes)


def test_a_datum_of_avro_is_read_as_the_service_reads_it() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "site", "type": "string"}]}
    datum = io.BytesIO()
    schemaless_writer(datum, schema, {"site": "athens"})

    with Verdicts(Rules("avro", json.dumps(schema), None)) as verdicts:
        assert verdicts.refusal(0, datum.getvalue(), {}) is None
        refusal = verdicts.refusal(3, datum.getvalue() + b"x", {})
        assert refusal == "Message 3 is not valid.1 bytes left over after the datum"


def test_what_takes_long_is_checked_apart() -> None:
    """A list of unique items is looked at far more often than others may wait for."""
    rules = Rules("json", json.dumps({"uniqueItems": True, "items": {"type": "integer"}}), None)
    large = json.dumps([{"n": number} for number in range(60_000)]).encode()

    with Verdicts(rules) as verdicts:
        found = verdicts.refusal(5, large, {})
        assert found is not None
        assert found.startswith("Message 5 ")
        assert verdicts.refusal(6, b"[1, 2]", {}) is None


def file(folder: Path, content: Any) -> str:
    path = folder / "schema.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_schema_is_read_from_files(tmp_path: Path) -> None:
    rules = of_files("json", file(tmp_path, READING), "")

    assert (rules.type, json.loads(rules.payload or ""), rules.attributes) == ("json", READING, None)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("[1]", "option file: .* is no JSON object: "),
        ("{", "option file: .* is no JSON object: "),
        ({"$ref": "https://schemas.example/other"}, "option file: "),
    ],
)
def test_a_file_that_is_no_schema_is_refused(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(WrongOption, match=reason):
        of_files("json", file(tmp_path, content), "")
    with pytest.raises(WrongOption, match="option attributes_file: .*none.json: No such file"):
        of_files("json", "", str(tmp_path / "none.json"))


def test_options_that_cannot_be_name_themselves() -> None:
    with pytest.raises(WrongOption, match="option schema: give a schema by its name, or files, one of the two"):
        Options(archive="a")
    with pytest.raises(WrongOption, match="option type: Invalid enum value 'xml'"):
        read_plan("schema-check", ["archive=a", "file=f", "type=xml"])
    with pytest.raises(WrongOption, match="option most: Expected int >= 0"):
        read_plan("schema-check", ["archive=a", "file=f", "most=-1"])


SCHEMA = {"type": "object", "required": ["magnitude"]}


@pytest.mark.long
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
