"""What is read from Kafka itself is what the service gives."""

from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import pytest
from aiokafka import AIOKafkaProducer
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from ams.client import Client, Message
from ams.pipeline.columns import MESSAGES
from ams.pipeline.errors import WrongOption
from ams.pipeline.io import read_topic, stream_topic
from ams.pipeline.kafka import Kafka, pattern
from ams.pipeline.options import Name
from tests.pipeline.garden import Garden, make_garden
from tests.support.parts import scratch_database
from tests.support.served import served

pytestmark = pytest.mark.postgres  # the service that is compared keeps its registry there

ODD = [
    Message(bytes(range(256)), {"naïve": "☃", "": "", "ams:x": "y", "ams::z": "ams:text"}),
    Message(b"plain"),
    Message(b"keyed", {"ams:orderingKey": "other"}, "b\u00e9d 4"),
    Message(attributes={"n": "1"}),
]
AS_TEXT = ["YQ==\nYg==", "YR==", "no base64 ☃", "aGVsbG8=\n"]
"""Data that a lenient service keeps as the text it is."""
OF_OTHERS = [
    (None, []),
    (b"\xff\xfe", [("twice", b"1"), ("twice", b"2"), ("none", None), ("bytes", b"caf\xe9 \xe2\x82")]),
    (b"", [("ams:hole", b"")]),
    (b"keys", [("ams:orderingKey", b"one"), ("ams:orderingKey", b"caf\xe9")]),
    (b"no key", [("ams:orderingKey", b"")]),
    (b"last", []),
]


def database(url: str) -> dict[str, object]:
    parts = urlsplit(url)
    address = parts._replace(netloc=f"{parts.username}@{parts.hostname}:{parts.port}")
    return {"registry": address.geturl(), "registry_password": parts.password}


@pytest.fixture
def kafka(kafka_servers: str, kafka_prefix: str) -> Kafka:
    return Kafka(servers=kafka_servers, prefix=kafka_prefix)


@pytest.fixture
def garden(kafka: Kafka, tmp_path: Path) -> Iterator[Garden]:
    with scratch_database() as registry:
        cluster = {"log": "kafka", "kafka_servers": kafka.servers, "kafka_prefix": kafka.prefix, **database(registry)}
        alone = {"kafka_replication": 1, "kafka_min_isr": 1, "lenient_data": True}
        with (
            served(tmp_path / "data", **cluster, **alone) as running,
            Client(running.run.base_url, running.token) as client,
        ):
            yield make_garden(running, client, "garden")


def publish_text(garden: Garden, topic: str, texts: list[str]) -> None:
    url = f"{garden.options['endpoint']}/v1/projects/{garden.name}/topics/{topic}:publish"
    body = {"messages": [{"data": text} for text in texts]}
    with httpx.Client(trust_env=False, headers={"x-api-key": garden.served.token}) as http:
        http.post(url, json=body).raise_for_status()


async def write_as_others_do(kafka: Kafka, name: str) -> None:
    async with AIOKafkaProducer(bootstrap_servers=kafka.servers) as producer:
        for value, headers in OF_OTHERS:
            await producer.send_and_wait(name, value, key=b"of others", headers=headers)


def types(schema: StructType) -> list[tuple[str, str]]:
    return [(field.name, field.dataType.simpleString()) for field in schema]


def rows(frame: DataFrame) -> list[tuple[object, ...]]:
    assert types(frame.schema) == types(MESSAGES)
    return [tuple(row) for row in frame.orderBy("offset").collect()]


def name_on_kafka(spark: SparkSession, kafka: Kafka, topic: Name) -> str:
    """Return the one topic on Kafka of this name, though there was another."""
    asked = {"kafka.bootstrap.servers": kafka.servers, "subscribePattern": pattern(kafka.prefix, topic)}
    [found] = spark.read.format("kafka").options(**asked).load().select("topic").distinct().collect()
    return str(found.topic)


async def test_both_ways_give_the_same_rows(spark: SparkSession, kafka: Kafka, garden: Garden) -> None:
    garden.topic("plants", [Message(b"of a topic that was deleted")])
    garden.client.project("garden").topic("plants").delete()
    garden.topic("plants", ODD)
    publish_text(garden, "plants", AS_TEXT)
    garden.topic("plants2", [Message(b"of another topic")])
    await write_as_others_do(kafka, name_on_kafka(spark, kafka, Name("garden", "plants")))

    found = rows(read_topic(spark, "garden/plants", kafka=kafka))

    assert found == rows(read_topic(spark, "plants", **garden.options))
    assert [row[2] for row in found] == [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13]
    assert [bytes(row[6]) for row in found[4:8]] == [b"YQ==\nYg==", b"a", "no base64 ☃".encode(), b"hello"]
    assert [(row[2], row[7]) for row in found if row[7] is not None] == [(2, "b\u00e9d 4"), (11, "caf\ufffd")]


def test_a_stream_of_kafka_is_one_of_messages(spark: SparkSession, kafka: Kafka) -> None:
    stream = stream_topic(spark, "garden/plants", kafka=kafka, startingOffsets="earliest", maxOffsetsPerTrigger="10")

    assert stream.isStreaming
    assert types(stream.schema) == types(MESSAGES)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"token": "t"}, "option token: means nothing to Kafka"),
        ({"startingOffsets": "7"}, "option startingOffsets: with Kafka is earliest or latest"),
    ],
)
def test_options_that_kafka_does_not_have_are_refused(spark: SparkSession, options: dict[str, str], said: str) -> None:
    with pytest.raises(WrongOption, match=said):
        read_topic(spark, "garden/plants", kafka=Kafka(servers="kafka.example:9092"), **options)


def test_names_that_the_service_cuts_on_kafka_need_the_name_there() -> None:
    with pytest.raises(WrongOption, match="too long to be found on Kafka"):
        pattern("ams", Name("p" * 200, "t"))
