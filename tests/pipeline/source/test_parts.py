"""How what is to be read is shared out."""

from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.options import Name
from ams.pipeline.source.parts import limited, parts

RANGES = st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1, max_size=5)


def offsets(ranges: list[tuple[int, int]]) -> tuple[list[Name], dict[str, int], dict[str, int]]:
    topics = [Name("p", f"t{number}") for number in range(len(ranges))]
    starts = {str(topic): start for topic, (start, _) in zip(topics, ranges, strict=True)}
    return topics, starts, {str(topic): sum(each) for topic, each in zip(topics, ranges, strict=True)}


@given(RANGES, st.none() | st.integers(1, 50))
def test_parts_are_the_ranges_each_offset_once(ranges: list[tuple[int, int]], least: int | None) -> None:
    topics, starts, ends = offsets(ranges)

    found = parts(starts, ends, topics, least)

    total = sum(size for _, size in ranges)
    assert len(found) >= min(least or 1, total)
    assert all(each.start < each.stop for each in found)
    for topic in topics:
        read = [offset for each in found if each.topic == topic for offset in range(each.start, each.stop)]
        assert read == list(range(starts[str(topic)], ends[str(topic)]))


@given(RANGES, st.none() | st.integers(1, 3000))
def test_a_batch_has_as_much_as_it_may_and_there_is(ranges: list[tuple[int, int]], most: int | None) -> None:
    _, starts, ends = offsets(ranges)

    found = limited(starts, ends, most)

    total = sum(size for _, size in ranges)
    assert sum(found.values()) - sum(starts.values()) == (total if most is None else min(total, most))
    assert all(starts[topic] <= found[topic] <= ends[topic] for topic in ends)
    if most is not None:
        assert all(
            found[topic] - starts[topic] >= most * (ends[topic] - starts[topic]) // max(total, most) for topic in ends
        )
