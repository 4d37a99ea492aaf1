"""The filter of a segment's keys: it never says that a key is not there when it is, and seldom that a new one is."""

from array import array
from hashlib import blake2b

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ams.core.errors import Damaged
from ams.storage.log.embedded.index_file import decode_filter, encode_filter
from ams.storage.log.embedded.segment_index import NO_KEYS, KeyFilter, make_filter


def hashes(first: int, count: int) -> list[bytes]:
    numbers = range(first, first + count)
    return sorted(blake2b(number.to_bytes(8), digest_size=16).digest() for number in numbers)


@given(st.sets(st.binary(min_size=16, max_size=16), max_size=300))
@example({bytes(16), b"\xff" * 16})
@example({bytes(8) + number.to_bytes(8) for number in range(200)})
@example({b"\xff" * 8 + number.to_bytes(8) for number in range(200)})
def test_every_key_that_is_there_passes_also_when_it_was_written(keys: set[bytes]) -> None:
    made = make_filter(sorted(keys))

    assert all(made.may_hold(key) for key in keys)
    assert not keys or decode_filter(encode_filter(made), len(keys)) == made


def test_of_new_keys_fewer_than_one_in_a_thousand_passes() -> None:
    made = make_filter(hashes(0, 20_000))

    passed = sum(made.may_hold(key) for key in hashes(10**6, 100_000))

    assert 0 < passed < 100


def test_it_takes_17_bits_for_each_key() -> None:
    keys = 100_000
    made = make_filter(hashes(0, keys))

    assert made.bytes == pytest.approx(17 / 8 * keys, rel=0.001)
    assert len(encode_filter(made)) == made.bytes + 4


def test_without_keys_nothing_passes() -> None:
    assert not NO_KEYS.may_hold(bytes(16))
    assert not NO_KEYS.may_hold(b"\xff" * 16)


def test_a_damaged_filter_is_noticed() -> None:
    data = bytearray(encode_filter(KeyFilter(array("I", [0, 2]), array("H", [5, 9]))))
    data[4] ^= 1

    with pytest.raises(Damaged, match="key filter checksum"):
        decode_filter(bytes(data), 2)
