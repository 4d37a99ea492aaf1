"""Jobs on archives: `archive`, `archive-check`, `replay` and `schema-check`."""

import io
import json
import re
import threading
import time
from base64 import b64encode
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable
from fastavro import schemaless_writer
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from ams.client import Message, wire
from ams.core.errors import InvalidInput
from ams.core.messages import message
from ams.pipeline.errors import ChangedJob, CheckFailed, StaleCheckpoint, WrongOption, WrongTable
from ams.pipeline.jobs import replay as replay_job
from ams.pipeline.jobs import schema_check
from ams.pipeline.jobs.archive import (
    ArchiveJobOptions,
    CheckOptions,
    Selection,
    archive_table,
    gap_text,
    read_archive,
    run,
    run_check,
    steps,
    with_date,
)
from ams.pipeline.plans import read_plan
from ams.pipeline.run import Run
from ams.pipeline.service_calls import Service
from ams.pipeline.topic_archive import Archiver, alone
from ams.tables.location import Location
from ams.validation.compiled import compile_stored
from ams.validation.cost import Budget
from tests.pipeline.delta import by_duckdb, files_of
from tests.pipeline.garden import Garden, make_messages

Output = pytest.CaptureFixture[str]


def test_gaps_and_doubles_are_told(spark: SparkSession) -> None:
    offsets = [("meadow", "plants", number) for number in (0, 1, 3, 4, 4, 9)] + [("meadow", "stones", 5)]
    rows = steps(spark.createDataFrame(offsets, "project string, topic string, offset long")).collect()

    assert sorted(gap_text((row.project, row.topic, row.previous, row.offset)) for row in rows) == [
        "meadow/plants: offset 2 is missing", "meadow/plants: offset 4 is there twice",
        "meadow/plants: offsets 5 to 8 are missing",
    ]  # fmt: skip


DAY = 86_400_000


@pytest.mark.long
def test_archives_are_merged_and_checked(spark: SparkSession, garden: Garden, tmp_path: Path, capsys: Output) -> None:
    path = tmp_path / "archive"

    def archive(**options: Any) -> None:
        run(
            Run(spark, tmp_path / "work", garden.options),
            ArchiveJobOptions(path=str(path), batch_messages=3, **options),
        )

    odd = Message(bytes(range(256)), {"naïve": "☃", "": "x=y"})
    garden.topic("plants", [odd, *make_messages(4)])
    garden.topic("stones", make_messages(1))
    archive(merge=False)
    garden.served.clock.advance(DAY)
    garden.publish("plants", make_messages(2, 4))
    garden.topic("birds", make_messages(1))
    archive(merge=False)

    assert by_duckdb(path, 'SELECT topic, list("offset" ORDER BY "offset") FROM rows GROUP BY 1 ORDER BY 1') == [
        ("birds", [0]), ("plants", [0, 1, 2, 3, 4, 5, 6]), ("stones", [0]),
    ]  # fmt: skip
    first = 'SELECT data, attributes, message_id, project, publish_time::DATE = date FROM rows ORDER BY topic, "offset"'
    assert by_duckdb(path, first)[1] == (odd.data, dict(odd.attributes), "0", garden.name, True)
    assert by_duckdb(path, "SELECT count(DISTINCT date) FROM rows") == [(2,)]
    before = by_duckdb(path, "SELECT * FROM rows ORDER BY ALL")

    archive(closed_after=0)

    assert by_duckdb(path, "SELECT * FROM rows ORDER BY ALL") == before
    assert "archive: merged 2 files of days that are closed" in "".join(capsys.readouterr())
    assert len([name for name in files_of(path) if "topic=plants" in name and "/merged-" in name]) == 1
    selected = read_archive(spark, str(path), Selection(topics=("pl*",), last=str(before[0][-1])))
    assert {(row.topic, row.offset) for row in selected.collect()} <= {("plants", number) for number in range(7)}

    check_finds(spark, path, capsys)


def check_finds(spark: SparkSession, path: Path, capsys: Output) -> None:
    """Check that the archive is accepted, and that every damage to it is noticed."""

    def check(**options: Any) -> str:
        run_check(Run(spark, path.parent / "checking", {}), CheckOptions(archive=str(path), **options))
        return capsys.readouterr().out

    assert re.search(r"/plants +7 +0 +6 ", check())
    assert "plants" not in check(topics=("stones",))

    [stones] = [name for name in files_of(path) if "topic=stones" in name]
    content = (path / stones).read_bytes()
    changed = bytearray(content)
    changed[40] ^= 1  # in the first page, which has a checksum
    for damaged in (changed, content[:-1], None):
        (path / stones).write_bytes(damaged) if damaged else (path / stones).unlink()
        with pytest.raises(CheckFailed, match="1 thing is not as it should be in"):
            check()
        assert "topic=stones" in capsys.readouterr().out


