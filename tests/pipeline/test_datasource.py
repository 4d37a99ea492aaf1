import contextlib
import pickle
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from ams.client.errors import NotAllowed, NotFound
from ams.pipeline.columns import MESSAGES
from ams.pipeline.datasource import AmsDataSource, Places, StreamReader, plain
from ams.pipeline.errors import DataLoss, WrongOption
from ams.pipeline.options import EARLIEST, LATEST, Reading, ResourceName
from ams.pipeline.range_reader import LostMessages
from ams.pipeline.service_calls import Service
from tests.pipeline.garden import Garden, make_messages

ACCESS_OPTIONS = {"endpoint": "http://ams.example", "token": "t0ken", "project": "garden"}
TOPIC_OPTIONS = ACCESS_OPTIONS | {"topic": "plants"}
TWO_TOPICS_OPTIONS = ACCESS_OPTIONS | {"topic": "plants, meadow/birds"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read_options(options: dict[str, str], environment: dict[str, str] | None = None) -> Reading:
    return Reading(options, environment or {"XDG_CONFIG_HOME": "/nowhere"})


@pytest.mark.parametrize(("options", "option", "reason"), [
    ({"topic": "plants"}, "endpoint", "no service is named"),
    (TOPIC_OPTIONS | {"endpoint": "ftp://x"}, "endpoint", "an endpoint looks like"),
    (TOPIC_OPTIONS | {"tokenFile": "x"}, "tokenFile", "not both"),
    ({"endpoint": "http://a.example", "topic": "p/t", "tokenFile": "nowhere"}, "tokenFile", "No such file"),
    (TOPIC_OPTIONS | {"endpoint": "https://ams.example", "ca": "nowhere.pem"}, "ca", "No such file"),
    ({"profile": "nowhere", "topic": "p/t"}, "profile", "profiles"), (ACCESS_OPTIONS, "topic", "is missing"),
    (TOPIC_OPTIONS | {"subscription": "s"}, "subscription", "only one of them"),
    (ACCESS_OPTIONS | {"subscription": "s,u"}, "subscription", "only one can be read"),
    (ACCESS_OPTIONS | {"topic": "a b"}, "topic", "'a b' is no name"),
    (ACCESS_OPTIONS | {"topic": "a,"}, "topic", "'' is no name"),
    (ACCESS_OPTIONS | {"topic": "plants,garden/plants"}, "topic", "garden/plants stands there twice"),
    ({"endpoint": "http://a.example", "topic": "plants"}, "project", "is needed for topic 'plants'"),
    (TOPIC_OPTIONS | {"startingOffset": "earliest"}, "startingoffset", "startingOffsets is meant?"),
    (TOPIC_OPTIONS | {"colour": "green"}, "colour", "no such option"),
    (TOPIC_OPTIONS | {"startingOffsets": "soon"}, "startingOffsets", "'soon' is none of earliest"),
    (TOPIC_OPTIONS | {"startingOffsets": "true"}, "startingOffsets", "is none of"),
    (TOPIC_OPTIONS | {"startingOffsets": "-3"}, "startingOffsets", "is none of"),
    (TOPIC_OPTIONS | {"startingOffsets": '{"plants": "1"}'}, "startingOffsets", "is none of"),
    (TWO_TOPICS_OPTIONS | {"startingOffsets": '{"plants": 1}'}, "startingOffsets", "nothing is said of meadow/birds"),
    (TWO_TOPICS_OPTIONS | {"endingOffsets": '{"plants": 1, "bees": 2}'}, "endingOffsets", "'bees' is not among"),
    (TOPIC_OPTIONS | {"startingTimestamp": "yesterday"}, "startingTimestamp", "is no time"),
    (TOPIC_OPTIONS | {"startingTimestamp": "2024-03-05T10:20:30"}, "startingTimestamp", "is no time"),
    (TOPIC_OPTIONS | {"startingTimestamp": "9" * 30}, "startingTimestamp", "is no time"),
    (TOPIC_OPTIONS | {"startingTimestamp": "0", "startingOffsets": "1"}, "startingTimestamp", "not both"),
    (TOPIC_OPTIONS | {"endingTimestamp": "0", "endingOffsets": "1"}, "endingTimestamp", "not both"),
    (TOPIC_OPTIONS | {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "whole number of at least 1"),
    (TOPIC_OPTIONS | {"maxOffsetsPerTrigger": "9" * 5000}, "maxOffsetsPerTrigger", "or too large"),
    (TOPIC_OPTIONS | {"startingTimestamp": "0001-01-01T00:00:00+14:00"}, "startingTimestamp", "is no time such as"),
    (TOPIC_OPTIONS | {"minPartitions": "2.5"}, "minPartitions", "whole number of at least 1"),
    (TOPIC_OPTIONS | {"failOnDataLoss": "no"}, "failOnDataLoss", "neither true nor false"),
    (TOPIC_OPTIONS | {"retrySeconds": "nan"}, "retrySeconds", "no number of seconds"),
    (TOPIC_OPTIONS | {"retrySeconds": "-1"}, "retrySeconds", "no number of seconds"),
    (ACCESS_OPTIONS | {"topicPattern": "a,,b"}, "topicPattern", "'a,,b' has an empty pattern"),
    (TOPIC_OPTIONS | {"topicPattern": "a"}, "topicPattern", "give a subscription, topics, or a pattern, only one"),
    ({"endpoint": "http://a.example", "token": "t", "topicPattern": "a"}, "project", "is needed for topicPattern"),
])  # fmt: skip
def test_a_wrong_option_is_named(options: dict[str, str], option: str, reason: str) -> None:
    with pytest.raises(WrongOption) as caught:
        read_options(options)

    assert caught.value.option == option
    assert reason in caught.value.reason
    assert "t0ken" not in str(caught.value)


def test_options_are_read_whatever_their_letters() -> None:
    found = read_options(
        TWO_TOPICS_OPTIONS | {"STARTINGOFFSETS": '{"plants": 7, "meadow/birds": -2}', "FailOnDataLoss": "FALSE"}
    )

    assert found.topics == (ResourceName("garden", "plants"), ResourceName("meadow", "birds"))
    assert found.starting == {"garden/plants": 7, "meadow/birds": EARLIEST}
    assert found.ending is None
    assert not found.fail_on_data_loss
    assert read_options(ACCESS_OPTIONS | {"topicPattern": "a*, b"}).patterns == ("a*", "b")


@pytest.mark.parametrize("text", ["1709634030000", "2024-03-05T10:20:30Z", "2024-03-05T11:20:30+01:00"])
def test_a_time_is_written_in_two_ways(text: str) -> None:
    assert read_options(TOPIC_OPTIONS | {"startingTimestamp": text}).starting == datetime(
        2024, 3, 5, 10, 20, 30, tzinfo=UTC
    )


def test_a_stream_does_not_begin_in_the_future_and_has_no_end() -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    streamed = AmsDataSource(TOPIC_OPTIONS | {"startingTimestamp": soon.isoformat()})

    with pytest.raises(WrongOption, match="startingTimestamp: lies in the future; startingOffsets=latest begins"):
        streamed.streamReader(MESSAGES)

    for option, end in (("endingOffsets", "3"), ("endingTimestamp", "1")):
        with pytest.raises(WrongOption, match=f"option {option}: is for a batch"):
            AmsDataSource(TOPIC_OPTIONS | {option: end}).streamReader(MESSAGES)
    past = AmsDataSource(TOPIC_OPTIONS | {"startingTimestamp": (soon - timedelta(hours=2)).isoformat()})
    assert past.streamReader(MESSAGES).reading.starting is not None


def test_what_is_left_out_comes_from_the_environment_and_profiles(folder: Path) -> None:
    (folder / "ams").mkdir()
    (folder / "ams" / "profiles.toml").write_text('[site]\nendpoint = "http://site.example"\nproject = "garden"\n')
    environment = {"XDG_CONFIG_HOME": str(folder), "AMS_TOKEN": "t0ken"}

    found = read_options({"profile": "site", "subscription": "spark"}, environment)

    assert (found.access.endpoint, found.access.token) == ("http://site.example", "t0ken")
    assert found.subscription == ResourceName("garden", "spark")


def test_a_ca_file_travels_as_its_text(folder: Path) -> None:
    (folder / "ca.pem").write_text("-----BEGIN")
    assert read_options(TOPIC_OPTIONS | {"endpoint": "https://ams.example", "ca": "ca.pem"}).access.ca == "-----BEGIN"


def test_the_token_is_not_shown() -> None:
    assert "t0ken" not in repr(read_options(TOPIC_OPTIONS))


@pytest.mark.parametrize(("options", "may"), [
    (TOPIC_OPTIONS, True), (ACCESS_OPTIONS | {"subscription": "s"}, False),
    (TOPIC_OPTIONS | {"startingOffsets": "earliest"}, False),
    (TOPIC_OPTIONS | {"startingOffsets": '{"plants": -1}'}, True), (TOPIC_OPTIONS | {"startingTimestamp": "0"}, True),
])  # fmt: skip
def test_who_may_begin_at_the_end(options: dict[str, str], may: bool) -> None:
    assert read_options(options).begins_at_end is may


ALL_AVAILABLE = ReadAllAvailable()


@pytest.fixture
def three_plants(garden: Garden) -> Garden:
    garden.topic("plants", make_messages(1), make_messages(1, 1), make_messages(1, 2))
    garden.topic("birds", make_messages(1))
    return garden


def find_starts(garden: Garden, default: int = EARLIEST, **options: str) -> list[int]:
    asked = Reading(garden.options | options)
    with Service(asked.access) as service:
        return list(Places(service, asked).starts(default).values())


def service_time(garden: Garden) -> datetime:
    return datetime.fromtimestamp(garden.served.clock.now / 1000, UTC)


def test_reading_begins_where_it_is_asked_to(three_plants: Garden) -> None:
    assert find_starts(three_plants, topic="plants,birds") == [0, 0]
    assert find_starts(three_plants, LATEST, topic="plants,birds") == [3, 1]
    assert find_starts(three_plants, topic="plants", startingOffsets="2") == [2]
    assert find_starts(three_plants, topic="plants,birds", startingOffsets='{"plants": 1, "birds": -1}') == [1, 1]
    with pytest.raises(WrongOption, match=r"startingOffsets: 4 is beyond the end of topic .*/plants, which is 3"):
        find_starts(three_plants, topic="plants", startingOffsets="4")


def test_reading_begins_at_a_time(three_plants: Garden) -> None:
    second = service_time(three_plants) - timedelta(seconds=3)

    assert find_starts(three_plants, topic="plants", startingTimestamp=second.isoformat()) == [1]
    assert find_starts(
        three_plants, topic="plants", startingTimestamp=(second + timedelta(seconds=1.5)).isoformat()
    ) == [3]
    assert find_starts(
        three_plants, topic="plants", startingTimestamp=(second + timedelta(microseconds=1)).isoformat()
    ) == [2]
    assert find_starts(three_plants, topic="plants", startingTimestamp="0") == [0]


def test_a_subscription_is_read_from_where_it_stands(three_plants: Garden) -> None:
    three_plants.subscription("spark", "plants")
    assert find_starts(three_plants, subscription="spark") == [3]
    assert find_starts(three_plants, subscription="spark", startingOffsets="earliest") == [0]


def test_what_is_missing_or_forbidden_is_told(three_plants: Garden) -> None:
    with pytest.raises(NotFound, match="Topic doesn't exist"):
        find_starts(three_plants, topic="bees")
    with pytest.raises(NotFound, match="Subscription doesn't exist"):
        find_starts(three_plants, subscription="bees")
    consumer = three_plants.user("consumer")
    with pytest.raises(NotAllowed):
        find_starts(three_plants, topic="plants", token=consumer)


class OpenReader(Protocol):
    def __call__(self, garden: Garden, **options: str) -> StreamReader: ...


@pytest.fixture
def stream() -> Iterator[OpenReader]:
    with contextlib.ExitStack() as opened:

        def make(garden: Garden, **options: str) -> StreamReader:
            reader = StreamReader(Reading(garden.options | options))
            opened.callback(reader.stop)
            return reader

        yield make


def offsets_at(garden: Garden, **offsets: int) -> dict[str, int]:
    return {f"{garden.name}/{topic}": offset for topic, offset in offsets.items()}


def make_offsets(reader: StreamReader, garden: Garden, **offsets: int) -> dict[str, Any]:
    """Return offsets as in a checkpoint, with the topics' current ids."""
    there, ids = offsets_at(garden, **offsets), reader.initialOffset()["topics"]
    return there | {"topics": {name: ids[name] for name in there if name in ids}}


def ranges(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(each.value.topic.name, each.value.start, each.value.stop) for each in reader.partitions(start, end)]


def test_a_stream_begins_at_the_end_with_a_repeatable_empty_batch(three_plants: Garden, stream: OpenReader) -> None:
    reader = stream(three_plants, topic="plants")
    begin = reader.initialOffset()
    assert plain(begin) == offsets_at(three_plants, plants=3)
    assert reader.latestOffset(begin, ALL_AVAILABLE) == begin
    assert ranges(reader, reader.initialOffset(), begin) == []
    assert reader.latestOffset(begin, ALL_AVAILABLE) == begin
    three_plants.publish("plants", make_messages(2))

    again = stream(three_plants, topic="plants")  # after a kill, before the first batch was done
    assert ranges(again, again.initialOffset(), begin) == []
    for each in (reader, again):
        assert ranges(each, begin, each.latestOffset(begin, ALL_AVAILABLE)) == [("plants", 3, 5)]


def test_a_repeated_first_batch_from_a_time_is_followed_by_the_rest(three_plants: Garden, stream: OpenReader) -> None:
    again = stream(three_plants, topic="plants", startingTimestamp="0")  # after a kill, before the first batch was done
    begin = make_offsets(again, three_plants, plants=0)
    assert ranges(again, again.initialOffset(), begin) == []
    assert plain(again.latestOffset(begin, ALL_AVAILABLE)) == offsets_at(three_plants, plants=3)


def test_batches_are_limited_and_lag_is_reported(three_plants: Garden, stream: OpenReader) -> None:
    reader = stream(three_plants, topic="plants,birds", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert reader.getDefaultReadLimit() == ReadMaxRows(2)

    assert sum(plain(reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))).values()) == 2
    assert reader.reportLatestOffset() == offsets_at(three_plants, plants=3, birds=1)


def test_what_is_available_ends_where_the_topics_ended(three_plants: Garden, stream: OpenReader) -> None:
    reader = stream(three_plants, topic="plants", startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    three_plants.publish("plants", make_messages(2))

    assert plain(reader.latestOffset(reader.initialOffset(), ALL_AVAILABLE)) == offsets_at(three_plants, plants=3)
    assert plain(reader.latestOffset(make_offsets(reader, three_plants, plants=3), ALL_AVAILABLE)) == offsets_at(
        three_plants, plants=3
    )


def test_a_topic_added_later_is_read_from_its_oldest_message(three_plants: Garden, stream: OpenReader) -> None:
    reader = stream(three_plants, topic="plants,birds")
    start = make_offsets(reader, three_plants, plants=3)

    assert ranges(reader, start, reader.latestOffset(start, ALL_AVAILABLE)) == [("birds", 0, 1)]
    with pytest.raises(WrongOption, match=r"the checkpoint stands in .*/bees too"):
        reader.latestOffset(make_offsets(reader, three_plants, plants=3, bees=1), ALL_AVAILABLE)


def test_topics_that_are_found_by_a_pattern_come_and_go(garden: Garden, stream: OpenReader) -> None:
    options = {"topicPattern": "pl*,stone?", "startingOffsets": "earliest"}
    reader = stream(garden, **options)
    begin = reader.latestOffset(reader.initialOffset(), ALL_AVAILABLE)
    garden.topic("plants", make_messages(2))
    garden.topic("stones", make_messages(1))
    garden.topic("animals", make_messages(1))
    reader = stream(garden, **options)
    first = reader.latestOffset(begin, ALL_AVAILABLE)
    assert sorted(ranges(reader, begin, first)) == [("plants", 0, 2), ("stones", 0, 1)]

    garden.client.project(garden.name).topic("stones").delete()
    garden.topic("plums", make_messages(1))
    garden.publish("plants", make_messages(1))
    reader = stream(garden, **options)
    assert sorted(ranges(reader, first, reader.latestOffset(first, ALL_AVAILABLE))) == [
        ("plants", 2, 3), ("plums", 0, 1),
    ]  # fmt: skip


def test_a_topic_that_ends_before_the_checkpoint_is_lost_messages(three_plants: Garden, stream: OpenReader) -> None:
    """As after restoring a service to an earlier state."""
    reader = stream(three_plants, topic="plants")
    start = make_offsets(reader, three_plants, plants=5)

    with pytest.raises(DataLoss, match="messages 3 to 4 of topic .*/plants are kept no longer"):
        reader.latestOffset(start, ALL_AVAILABLE)
    careless = stream(three_plants, topic="plants", failOnDataLoss="false")
    with pytest.warns(LostMessages):
        end = careless.latestOffset(start, ReadMaxRows(10))
    with pytest.warns(LostMessages):
        assert ranges(careless, start, end) == [("plants", 0, 3)]


def test_a_topic_made_again_and_grown_is_not_taken_for_the_old_one(three_plants: Garden, stream: OpenReader) -> None:
    three_plants.subscription("spark", "plants")
    begun = stream(three_plants, topic="plants", startingOffsets="earliest")
    start = begun.latestOffset(begun.initialOffset(), ALL_AVAILABLE)
    three_plants.remake("plants", 9)

    with pytest.raises(DataLoss, match=r"/plants was deleted and made again .* begin with a new checkpoint"):
        stream(three_plants, topic="plants").latestOffset(start, ALL_AVAILABLE)
    with pytest.raises(DataLoss, match="was deleted and made again"):
        stream(three_plants, subscription="spark").latestOffset(start, ALL_AVAILABLE)
    assert three_plants.cursor("spark") == 0
    careless = stream(three_plants, topic="plants", failOnDataLoss="false")
    with pytest.warns(LostMessages, match="what was not read of the old one is lost"):
        end = careless.latestOffset(start, ALL_AVAILABLE)
    with pytest.warns(LostMessages):
        assert ranges(careless, start, end) == [("plants", 0, 9)]


def test_a_batch_planned_of_an_older_topic_is_not_read_of_the_new_one(three_plants: Garden, stream: OpenReader) -> None:
    reader = stream(three_plants, topic="plants", startingOffsets="earliest")
    begin = reader.initialOffset()
    [partition] = reader.partitions(begin, reader.latestOffset(begin, ALL_AVAILABLE))
    assert sum(batch.num_rows for batch in reader.read(partition)) == 3
    three_plants.remake("plants", 9)

    with pytest.raises(DataLoss, match="was deleted and made again"):
        list(reader.read(partition))


def test_a_cursor_follows_the_checkpoint_and_never_goes_back(three_plants: Garden, stream: OpenReader) -> None:
    three_plants.subscription("spark", "birds")
    three_plants.publish("birds", make_messages(9))
    reader = stream(three_plants, subscription="spark")
    begin = reader.initialOffset()
    assert plain(begin) == offsets_at(three_plants, birds=1)

    assert plain(reader.latestOffset(begin, ReadMaxRows(4))) == offsets_at(three_plants, birds=5)
    assert three_plants.cursor("spark") == 1
    reader.latestOffset(make_offsets(reader, three_plants, birds=5), ALL_AVAILABLE)
    assert three_plants.cursor("spark") == 5

    by_hand = three_plants.client.project(three_plants.name).subscription("spark")
    by_hand.acknowledge(by_hand.pull(3)[-1])
    reader.latestOffset(make_offsets(reader, three_plants, birds=6), ALL_AVAILABLE)
    assert three_plants.cursor("spark") == 8


def test_a_cursor_is_not_moved_to_where_a_query_begins(three_plants: Garden, stream: OpenReader) -> None:
    three_plants.subscription("spark", "birds")
    three_plants.publish("birds", make_messages(9))
    reader = stream(three_plants, subscription="spark", startingOffsets="5")

    reader.latestOffset(reader.initialOffset(), ALL_AVAILABLE)

    assert three_plants.cursor("spark") == 1


def test_a_reader_travels_without_its_connections(three_plants: Garden, stream: OpenReader) -> None:
    reader = stream(three_plants, topic="plants")
    reader.initialOffset()
    made, new = pickle.loads(pickle.dumps(reader)), StreamReader(reader.reading)
    assert vars(made.reading) == vars(reader.reading)
    assert {**vars(made), "reading": None} == {**vars(new), "reading": None}
