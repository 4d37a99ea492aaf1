from collections import defaultdict
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from ams.client import Message, wire
from ams.pipeline.jobs.base import read_options
from ams.pipeline.jobs.republish import RepublishOptions, Rule, run
from ams.pipeline.run import Run, quarantine_of
from tests.pipeline.garden import Garden


@pytest.mark.parametrize(("options", "said"), [
    ({"topics": []}, "option topics: at least one is read"),
    ({"topics": ["a"]}, "option rules: there are none and no default"),
    ({"topics": ["a"], "default": ["a"]}, "a is read and written"),
    ({"topics": ["a"], "default": ["b@c"]}, "'b@c' is no name of a topic"),
    ({"topics": ["a"], "default": ["b", "b"]}, "stands there twice"),
    ({"topics": ["a"], "default": [""]}, "a topic has a name"),
    ({"topics": ["a"], "rules": [{"attribute": "x", "to": ["S_{x"]}]}, "is no name of a topic"),
    ({"topics": ["a"], "rules": [{"values": ["x"], "to": ["b"]}]}, "values without an attribute"),
    ({"topics": ["a"], "rules": [{"atribute": "x"}]}, "unknown field atribute"),
    ({"topics": ["a"], "default": ["b"], "batch_messages": 0}, "option batch_messages: Expected"),
])  # fmt: skip
def test_rules_that_cannot_be_are_told(options: dict[str, object], said: str) -> None:
    read, wrong = read_options(RepublishOptions, options)
    assert read is None
    assert [each for each in wrong if said in str(each)]


RULES = (
    Rule(attribute="type", values=("heartbeat",)),
    Rule(attribute="site", values=("HILL", "LAKE"), to=("SITE_{site}", "all-of-{topic}")),
    Rule(attribute="site", to=("SITE_{site}_{service name}",)), Rule(attribute="to", to=("{to}",)),
)  # fmt: skip
MESSAGES = [
    Message(b"0", {"site": "HILL"}), Message(b"1", {"site": "LAKE", "ams-origin-topic": "elsewhere/old"}, "bed 4"),
    Message(b"2", {"site": "HILL", "type": "heartbeat"}), Message(b"3", {"site": "SEA", "service name": "ce"}),
    Message(b"4", {"site": "SEA"}), Message(b"5", {"site": "SEA", "service name": "a.b"}),
    Message(b"6", {"other": "x"}), Message(attributes={"site": "HILL", "n": "7"}), Message(b"8", {"site": "LAKE"}),
    Message(b"9", {"to": "in"}), Message(b"10", {"to": "out"}),
]  # fmt: skip


@pytest.mark.long
def test_rules_decide_where_each_message_goes(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    garden.topic("in", MESSAGES[:5], MESSAGES[5:])
    options = RepublishOptions(topics=("in",), rules=RULES, default=("rest",), create_topics=True, origin=True)

    run(Run(spark, tmp_path, garden.options), options)

    assert _read_topics(garden) == {
        "SITE_HILL": ["0", ""], "SITE_LAKE": ["1", "8"], "all-of-in": ["0", "1", "", "8"], "SITE_SEA_ce": ["3"],
        "out": ["10"], "rest": ["6"],
    }  # fmt: skip
    [lake, _] = garden.client.call(wire.read_topic(garden.name, "SITE_LAKE"))
    assert lake.ordering_key == "bed 4"
    assert lake.attributes == {"site": "LAKE", "ams-origin-topic": f"{garden.name}/in", "ams-origin-offset": "1"}
    assert _set_aside(spark, tmp_path) == [
        (4, "it lacks an attribute that makes the name of the topic SITE_{site}_{service name}"),
        (5, "its attributes make no name of a topic for SITE_{site}_{service name}"),
        (9, "it would go back to where it was read from, by {to}"),
    ]


@pytest.mark.long
def test_messages_a_schema_refuses_are_set_aside(spark: SparkSession, garden: Garden, tmp_path: Path) -> None:
    attributes = {"required": ["ams-origin-offset"]}
    number = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
    garden.client.call(wire.create_schema(garden.name, "number", number, attributes=attributes))
    garden.client.call(wire.create_topic(garden.name, "strict", schema="number"))
    messages = [Message(b'{"n": %d}' % each) for each in range(3)]
    garden.topic("in", [*messages, Message(b'{"n": "x"}'), Message(b"no JSON"), Message(b'{"n": 5}')])

    begun = Run(spark, tmp_path, garden.options)
    run(begun, RepublishOptions(topics=("in",), default=("strict", "loose"), create_topics=True, origin=True))

    assert _read_topics(garden) == {
        "strict": ['{"n": 0}', '{"n": 1}', '{"n": 2}', '{"n": 5}'],
        "loose": ['{"n": 0}', '{"n": 1}', '{"n": 2}', '{"n": "x"}', "no JSON", '{"n": 5}'],
    }
    reasons = _set_aside(spark, tmp_path)
    assert [offset for offset, _ in reasons] == [3, 4]
    assert all(reason.startswith("topic strict refuses it: Message ") for _, reason in reasons)
    assert begun.counts() == (0, 2)


def _set_aside(spark: SparkSession, work: Path) -> list[tuple[int, str]]:
    return [(row.offset, row.reason) for row in quarantine_of(spark, work).read().orderBy("offset").collect()]


def _read_topics(garden: Garden) -> dict[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for topic in garden.client.call(wire.list_topics(garden.name)).topics:
        name = topic.name.rsplit("/", 1)[1]
        if name != "in":
            found[name] = [each.payload().decode() for each in garden.client.call(wire.read_topic(garden.name, name))]
    return dict(found)