@pytest.mark.parametrize(("make", "reason"), [
    (lambda: ArchiveJobOptions(topics=()), "option topics: names no topic"),
    (lambda: read_plan("archive", ["file_mib=0"]), "option file_mib: Expected int >= 1"),
    (lambda: read_plan("archive", ["batch_messages=0"]), "option batch_messages: Expected int >= 1"),
    (lambda: CheckOptions(archive="a", first="May"), "option first: 'May' is no day such as 2024-03-05"),
])  # fmt: skip
def test_options_that_cannot_be_name_themselves(make: Callable[[], object], reason: str) -> None:
    with pytest.raises(WrongOption, match=re.escape(reason)):
        make()


def by_spark(spark: SparkSession, garden: Garden, path: Path) -> None:
    run(Run(spark, path.parent / "work", garden.options), ArchiveJobOptions(path=str(path), batch_messages=3))


def without_spark(garden: Garden, path: Path) -> None:
    with alone(Location.of(path)), Service(garden.access) as service:
        archiver = Archiver(service, Location.of(path), threading.Event(), print, garden.name, batch_messages=3)
        archiver.begin()
        archiver.run()


@pytest.mark.long
def test_both_write_the_same_rows_apart(spark: SparkSession, garden: Garden, tmp_path: Path, capsys: Output) -> None:
    ours, of_spark = tmp_path / "ours", tmp_path / "spark"
    garden.topic("plants", [Message(bytes(range(256)), {"naïve": "☃", "": "x=y"}, "bed 4"), *make_messages(4)])
    garden.served.clock.advance(DAY)
    garden.publish("plants", make_messages(3))
    garden.topic("stones", make_messages(2))
    by_spark(spark, garden, of_spark)
    without_spark(garden, ours)

    one, other = DeltaTable(ours), DeltaTable(of_spark)
    assert one.schema() == other.schema()
    assert one.metadata().partition_columns == other.metadata().partition_columns
    assert one.protocol() == other.protocol()
    rows = "SELECT * FROM rows ORDER BY ALL"
    assert by_duckdb(ours, rows) == by_duckdb(of_spark, rows)
    assert len(by_duckdb(ours, "SELECT DISTINCT topic, date FROM rows")) == 3
    read = [sorted(map(str, read_archive(spark, str(each)).collect())) for each in (ours, of_spark)]
    assert read[0] == read[1]
    for path in (ours, of_spark):
        run_check(Run(spark, tmp_path / "checking", {}), CheckOptions(archive=str(path)))
        again = Run(spark, tmp_path / f"replay-{path.name}", garden.options)
        target = {"to": f"again-{path.name}", "create_topics": True}
        replay_job.run(again, replay_job.ReplayOptions(archive=str(path), topic=f"{garden.name}/plants", **target))
        assert again.progress.messages == 8
    capsys.readouterr()
    with pytest.raises(WrongTable, match="is written by `ams archive`, whose place is in the table"):
        by_spark(spark, garden, ours)
    with pytest.raises(WrongTable, match="is written by the job archive, whose place is in its own checkpoint"):
        without_spark(garden, of_spark)


REPLAY_OPTIONS = {"archive": "a", "topic": "GARDEN/plants", "to": "again"}


