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
from ams.pipeline.fetching import LostMessages
from ams.pipeline.options import EARLIEST, LATEST, Name, Reading, reading
from ams.pipeline.service import Service
from tests.pipeline.garden import Garden, numbered

HERE = {"endpoint": "http://ams.example", "token": "t0ken", "project": "garden"}
TOPIC = HERE | {"topic": "plants"}
TWO = HERE | {"topic": "plants, meadow/birds"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(options: dict[str, str], environment: dict[str, str] | None = None) -> Reading:
    return reading(options, environment or {"XDG_CONFIG_HOME": "/nowhere"})


@pytest.mark.parametrize(("options", "option", "reason"), [
    ({"topic": "plants"}, "endpoint", "no service is named"),
    (TOPIC | {"endpoint": "ftp://x"}, "endpoint", "an endpoint looks like"),
    (TOPIC | {"tokenFile": "x"}, "tokenFile", "not both"),
    ({"endpoint": "http://a.example", "topic": "p/t", "tokenFile": "nowhere"}, "tokenFile", "No such file"),
    (TOPIC | {"endpoint": "https://ams.example", "ca": "nowhere.pem"}, "ca", "No such file"),
    ({"profile": "nowhere", "topic": "p/t"}, "profile", "profiles"), (HERE, "topic", "is missing"),
    (TOPIC | {"subscription": "s"}, "subscription", "only one of them"),
    (HERE | {"subscription": "s,u"}, "subscription", "only one can be read"),
    (HERE | {"topic": "a b"}, "topic", "'a b' is no name"), (HERE | {"topic": "a,"}, "topic", "'' is no name"),
    (HERE | {"topic": "plants,garden/plants"}, "topic", "garden/plants stands there twice"),
    ({"endpoint": "http://a.example", "topic": "plants"}, "project", "is needed for topic 'plants'"),
    (TOPIC | {"startingOffset": "earliest"}, "startingoffset", "startingOffsets is meant?"),
    (TOPIC | {"colour": "green"}, "colour", "no such option"),
    (TOPIC | {"startingOffsets": "soon"}, "startingOffsets", "'soon' is none of earliest"),
    (TOPIC | {"startingOffsets": "true"}, "startingOffsets", "is none of"),
    (TOPIC | {"startingOffsets": "-3"}, "startingOffsets", "is none of"),
    (TOPIC | {"startingOffsets": '{"plants": "1"}'}, "startingOffsets", "is none of"),
    (TWO | {"startingOffsets": '{"plants": 1}'}, "startingOffsets", "nothing is said of meadow/birds"),
    (TWO | {"endingOffsets": '{"plants": 1, "bees": 2}'}, "endingOffsets", "'bees' is not among"),
    (TOPIC | {"startingTimestamp": "yesterday"}, "startingTimestamp", "is no time"),
    (TOPIC | {"startingTimestamp": "2024-03-05T10:20:30"}, "startingTimestamp", "is no time"),
    (TOPIC | {"startingTimestamp": "9" * 30}, "startingTimestamp", "is no time"),
    (TOPIC | {"startingTimestamp": "0", "startingOffsets": "1"}, "startingTimestamp", "not both"),
    (TOPIC | {"endingTimestamp": "0", "endingOffsets": "1"}, "endingTimestamp", "not both"),
    (TOPIC | {"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "whole number of at least 1"),
    (TOPIC | {"maxOffsetsPerTrigger": "9" * 5000}, "maxOffsetsPerTrigger", "or too large"),
    (TOPIC | {"startingTimestamp": "0001-01-01T00:00:00+14:00"}, "startingTimestamp", "is no time such as"),
    (TOPIC | {"minPartitions": "2.5"}, "minPartitions", "whole number of at least 1"),
    (TOPIC | {"failOnDataLoss": "no"}, "failOnDataLoss", "neither true nor false"),
    (TOPIC | {"retrySeconds": "nan"}, "retrySeconds", "no number of seconds"),
    (TOPIC | {"retrySeconds": "-1"}, "retrySeconds", "no number of seconds"),
    (HERE | {"topicPattern": "a,,b"}, "topicPattern", "'a,,b' has an empty pattern"),
    (TOPIC | {"topicPattern": "a"}, "topicPattern", "give a subscription, topics, or a pattern, only one"),
    ({"endpoint": "http://a.example", "token": "t", "topicPattern": "a"}, "project", "is needed for topicPattern"),
])  # fmt: skip
def test_a_wrong_option_is_named(options: dict[str, str], option: str, reason: str) -> None:
    with pytest.raises(WrongOption) as caught:
        read(options)

    assert caught.value.option == option
    assert reason in caught.value.reason
    assert "t0ken" not in str(caught.value)


def test_options_are_read_whatever_their_letters() -> None:
    found = read(TWO | {"STARTINGOFFSETS": '{"plants": 7, "meadow/birds": -2}', "FailOnDataLoss": "FALSE"})

    assert found.topics == (Name("garden", "plants"), Name("meadow", "birds"))
    assert found.starting == {"garden/plants": 7, "meadow/birds": EARLIEST}
    assert found.ending is None
    assert not found.fail_on_data_loss
    assert read(HERE | {"topicPattern": "a*, b"}).patterns == ("a*", "b")


@pytest.mark.parametrize("text", ["1709634030000", "2024-03-05T10:20:30Z", "2024-03-05T11:20:30+01:00"])
def test_a_time_is_written_in_two_ways(text: str) -> None:
    assert read(TOPIC | {"startingTimestamp": text}).starting == datetime(2024, 3, 5, 10, 20, 30, tzinfo=UTC)


def test_a_stream_does_not_begin_in_the_future_and_has_no_end() -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    streamed = AmsDataSource(TOPIC | {"startingTimestamp": soon.isoformat()})

    with pytest.raises(WrongOption, match="startingTimestamp: lies in the future; startingOffsets=latest begins"):
        streamed.streamReader(MESSAGES)

    for option, end in (("endingOffsets", "3"), ("endingTimestamp", "1")):
        with pytest.raises(WrongOption, match=f"option {option}: is for a batch"):
            AmsDataSource(TOPIC | {option: end}).streamReader(MESSAGES)
    past = AmsDataSource(TOPIC | {"startingTimestamp": (soon - timedelta(hours=2)).isoformat()})
    assert past.streamReader(MESSAGES).reading.starting is not None


def test_what_is_left_out_comes_from_the_environment_and_profiles(folder: Path) -> None:
    (folder / "ams").mkdir()
    (folder / "ams" / "profiles.toml").write_text('[site]\nendpoint = "http://site.example"\nproject = "garden"\n')
    environment = {"XDG_CONFIG_HOME": str(folder), "AMS_TOKEN": "t0ken"}

    found = read({"profile": "site", "subscription": "spark"}, environment)

    assert (found.access.endpoint, found.access.token) == ("http://site.example", "t0ken")
    assert found.subscription == Name("garden", "spark")


def test_a_ca_file_travels_as_its_text(folder: Path) -> None:
    (folder / "ca.pem").write_text("-----BEGIN")
    assert read(TOPIC | {"endpoint": "https://ams.example", "ca": "ca.pem"}).access.ca == "-----BEGIN"


def test_the_token_is_not_shown() -> None:
    assert "t0ken" not in repr(read(TOPIC))


@pytest.mark.parametrize(("options", "may"), [
    (TOPIC, True), (HERE | {"subscription": "s"}, False), (TOPIC | {"startingOffsets": "earliest"}, False),
    (TOPIC | {"startingOffsets": '{"plants": -1}'}, True), (TOPIC | {"startingTimestamp": "0"}, True),
])  # fmt: skip
def test_who_may_begin_at_the_end(options: dict[str, str], may: bool) -> None:
    assert read(options).begins_at_end is may


ALL = ReadAllAvailable()


@pytest.fixture
def three(garden: Garden) -> Garden:
    garden.topic("plants", numbered(1), numbered(1, 1), numbered(1, 2))
    garden.topic("birds", numbered(1))
    return garden


def starts(garden: Garden, default: int = EARLIEST, **options: str) -> list[int]:
    asked = reading(garden.options | options)
    with Service(asked.access) as service:
        return list(Places(service, asked).starts(default).values())


def now(garden: Garden) -> datetime:
    return datetime.fromtimestamp(garden.served.clock.now / 1000, UTC)


def test_reading_begins_where_it_is_asked_to(three: Garden) -> None:
    assert starts(three, topic="plants,birds") == [0, 0]
    assert starts(three, LATEST, topic="plants,birds") == [3, 1]
    assert starts(three, topic="plants", startingOffsets="2") == [2]
    assert starts(three, topic="plants,birds", startingOffsets='{"plants": 1, "birds": -1}') == [1, 1]
    with pytest.raises(WrongOption, match=r"startingOffsets: 4 is beyond the end of topic .*/plants, which is 3"):
        starts(three, topic="plants", startingOffsets="4")


def test_reading_begins_at_a_time(three: Garden) -> None:
    second = now(three) - timedelta(seconds=3)

    assert starts(three, topic="plants", startingTimestamp=second.isoformat()) == [1]
    assert starts(three, topic="plants", startingTimestamp=(second + timedelta(seconds=1.5)).isoformat()) == [3]
    assert starts(three, topic="plants", startingTimestamp=(second + timedelta(microseconds=1)).isoformat()) == [2]
    assert starts(three, topic="plants", startingTimestamp="0") == [0]


def test_a_subscription_is_read_from_where_it_stands(three: Garden) -> None:
    three.subscription("spark", "plants")
    assert starts(three, subscription="spark") == [3]
    assert starts(three, subscription="spark", startingOffsets="earliest") == [0]


def test_what_is_missing_or_forbidden_is_told(three: Garden) -> None:
    with pytest.raises(NotFound, match="Topic doesn't exist"):
        starts(three, topic="bees")
    with pytest.raises(NotFound, match="Subscription doesn't exist"):
        starts(three, subscription="bees")
    consumer = three.user("consumer")
    with pytest.raises(NotAllowed):
        starts(three, topic="plants", token=consumer)


class Open(Protocol):
    def __call__(self, garden: Garden, **options: str) -> StreamReader: ...


@pytest.fixture
def stream() -> Iterator[Open]:
    with contextlib.ExitStack() as opened:

        def make(garden: Garden, **options: str) -> StreamReader:
            reader = StreamReader(reading(garden.options | options))
            opened.callback(reader.stop)
            return reader

        yield make


def at(garden: Garden, **offsets: int) -> dict[str, int]:
    return {f"{garden.name}/{topic}": offset for topic, offset in offsets.items()}


def told(reader: StreamReader, garden: Garden, **offsets: int) -> dict[str, Any]:
    """Return offsets as in a checkpoint, with the topics' current ids."""
    there, ids = at(garden, **offsets), reader.initialOffset()["topics"]
    return there | {"topics": {name: ids[name] for name in there if name in ids}}


def ranges(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    return [(each.value.topic.name, each.value.start, each.value.stop) for each in reader.partitions(start, end)]


def test_a_stream_begins_at_the_end_with_a_batch_of_nothing_that_may_come_again(three: Garden, stream: Open) -> None:
    reader = stream(three, topic="plants")
    begin = reader.initialOffset()
    assert plain(begin) == at(three, plants=3)
    assert reader.latestOffset(begin, ALL) == begin
    assert ranges(reader, reader.initialOffset(), begin) == []
    assert reader.latestOffset(begin, ALL) == begin
    three.publish("plants", numbered(2))

    again = stream(three, topic="plants")  # after a kill, before the first batch was done
    assert ranges(again, again.initialOffset(), begin) == []
    for each in (reader, again):
        assert ranges(each, begin, each.latestOffset(begin, ALL)) == [("plants", 3, 5)]


def test_a_first_batch_that_comes_again_from_a_time_is_followed_by_the_rest(three: Garden, stream: Open) -> None:
    again = stream(three, topic="plants", startingTimestamp="0")  # after a kill, before the first batch was done
    begin = told(again, three, plants=0)
    assert ranges(again, again.initialOffset(), begin) == []
    assert plain(again.latestOffset(begin, ALL)) == at(three, plants=3)


def test_batches_are_limited_and_lag_is_reported(three: Garden, stream: Open) -> None:
    reader = stream(three, topic="plants,birds", startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert reader.getDefaultReadLimit() == ReadMaxRows(2)

    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))

    assert sum(plain(end).values()) == 2
    assert reader.reportLatestOffset() == at(three, plants=3, birds=1)


def test_what_is_available_ends_where_the_topics_ended(three: Garden, stream: Open) -> None:
    reader = stream(three, topic="plants", startingOffsets="earliest")
    reader.prepareForTriggerAvailableNow()
    three.publish("plants", numbered(2))

    assert plain(reader.latestOffset(reader.initialOffset(), ALL)) == at(three, plants=3)
    assert plain(reader.latestOffset(told(reader, three, plants=3), ALL)) == at(three, plants=3)


def test_a_topic_that_is_read_too_from_now_on_is_read_from_its_oldest_message(three: Garden, stream: Open) -> None:
    reader = stream(three, topic="plants,birds")
    start = told(reader, three, plants=3)

    end = reader.latestOffset(start, ALL)

    assert ranges(reader, start, end) == [("birds", 0, 1)]
    with pytest.raises(WrongOption, match=r"the checkpoint stands in .*/bees too"):
        reader.latestOffset(told(reader, three, plants=3, bees=1), ALL)


def test_topics_that_are_found_by_a_pattern_come_and_go(garden: Garden, stream: Open) -> None:
    options = {"topicPattern": "pl*,stone?", "startingOffsets": "earliest"}
    reader = stream(garden, **options)
    begin = reader.latestOffset(reader.initialOffset(), ALL)
    garden.topic("plants", numbered(2))
    garden.topic("stones", numbered(1))
    garden.topic("animals", numbered(1))
    reader = stream(garden, **options)
    first = reader.latestOffset(begin, ALL)
    assert sorted(ranges(reader, begin, first)) == [("plants", 0, 2), ("stones", 0, 1)]

    garden.client.project(garden.name).topic("stones").delete()
    garden.topic("plums", numbered(1))
    garden.publish("plants", numbered(1))
    reader = stream(garden, **options)
    assert sorted(ranges(reader, first, reader.latestOffset(first, ALL))) == [("plants", 2, 3), ("plums", 0, 1)]


def test_a_topic_that_ends_before_the_checkpoint_is_lost_messages(three: Garden, stream: Open) -> None:
    """As after restoring a service to an earlier state."""
    reader = stream(three, topic="plants")
    start = told(reader, three, plants=5)

    with pytest.raises(DataLoss, match="messages 3 to 4 of topic .*/plants are kept no longer"):
        reader.latestOffset(start, ALL)
    careless = stream(three, topic="plants", failOnDataLoss="false")
    with pytest.warns(LostMessages):
        end = careless.latestOffset(start, ReadMaxRows(10))
    with pytest.warns(LostMessages):
        assert ranges(careless, start, end) == [("plants", 0, 3)]


def test_a_topic_that_was_made_again_and_has_grown_past_the_checkpoint_is_not_taken_for_the_old_one(
    three: Garden, stream: Open
) -> None:
    three.subscription("spark", "plants")
    begun = stream(three, topic="plants", startingOffsets="earliest")
    start = begun.latestOffset(begun.initialOffset(), ALL)
    three.remake("plants", 9)

    with pytest.raises(DataLoss, match=r"/plants was deleted and made again .* begin with a new checkpoint"):
        stream(three, topic="plants").latestOffset(start, ALL)
    with pytest.raises(DataLoss, match="was deleted and made again"):
        stream(three, subscription="spark").latestOffset(start, ALL)
    assert three.cursor("spark") == 0
    careless = stream(three, topic="plants", failOnDataLoss="false")
    with pytest.warns(LostMessages, match="what was not read of the old one is lost"):
        end = careless.latestOffset(start, ALL)
    with pytest.warns(LostMessages):
        assert ranges(careless, start, end) == [("plants", 0, 9)]


def test_a_batch_that_was_planned_of_an_older_topic_is_not_read_of_the_new_one(three: Garden, stream: Open) -> None:
    reader = stream(three, topic="plants", startingOffsets="earliest")
    begin = reader.initialOffset()
    [partition] = reader.partitions(begin, reader.latestOffset(begin, ALL))
    assert sum(batch.num_rows for batch in reader.read(partition)) == 3
    three.remake("plants", 9)

    with pytest.raises(DataLoss, match="was deleted and made again"):
        list(reader.read(partition))


def test_a_cursor_follows_what_is_in_the_checkpoint_and_never_goes_back(three: Garden, stream: Open) -> None:
    three.subscription("spark", "birds")
    three.publish("birds", numbered(9))
    reader = stream(three, subscription="spark")
    begin = reader.initialOffset()
    assert plain(begin) == at(three, birds=1)

    assert plain(reader.latestOffset(begin, ReadMaxRows(4))) == at(three, birds=5)
    assert three.cursor("spark") == 1
    reader.latestOffset(told(reader, three, birds=5), ALL)
    assert three.cursor("spark") == 5

    by_hand = three.client.project(three.name).subscription("spark")
    by_hand.acknowledge(by_hand.pull(3)[-1])
    reader.latestOffset(told(reader, three, birds=6), ALL)
    assert three.cursor("spark") == 8


def test_a_cursor_is_not_moved_to_where_a_query_begins(three: Garden, stream: Open) -> None:
    three.subscription("spark", "birds")
    three.publish("birds", numbered(9))
    reader = stream(three, subscription="spark", startingOffsets="5")

    reader.latestOffset(reader.initialOffset(), ALL)

    assert three.cursor("spark") == 1


def test_a_reader_travels_without_its_connections(three: Garden, stream: Open) -> None:
    reader = stream(three, topic="plants")
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert vars(copy) == vars(StreamReader(reader.reading))
