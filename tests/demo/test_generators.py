"""The messages of the main job are those of the made-up worlds, as many as were wished."""

from collections.abc import Callable, Iterator

import pytest

from demo.job import probe_results, usage_records
from demo.ledger import Message


@pytest.mark.parametrize("make", [usage_records, probe_results])
def test_a_seed_always_makes_the_same_messages_as_many_as_were_wished(
    make: Callable[[int, int], Iterator[Message]],
) -> None:
    made = list(make(1, 500))

    assert len(made) == 500
    assert made == list(make(1, 500))
    assert made != list(make(2, 500))
    assert all(each.attributes and each.data for each in made)
