"""What is done of a subscription, against a set of offsets."""

from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap64

from ams.core.names import Offset
from ams.service.parallel.done import Done
from ams.storage.cursors.acks import Progress

END = 40
FROM_FLOOR = Progress(Offset(3), 0, 1, BitMap64([5, 7]), {})


def spans() -> st.SearchStrategy[list[Offset]]:
    """Return offsets that are done together."""
    return st.sets(st.integers(3, END - 1), min_size=1, max_size=8).map(lambda some: [*map(Offset, some)])


@given(st.lists(spans(), max_size=12), st.integers(0, END))
def test_what_is_done_is_known_and_the_floor_is_the_first_that_is_not(added: list[list[Offset]], oldest: int) -> None:
    done, model = Done(FROM_FLOOR), {0, 1, 2, 5, 7}
    for some in added:
        new = [each for each in some if each not in model]
        done.add(new)
        model.update(new)
    if oldest > done.floor:
        done.raise_floor(Offset(oldest))
        model.update(range(oldest))

    floor = next(each for each in range(END + 1) if each not in model)
    assert done.floor == floor
    assert [each for each in range(END) if Offset(each) in done] == sorted(model)
    assert done.above == len(model) - floor
    assert done.count_from(Offset(max(floor, 20))) == len([each for each in model if each >= max(floor, 20)])
    assert done.scan == floor


def test_what_is_passed_over_is_done_and_told_once_in_as_few_ranges_as_were_met() -> None:
    done = Done(FROM_FLOOR)
    done.pass_over(Offset(8), Offset(10))
    done.pass_over(Offset(10), Offset(11))
    done.pass_over(Offset(20), Offset(21))
    passed = done.take_passed()

    assert passed == [(8, 11), (20, 21)]
    assert Offset(10) in done
    assert not done.has_passed
    done.pass_over(Offset(3), Offset(5))
    done.passed_again(passed)
    assert done.floor == 6
    assert done.take_passed() == [*passed, (3, 5)]
