"""The list of topics is read as aiokafka reads it, only faster."""

from aiokafka.protocol.metadata import MetadataResponse_v5
from hypothesis import given
from hypothesis import strategies as st

from ams.core.names import Offset, new_topic_id
from ams.storage.log.kafka.place import place_in, place_of
from ams.storage.log.kafka.topics.listing import Listed, listed

numbers = st.integers(0, 2**31 - 1)
nodes = st.lists(numbers, max_size=4)
partitions = st.lists(st.tuples(st.just(0), numbers, numbers, nodes, nodes, nodes), max_size=3)
texts = st.text(max_size=20)
ours = st.builds(
    lambda label, first: place_of("ams", new_topic_id(), label, Offset(first)).name, texts, st.integers(0, 5)
)
topics = st.lists(st.tuples(st.sampled_from([0, 3, 5]), texts | ours, st.booleans(), partitions), max_size=6)
brokers = st.lists(st.tuples(numbers, texts, numbers, st.none() | texts), max_size=3)


def answer(brokers, topics, cluster="c") -> bytes:
    return MetadataResponse_v5(0, brokers, cluster, 1, topics).encode()


@given(brokers, topics, st.none() | texts)
def test_a_list_is_read_as_it_was_written(brokers, topics, cluster):
    expected = {}
    for error, name, _, parts in sorted(topics, key=lambda each: each[1]):
        place = place_in("ams", name)
        if place is not None and not error:
            least = min((len(replicas) for _, _, _, replicas, _, _ in parts), default=0)
            expected.setdefault(place.topic, Listed(place, len(parts), least))

    found = listed("ams", answer(brokers, topics, cluster))

    assert {topic: each.place for topic, each in found.items()} == {
        topic: each.place for topic, each in expected.items()
    }
    assert [each.partitions for each in found.values()] == [expected[topic].partitions for topic in found]


def test_the_fewest_copies_of_any_partition_count():
    place = place_of("ams", new_topic_id(), "p.t")
    parts = [(0, 0, 1, [1, 2, 3], [1], []), (0, 1, 1, [1], [1], [])]
    assert listed("ams", answer([], [(0, place.name, False, parts)]))[place.topic] == Listed(place, 2, 1)


def test_of_two_topics_with_one_identity_the_first_by_name_counts():
    topic = new_topic_id()
    names = [place_of("ams", topic, label).name for label in ("b", "a")]
    found = listed("ams", answer([], [(0, name, False, []) for name in names]))
    assert [each.place.name for each in found.values()] == [names[1]]