@pytest.mark.parametrize(("options", "said"), [
    ({"topic": "plants"}, "option topic: 'plants' is no PROJECT/TOPIC"),
    ({"topic": "a/b/c"}, "option topic: 'a/b/c' is no PROJECT/TOPIC"),
    ({"to": "a@b"}, "option to: 'a@b' is no name"), ({"name": ""}, "option name: '' is no name"),
    ({"start": "2024-03-05"}, "option start: '2024-03-05' is no time such as"),
    ({"start": "0001-01-01T00:00:00+14:00"}, "option start: '0001-01-01T00:00:00.14:00' is no time such as"),
    ({"stop": "soon"}, "option stop: 'soon' is no time"),
])  # fmt: skip
def test_what_cannot_be_replayed_is_told(options: dict[str, object], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        replay_job.ReplayOptions(**{**REPLAY_OPTIONS, **options})
    with pytest.raises(WrongOption, match="option slice: Expected int >= 1"):
        read_plan("replay", [*(f"{name}={value}" for name, value in REPLAY_OPTIONS.items()), "slice=0"])


def test_progress_is_kept_and_of_one_replay_only(tmp_path: Path) -> None:
    progress = replay_job.ReplayProgress(replay="r/1", messages=5, start=0, stop=9, next=3, begun=1.0)
    assert replay_job.read_progress(tmp_path / "work", "r/1") is None

    replay_job.keep(tmp_path / "work", progress)

    assert replay_job.read_progress(tmp_path / "work", "r/1") == progress
    with pytest.raises(ChangedJob, match="of a replay with other options"):
        replay_job.read_progress(tmp_path / "work", "r/2")


def test_a_replay_that_was_left_too_long_ago_is_refused() -> None:
    hour_ago = replay_job.ReplayProgress(replay="r/1", messages=5, start=0, stop=9, next=3, begun=time.time() - 3600)

    replay_job.refuse_stale(hour_ago, 4000)
    replay_job.refuse_stale(msgspec.structs.replace(hour_ago, next=9), 100)
    with pytest.raises(StaleCheckpoint, match="was left 1 hours ago within offsets 3 and following"):
        replay_job.refuse_stale(hour_ago, 1800)


@pytest.mark.long
def test_a_range_is_published_again_in_order_and_marked(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    garden.topic("plants", make_messages(3), [Message(b"3", {"site": "HILL"}, "bed 4")], make_messages(4, 4))
    messages = spark.read.format("ams").options(**garden.options, topic="plants").load()
    archive_table(spark, str(tmp_path / "archive")).append(with_date(messages.repartition(2)), 0, "query")
    third = garden.client.call(wire.read_topic(garden.name, "plants", start=3, most=1))[0].publish_time
    told: dict[str, Any] = {"archive": str(tmp_path / "archive"), "topic": f"{garden.name}/plants", "to": "again"}
    options = replay_job.ReplayOptions(**told, start=third, to_offset=7, slice=3, create_topics=True)
    replay = Run(spark, tmp_path / "work", garden.options)

    replay_job.run(replay, options)

    again = garden.client.call(wire.read_topic(garden.name, "again"))
    assert [each.payload() for each in again] == [b"3", b"4", b"5", b"6"]
    assert [each.ordering_key for each in again] == ["bed 4", "", "", ""]
    assert again[0].attributes == {
        "site": "HILL", "ams-replayed-from": f"{garden.name}/plants", "ams-replayed-offset": "3",
        "ams-replayed-time": third.replace("Z", ".000Z"),
    }  # fmt: skip

    # Killed after publishing everything and before recording that: nothing is published twice.
    replayed = json.loads((tmp_path / "work" / "replay.json").read_text())["replay"]
    progress = replay_job.read_progress(tmp_path / "work", replayed)
    assert progress is not None
    assert progress.is_done
    replay_job.keep(tmp_path / "work", msgspec.structs.replace(progress, next=progress.start, begun=time.time()))
    replay_job.run(replay, options)
    assert len(garden.client.call(wire.read_topic(garden.name, "again"))) == 4


READING = {
    "type": "object", "properties": {"site": {"type": "string", "maxLength": 8}, "celsius": {"type": "number"}},
    "required": ["site"],
}  # fmt: skip
ATTRIBUTES = {"required": ["origin"], "patterns": {"origin": "^[A-Z]+$"}}
RULES = schema_check.SchemaParts("json", json.dumps(READING), json.dumps(ATTRIBUTES))
JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["site", "celsius", "other"]), inner), max_leaves=5,
)  # fmt: skip


def of_the_service(rules: schema_check.SchemaParts, offset: int, data: bytes, attributes: dict[str, str]) -> str | None:
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
    with schema_check.Verdicts(RULES) as verdicts:
        assert verdicts.refusal(7, data, attributes) == of_the_service(RULES, 7, data, attributes)


def test_a_datum_of_avro_is_read_as_the_service_reads_it() -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "site", "type": "string"}]}
    datum = io.BytesIO()
    schemaless_writer(datum, schema, {"site": "athens"})

    with schema_check.Verdicts(schema_check.SchemaParts("avro", json.dumps(schema), None)) as verdicts:
        assert verdicts.refusal(0, datum.getvalue(), {}) is None
        refusal = verdicts.refusal(3, datum.getvalue() + b"x", {})
        assert refusal == "Message 3 is not valid.1 bytes left over after the datum"


