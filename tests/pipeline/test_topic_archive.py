"""`ams archive` without its command line: the messages in its table after faults of topics and runs."""

import itertools
import re
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ams.client import Message
from ams.client.errors import NotAms, NotFound
from ams.pipeline.errors import Busy, DataLoss, WrongTable
from ams.pipeline.messages import ARCHIVE, PARTITIONS
from ams.pipeline.range_reader import Fetch
from ams.pipeline.service_calls import Service
from ams.pipeline.topic_archive import Archiver, alone
from ams.tables import log, upkeep
from ams.tables.location import Location
from ams.tables.table import Table, open_table
from tests.faults.pipeline.kills import commit_appears, run_through_kills
from tests.pipeline.delta import by_duckdb, files_of
from tests.pipeline.garden import Garden, make_messages
from tests.support.waiting import wait_until
from tests.tables.losing import LosingMachine, ProcessKilled

DAMAGES = ("gone", "empty", "all but the last line")


class Keeper:
    def __init__(self, garden: Garden, folder: Path) -> None:
        self.garden = garden
        self.path = folder / "archive"
        self.said: list[str] = []
        self.stopping = threading.Event()

    def run(self, *topics: str, every: float | None = None, **options: Any) -> Archiver:
        with alone(Location.of(self.path)):
            return self.archive(*topics, every=every, **options)

    def archive(self, *topics: str, every: float | None = None, **options: Any) -> Archiver:
        options = {"batch_messages": 3, "wanted": topics or ("*",), **options}
        with Service(self.garden.access) as service:
            place = Location.of(self.path), self.stopping, self.said.append, self.garden.name
            archiver = Archiver(service, *place, **options)
            archiver.begin()
            archiver.run(every)
        return archiver

    def offsets(self) -> dict[str, list[int]]:
        return dict(by_duckdb(self.path, 'SELECT topic, list("offset" ORDER BY "offset") FROM rows GROUP BY 1'))


@pytest.fixture
def keeper(garden: Garden, tmp_path: Path) -> Keeper:
    return Keeper(garden, tmp_path)


def before_first_read(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object]) -> None:
    whole, first = Fetch.batches, iter([act])

    def batches(self: Fetch) -> Any:
        next(first, lambda: None)()
        return whole(self)

    monkeypatch.setattr(Fetch, "batches", batches)


