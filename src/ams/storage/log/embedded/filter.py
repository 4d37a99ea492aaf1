"""A filter of a sealed segment's keys, in memory: which keys it may hold, so that a new key need not ask the disk.

A key's hash is a number evenly spread. It is stretched to as many buckets as there are keys / 32, with 16 bits after
the point: the *fingerprint*. The filter keeps those 16 bits of every key, in the order of the hashes, and where each
bucket begins: 17 bits a key, 212 kB for the 100,000 keys of a full segment, 21 MB for ten million keys in the log. A
key that is there always passes; of others about one in 2,000 does, and then the index file is asked.
"""

import zlib
from array import array
from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from ams.core.errors import Damaged
from ams.storage.log.embedded.numbers import from_bytes, to_bytes

BUCKET = 32
"""Keys for each bucket, on average."""
_REST_BITS = 16
_REST = (1 << _REST_BITS) - 1
_PREFIX_BYTES = 6
_STRETCH = 8 * _PREFIX_BYTES - _REST_BITS
_CHECKSUM_BYTES = 4


def prefix_of(hashed: bytes) -> int:
    """Return what a filter looks at of a key's hash."""
    return int.from_bytes(hashed[:_PREFIX_BYTES])


class KeyFilter(NamedTuple):
    """Says of a key that it is not in a segment, or may be."""

    starts: "array[int]"
    """Number of the first key of each bucket, and after the last one the number of keys."""
    rests: "array[int]"
    """Of each key, in the order of their hashes: the 16 bits of its fingerprint within its bucket."""

    def may_hold(self, prefix: int) -> bool:
        """Whether a key with this prefix (`prefix_of`) may be among the keys; False is certain."""
        starts, rests = self
        place = prefix * (len(starts) - 1) >> _STRETCH
        bucket, rest = place >> _REST_BITS, place & _REST
        stop = starts[bucket + 1]
        at = bisect_left(rests, rest, starts[bucket], stop)
        return at < stop and rests[at] == rest

    @property
    def bytes(self) -> int:
        """Bytes of memory it takes."""
        return 4 * len(self.starts) + 2 * len(self.rests)


def make_filter(hashes: Sequence[bytes]) -> KeyFilter:
    """Return the filter of keys, given their hashes in order."""
    buckets = max(1, (len(hashes) + BUCKET - 1) // BUCKET)
    places = [prefix_of(hashed) * buckets >> _STRETCH for hashed in hashes]
    starts = [bisect_left(places, bucket << _REST_BITS) for bucket in range(buckets + 1)]
    return KeyFilter(array("I", starts), array("H", [place & _REST for place in places]))


NO_KEYS = make_filter(())


def encode_filter(keys: KeyFilter) -> bytes:
    """Return a filter as it is in an index file: starts (4 each), rests (2 each), checksum (4)."""
    data = to_bytes(keys.starts) + to_bytes(keys.rests)
    return data + zlib.crc32(data).to_bytes(_CHECKSUM_BYTES, "little")


def decode_filter(data: bytes, keys: int) -> KeyFilter:
    """Read the filter of so many keys; raises `Damaged` when it is not what was written."""
    content, claimed = data[:-_CHECKSUM_BYTES], data[-_CHECKSUM_BYTES:]
    if zlib.crc32(content).to_bytes(_CHECKSUM_BYTES, "little") != claimed:
        raise Damaged("key filter checksum")
    starts = len(content) - 2 * keys
    return KeyFilter(from_bytes("I", content[:starts]), from_bytes("H", content[starts:]))
