"""Options of the engine, names of topics on Kafka, and parsing lists of brokers."""

import re

import pytest
from aiokafka.protocol.metadata import MetadataResponse_v5
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import BadSettings
from ams.core.names import RESOURCE_NAME, new_topic_id
from ams.storage.log.kafka.options import KafkaOptions, access, addresses
from ams.storage.log.kafka.partition import MAX_NAME, Listed, Partition, partition_in, partition_of, read_topic_list
from ams.storage.log.kafka.topics import new_configs

LABELS = st.from_regex(rf"[a-zA-Z0-9_-]{{1,255}}\.({RESOURCE_NAME})", fullmatch=True)
PREFIXES = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)


@given(prefix=PREFIXES, label=LABELS | st.just(""), first=st.integers(0, 10**18 - 1))
def test_a_name_tells_its_topic_whatever_people_call_it(prefix: str, label: str, first: int) -> None:
    partition = partition_of(prefix, new_topic_id(), label, first)
    assert len(partition.name) <= MAX_NAME
    assert partition_in(prefix, partition.name) == partition
    assert re.fullmatch("[a-zA-Z0-9._-]+", partition.name)


@given(prefix=PREFIXES, other=PREFIXES, label=LABELS)
def test_another_prefix_does_not_see_it(prefix: str, other: str, label: str) -> None:
    name = partition_of(prefix, new_topic_id(), label).name
    assert (partition_in(other, name) is not None) == (other == prefix)


def test_a_name_is_readable_and_tells_the_first_offset_only_when_it_is_not_0() -> None:
    topic = new_topic_id()
    assert partition_of("ams", topic, "EGI.accounting") == Partition(topic, f"ams.EGI.accounting.{topic.hex()}")
    assert partition_of("ams", topic, "EGI.accounting", 7).name == f"ams.EGI.accounting.{topic.hex()}-7"


def test_topics_of_others_are_none_of_ours() -> None:
    for name in ("__consumer_offsets", "ams", "ams.", "ams.x", "ams.accounting.cafe", "other." + "a" * 32):
        assert partition_in("ams", name) is None


numbers = st.integers(0, 2**31 - 1)
nodes = st.lists(numbers, max_size=4)
partitions = st.lists(st.tuples(st.just(0), numbers, numbers, nodes, nodes, nodes), max_size=3)
texts = st.text(max_size=20)
ours = st.builds(lambda label, first: partition_of("ams", new_topic_id(), label, first).name, texts, st.integers(0, 5))
topics = st.lists(st.tuples(st.sampled_from([0, 3, 5]), texts | ours, st.booleans(), partitions), max_size=6)
brokers = st.lists(st.tuples(numbers, texts, numbers, st.none() | texts), max_size=3)


def answer(brokers, topics, cluster="c") -> bytes:
    return MetadataResponse_v5(0, brokers, cluster, 1, topics).encode()


@given(brokers, topics, st.none() | texts)
def test_a_list_is_read_as_it_was_written(brokers, topics, cluster) -> None:
    expected = {}
    for error, name, _, parts in sorted(topics, key=lambda each: each[1]):
        partition = partition_in("ams", name)
        if partition is not None and not error:
            least = min((len(replicas) for _, _, _, replicas, _, _ in parts), default=0)
            expected.setdefault(partition.topic, Listed(partition, len(parts), least))

    found = read_topic_list("ams", answer(brokers, topics, cluster))

    assert {topic: each.partition for topic, each in found.items()} == {
        topic: each.partition for topic, each in expected.items()
    }
    assert [each.partition_count for each in found.values()] == [expected[topic].partition_count for topic in found]


def test_the_fewest_copies_of_any_partition_count() -> None:
    partition = partition_of("ams", new_topic_id(), "p.t")
    parts = [(0, 0, 1, [1, 2, 3], [1], []), (0, 1, 1, [1], [1], [])]
    assert read_topic_list("ams", answer([], [(0, partition.name, False, parts)]))[partition.topic] == Listed(
        partition, 2, 1
    )


def test_of_two_topics_with_one_identity_the_first_by_name_counts() -> None:
    topic = new_topic_id()
    names = [partition_of("ams", topic, label).name for label in ("b", "a")]
    found = read_topic_list("ams", answer([], [(0, name, False, []) for name in names]))
    assert [each.partition.name for each in found.values()] == [names[1]]


def test_brokers_to_begin_with_are_hosts_and_ports() -> None:
    found = addresses(KafkaOptions(servers="one.example:9093, two.example,[::1]:9094"))
    assert sorted(found) == [("::1", 9094), ("one.example", 9093), ("two.example", 9092)]


def test_what_is_no_address_is_named_with_its_setting() -> None:
    with pytest.raises(BadSettings, match="kafka_servers is host:port, or several with commas, not one.example:port"):
        addresses(KafkaOptions(servers="one.example:port"))


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_a_file_without_certificates_is_named_with_its_setting(tmp_path, content) -> None:
    file = tmp_path / "ca.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadSettings, match=f"kafka_ca_file {file} cannot be used: .+"):
        access(KafkaOptions(servers="one.example:9092", tls=True, ca_file=str(file)))


def test_the_way_in_is_what_was_asked_for() -> None:
    assert access(KafkaOptions(servers="one.example:9092")) == {"security_protocol": "PLAINTEXT"}
    closed = access(KafkaOptions(servers="one.example:9092", tls=True, user="ams", password="secret"))
    assert (closed["security_protocol"], closed["sasl_mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")
    assert "secret" not in repr(KafkaOptions(servers="one.example:9092", password="secret"))


def test_the_age_of_segments_follows_that_of_messages() -> None:
    options = KafkaOptions(servers="one.example:9092")
    assert new_configs(options, None)["segment.ms"] == str(options.retention // 8)
    assert new_configs(options, 1)["segment.ms"] == "600000"