def test_a_topic_deleted_while_read_does_not_end_the_others(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    for topic in ("plants", "stones"):
        keeper.garden.topic(topic, make_messages(2))
    before_first_read(monkeypatch, keeper.garden.client.project(keeper.garden.name).topic("stones").delete)

    keeper.run(batch_messages=10)

    assert keeper.offsets() == {"plants": [0, 1]}


def test_a_run_that_somebody_overtook_stores_nothing_twice(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """As in an object store, which does not keep two runs apart."""
    keeper.garden.topic("plants", make_messages(3))
    before_first_read(monkeypatch, keeper.archive)

    keeper.run()
    assert keeper.offsets() == {"plants": [0, 1, 2]}
    keeper.garden.publish("plants", make_messages(4))
    keeper.run()
    assert keeper.offsets() == {"plants": [*range(7)]}


def test_it_ends_between_two_batches_and_goes_on_from_there(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper.garden.topic("plants", make_messages(7))
    before_first_read(monkeypatch, keeper.stopping.set)
    assert keeper.run().progress.messages == 3

    keeper.stopping.clear()
    assert keeper.run().progress.messages == 4


def test_messages_that_retention_took_end_the_work_unless_it_is_told_to_go_on(keeper: Keeper) -> None:
    keeper.garden.topic("plants", make_messages(2))
    keeper.run()
    keeper.garden.publish("plants", make_messages(2))
    keeper.garden.forget("plants")
    keeper.garden.publish("plants", make_messages(2))

    with pytest.raises(DataLoss, match="messages 2 to 3 of topic .*/plants are kept no longer"):
        keeper.run()
    assert keeper.offsets() == {"plants": [0, 1]}
    keeper.run(skip_lost=True)

    assert any("messages 2 to 3" in each for each in keeper.said)
    assert (keeper.offsets(), keeper.run().progress.messages) == ({"plants": [0, 1, 4, 5]}, 0)


def test_topics_are_found_and_let_go_and_each_message_is_there_once(keeper: Keeper) -> None:
    garden, odd = keeper.garden, Message(bytes(range(256)), {"naïve": "☃", "": "x=y"}, "bed 4")
    garden.topic("plants", [odd, *make_messages(4)])
    garden.topic("stones", make_messages(1))
    garden.topic("walls", make_messages(1))

    done = keeper.run("pl*", "st?nes", "birds*")
    garden.publish("plants", make_messages(2))
    garden.topic("birds", make_messages(1))
    garden.client.project(garden.name).topic("stones").delete()
    again = keeper.run("pl*", "st?nes", "birds*")

    assert keeper.offsets() == {"plants": [*range(7)], "stones": [0], "birds": [0]}
    assert (done.progress.messages, len(done.topics), again.progress.messages, len(again.topics)) == (6, 2, 3, 2)
    first = "SELECT data, attributes, ordering_key, message_id, project, publish_time::DATE = date FROM rows"
    assert by_duckdb(keeper.path, f"{first} WHERE topic = 'plants' ORDER BY \"offset\" LIMIT 1") == [
        (odd.data, dict(odd.attributes), "bed 4", "0", garden.name, True)
    ]
    assert (keeper.run().progress.messages, upkeep.check(str(keeper.path)).wrong) == (1, [])


def test_a_batch_has_no_more_messages_than_it_may(keeper: Keeper) -> None:
    for topic in ("plants", "stones"):
        keeper.garden.topic(topic, make_messages(4))

    keeper.run()

    appended = [done.rows for done in upkeep.history(str(keeper.path)) if done.what == "append"]
    assert (sum(appended), max(appended)) == (8, 3)


def test_a_topic_that_is_named_must_be_there(keeper: Keeper) -> None:
    with pytest.raises(NotFound):
        keeper.run("plants")


def test_a_topic_that_was_made_again_ends_the_work_unless_it_is_told_to_go_on(keeper: Keeper) -> None:
    keeper.garden.topic("plants", make_messages(2))
    keeper.run()
    keeper.garden.remake("plants", 5)

    with pytest.raises(DataLoss, match="/plants was deleted and made again since it was archived.* --skip-lost"):
        keeper.run()
    assert keeper.offsets() == {"plants": [0, 1]}
    keeper.run(skip_lost=True)
    keeper.garden.publish("plants", make_messages(1))
    keeper.run()

    assert keeper.offsets() == {"plants": [0, 0, 1, 1, 2, 3, 4, 5]}
    assert any("what was not stored of the old one is lost" in each for each in keeper.said)


def test_a_service_that_tells_no_ids_of_topics_is_refused(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    keeper.garden.topic("plants", make_messages(1))
    whole = Service.bounds
    monkeypatch.setattr(Service, "bounds", lambda self, topic: whole(self, topic)._replace(id=""))

    with pytest.raises(NotAms, match="does not tell the ids of topics"):
        keeper.run()


def test_closed_days_are_merged_with_the_same_rows(keeper: Keeper) -> None:
    keeper.garden.topic("plants", make_messages(7))
    keeper.run(merge=False)
    before = by_duckdb(keeper.path, "SELECT * FROM rows ORDER BY ALL")
    assert len(files_of(keeper.path)) == 3

    keeper.run()

    assert by_duckdb(keeper.path, "SELECT * FROM rows ORDER BY ALL") == before
    assert [name.rpartition("/")[2].startswith("merged-000002-") for name in files_of(keeper.path)] == [True]
    assert "archive: merged 3 files" in keeper.said
    assert keeper.run().progress.messages == 0


def test_its_place_outlasts_checkpoints_vacuum_and_restore(keeper: Keeper, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "CHECKPOINT_EVERY", 2)
    keeper.garden.topic("plants", make_messages(9))
    keeper.run()
    upkeep.vacuum(str(keeper.path), dry_run=False)
    upkeep.restore(str(keeper.path), 1)
    for commit in (keeper.path / "_delta_log").glob("*[0-9].json"):
        if int(commit.stem) < 4:  # as readers see it that go by the checkpoint
            commit.unlink()

    keeper.garden.publish("plants", make_messages(1))
    assert keeper.run().progress.messages == 1

    assert keeper.offsets() == {"plants": [0, 1, 2, 9]}


def test_tables_of_others_are_refused(keeper: Keeper, tmp_path: Path) -> None:
    table = Table(str(keeper.path), ARCHIVE, PARTITIONS)
    table.make("1f0c9a7e-0000-0000-0000-000000000000")
    with pytest.raises(WrongTable, match="is written by the job archive, whose place is in its own checkpoint"):
        keeper.run()

    shutil.rmtree(keeper.path)
    table.make("ams-archive/meadow")
    with pytest.raises(WrongTable, match="is the archive of project meadow; give each project one of its own"):
        keeper.run()

    shutil.rmtree(keeper.path)
    Table(str(keeper.path), ARCHIVE, ("topic",)).make(None)
    with pytest.raises(WrongTable, match="is no archive"):
        keeper.run()


def test_only_one_works_at_a_time(keeper: Keeper) -> None:
    with alone(Location.of(keeper.path)), pytest.raises(Busy, match="another `ams archive` writes"):
        keeper.run()


def test_it_looks_again_and_again_until_it_is_stopped(keeper: Keeper) -> None:
    keeper.garden.topic("plants", make_messages(2))
    run = threading.Thread(target=keeper.run, kwargs={"every": 0.05})
    run.start()
    try:
        wait_until(lambda: keeper.path.exists() and rows(keeper.path) == 2)
        keeper.garden.publish("plants", make_messages(2))
        keeper.garden.topic("stones", make_messages(1))
        wait_until(lambda: rows(keeper.path) == 5)
    finally:
        keeper.stopping.set()
        run.join()

    assert keeper.offsets() == {"plants": [0, 1, 2, 3], "stones": [0]}


@pytest.mark.faults
@pytest.mark.long
@pytest.mark.parametrize("damages", [DAMAGES, *((each,) for each in DAMAGES)])
def test_power_lost_at_any_sync_loses_no_message_and_doubles_none(
    garden: Garden, tmp_path: Path, damages: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "CHECKPOINT_EVERY", 2)
    garden.topic("plants", make_messages(3))
    garden.topic("stones", make_messages(1))
    for syncs in itertools.count():
        folder = tmp_path / str(syncs)
        folder.mkdir()
        machine, keeper = LosingMachine(folder), Keeper(garden, folder)
        try:
            with machine.running(syncs):
                keeper.run()
            break
        except ProcessKilled:
            machine.lose_power([damages[syncs % len(damages)]])

        keeper.run()

        assert keeper.offsets() == {"plants": [0, 1, 2], "stones": [0]}
        shutil.rmtree(folder)
    assert syncs > 20


@pytest.mark.faults
@pytest.mark.long
def test_an_archive_that_is_killed_again_and_again_is_as_one_that_was_not(garden: Garden, tmp_path: Path) -> None:
    """Without Spark and pandas, as with the extra `tables` alone."""
    kills, archive, blocked = 5, tmp_path / "archive", tmp_path / "blocked"
    for topic in ("plants", "stones"):
        garden.topic(topic, *([Message(b"%d" % number * 50)] * 40 for number in range(kills)))
    for name in ("pyspark", "pandas", "py4j"):
        (blocked / name).mkdir(parents=True)
        (blocked / name / "__init__.py").write_text("raise ImportError('not installed')\n")
    command = "import sys; sys.path.insert(0, sys.argv.pop(1)); from ams.cli.main import main; main()"
    given = ["archive", str(archive), "--batch-messages", "5", "--closed-after", "0", "-p", garden.name]
    where = ["--endpoint", garden.options["endpoint"]]

    killed = run_through_kills(
        [sys.executable, "-c", command, str(blocked), *given, *where], kills=kills, working=commit_appears(archive),
        log=tmp_path / "log", spread=0.4, environment={"AMS_TOKEN": garden.options["token"]},
    )  # fmt: skip

    assert killed.kills > 0
    assert re.fullmatch(r"archive: messages \d+ topics 2 files \d+ seconds \d+\.\d", killed.output.splitlines()[-1])
    counts = 'count(*), count(DISTINCT "offset"), min("offset"), max("offset")'
    assert by_duckdb(archive, f"SELECT topic, {counts} FROM rows GROUP BY 1 ORDER BY 1") == [
        (topic, 40 * kills, 40 * kills, 0, 40 * kills - 1) for topic in ("plants", "stones")
    ]
    assert upkeep.check(str(archive)).wrong == []


def rows(path: Path) -> int:
    try:
        return sum(file.rows for file in open_table(str(path)).files)
    except WrongTable:  # not made yet
        return 0
