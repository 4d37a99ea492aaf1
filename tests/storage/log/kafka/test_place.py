from hypothesis import given
from hypothesis import strategies as st

from ams.core.names import Offset, new_topic_id
from ams.storage.log.kafka.place import MAX_NAME, Place, place_in, place_of

LABELS = st.from_regex(r"[a-zA-Z0-9_-]{1,255}\.[a-zA-Z0-9_-]{1,255}", fullmatch=True)
PREFIXES = st.from_regex(r"[a-zA-Z0-9_-]{1,64}", fullmatch=True)


@given(prefix=PREFIXES, label=LABELS | st.just(""), first=st.integers(0, 10**18 - 1))
def test_a_name_tells_its_topic_whatever_people_call_it(prefix: str, label: str, first: int) -> None:
    place = place_of(prefix, new_topic_id(), label, Offset(first))
    assert len(place.name) <= MAX_NAME
    assert place_in(prefix, place.name) == place


@given(prefix=PREFIXES, other=PREFIXES, label=LABELS)
def test_another_prefix_does_not_see_it(prefix: str, other: str, label: str) -> None:
    name = place_of(prefix, new_topic_id(), label).name
    assert (place_in(other, name) is not None) == (other == prefix)


def test_a_name_is_readable_and_tells_the_first_offset_only_when_it_is_not_0() -> None:
    topic = new_topic_id()
    assert place_of("ams", topic, "EGI.accounting") == Place(topic, f"ams.EGI.accounting.{topic.hex()}")
    assert place_of("ams", topic, "EGI.accounting", Offset(7)).name == f"ams.EGI.accounting.{topic.hex()}-7"


def test_topics_of_others_are_none_of_ours() -> None:
    for name in ("__consumer_offsets", "ams", "ams.", "ams.x", "ams.accounting.cafe", "other." + "a" * 32):
        assert place_in("ams", name) is None