def test_a_file_in_protocol_buffers_says_what_payloads_must_be(tmp_path: Path) -> None:
    (tmp_path / "m.proto").write_text('syntax = "proto3"; message M { string a = 1; }')
    with schema_check.Verdicts(schema_check.of_files("protobuf", str(tmp_path / "m.proto"), "")) as verdicts:
        assert verdicts.refusal(0, b"\x0a\x01x", {}) is None
        assert verdicts.refusal(3, b"\x0a", {}) is not None


def test_what_takes_long_is_checked_apart() -> None:
    """A list of unique items is compared for longer than other messages may wait."""
    rules = schema_check.SchemaParts("json", json.dumps({"uniqueItems": True, "items": {"type": "integer"}}), None)
    large = json.dumps([{"n": number} for number in range(60_000)]).encode()

    with schema_check.Verdicts(rules) as verdicts:
        found = verdicts.refusal(5, large, {})
        assert found is not None
        assert found.startswith("Message 5 ")
        assert verdicts.refusal(6, b"[1, 2]", {}) is None


def file(folder: Path, content: Any) -> str:
    path = folder / "schema.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return str(path)


def test_a_schema_is_read_from_files(tmp_path: Path) -> None:
    rules = schema_check.of_files("json", file(tmp_path, READING), "")
    assert (rules.type, json.loads(rules.payload or ""), rules.attributes) == ("json", READING, None)


@pytest.mark.parametrize(("content", "reason"), [
    ("[1]", "option file: .* is no JSON object: "), ("{", "option file: .* is no JSON object: "),
    ({"$ref": "https://schemas.example/other"}, "option file: "),
])  # fmt: skip
def test_a_file_that_is_no_schema_is_refused(tmp_path: Path, content: Any, reason: str) -> None:
    with pytest.raises(WrongOption, match=reason):
        schema_check.of_files("json", file(tmp_path, content), "")
    with pytest.raises(WrongOption, match="option attributes_file: .*none.json: No such file"):
        schema_check.of_files("json", "", str(tmp_path / "none.json"))


def test_options_of_a_schema_that_cannot_be_name_themselves() -> None:
    with pytest.raises(WrongOption, match="option schema: give a schema by its name, or files, one of the two"):
        schema_check.SchemaCheckOptions(archive="a")
    with pytest.raises(WrongOption, match="option type: Invalid enum value 'xml'"):
        read_plan("schema-check", ["archive=a", "file=f", "type=xml"])
    with pytest.raises(WrongOption, match="option most: Expected int >= 0"):
        read_plan("schema-check", ["archive=a", "file=f", "most=-1"])


@pytest.mark.long
def test_an_archive_is_held_to_a_schema(spark: SparkSession, garden: Garden, tmp_path: Path, capsys: Output) -> None:
    garden.topic("stars", [Message(b'{"magnitude": 4.8}'), Message(b"{}"), Message(b"a secret"), Message(b"{}")])
    garden.client.call(wire.create_schema(garden.name, "star", {"type": "object", "required": ["magnitude"]}))
    stars = spark.read.format("ams").options(**garden.options, topic="stars").load()
    archive = str(tmp_path / "archive")
    archive_table(spark, archive).append(with_date(stars), 0, "1f0c9a7e")
    job = Run(spark, tmp_path / "work", garden.options)
    capsys.readouterr()

    with pytest.raises(CheckFailed, match="3 of 4 messages would be refused"):
        schema_check.run(job, schema_check.SchemaCheckOptions(archive=archive, schema="star", most=2))

    dry_run = garden.client.call(wire.dry_run(garden.name, "star", "stars"))
    assert dry_run.reasons[0].reason == "Message 1 data is not valid,(root): magnitude is required"
    name = f"{garden.name}/stars"
    assert capsys.readouterr().out.splitlines()[-4:] == [
        "TOPIC".ljust(len(name)) + "  CHECKED  REFUSED", f"{name}        4        3",
        *(f"{name} {each.message_id}: {each.reason}" for each in dry_run.reasons[:2]),
    ]  # fmt: skip

    (tmp_path / "any.json").write_text(json.dumps({"title": "anything"}))
    with pytest.raises(CheckFailed, match="1 of 4 messages would be refused"):
        schema_check.run(job, schema_check.SchemaCheckOptions(archive=archive, file=str(tmp_path / "any.json")))
    assert "secret" not in capsys.readouterr().out
