"""Every wrong option is named, and nothing is asked of anybody."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ams.pipeline.columns import MESSAGES
from ams.pipeline.datasource import AmsDataSource
from ams.pipeline.errors import WrongOption
from ams.pipeline.options import Name
from ams.pipeline.source.options import EARLIEST, Reading, reading

HERE = {"endpoint": "http://ams.example", "token": "t0ken", "project": "garden"}
TOPIC = HERE | {"topic": "plants"}
TWO = HERE | {"topic": "plants, meadow/birds"}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(options: dict[str, str], environment: dict[str, str] | None = None) -> Reading:
    return reading(options, environment or {"XDG_CONFIG_HOME": "/nowhere"})


@pytest.mark.parametrize(
    ("options", "option", "reason"),
    [
        ({"topic": "plants"}, "endpoint", "no service is named"),
        (TOPIC | {"endpoint": "ftp://x"}, "endpoint", "an endpoint looks like"),
        (TOPIC | {"tokenFile": "x"}, "tokenFile", "not both"),
        ({"endpoint": "http://a.example", "topic": "p/t", "tokenFile": "nowhere"}, "tokenFile", "No such file"),
        (TOPIC | {"endpoint": "https://ams.example", "ca": "nowhere.pem"}, "ca", "No such file"),
        ({"profile": "nowhere", "topic": "p/t"}, "profile", "profiles"),
        (HERE, "topic", "is missing"),
        (TOPIC | {"subscription": "s"}, "subscription", "only one of them"),
        (HERE | {"subscription": "s,u"}, "subscription", "only one can be read"),
        (HERE | {"topic": "a b"}, "topic", "'a b' is no name"),
        (HERE | {"topic": "a,"}, "topic", "'' is no name"),
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
    ],
)
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


def test_a_stream_does_not_begin_in_the_future() -> None:
    soon = datetime.now(UTC) + timedelta(hours=1)
    streamed = AmsDataSource(TOPIC | {"startingTimestamp": soon.isoformat()})

    with pytest.raises(WrongOption, match="startingTimestamp: lies in the future; startingOffsets=latest begins"):
        streamed.streamReader(MESSAGES)

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


@pytest.mark.parametrize(
    ("options", "may"),
    [
        (TOPIC, True),
        (HERE | {"subscription": "s"}, False),
        (TOPIC | {"startingOffsets": "earliest"}, False),
        (TOPIC | {"startingOffsets": '{"plants": -1}'}, True),
        (TOPIC | {"startingTimestamp": "0"}, True),
    ],
)
def test_who_may_begin_at_the_end(options: dict[str, str], may: bool) -> None:
    assert read(options).begins_at_end is may
