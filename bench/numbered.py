"""Messages that each differ from all others, so that what is made of them can be compared by hashes."""

import base64
import hashlib
from collections.abc import Iterator
from random import Random
from typing import NamedTuple, Protocol

import duckdb
import httpx
import msgspec
import pyarrow as pa
import pyarrow.ipc

from bench import preparing
from bench.processes import Service

SITES = 4
SIZE = 200
"""Bytes of a message: its number, and random ones that cannot be packed."""
PER_REQUEST = 1000
RANGE = 200_000
"""Messages that are asked for at a time."""
HASHES = 'count(*)::BIGINT, coalesce(sum(hash("offset", data)), 0)::HUGEINT::VARCHAR'
"""Of rows in any order: how many, and what their hashes add up to."""


class Reachable(Protocol):
    """Where a service is, and how to come in."""

    @property
    def url(self) -> str: ...
    @property
    def token(self) -> str: ...


class Held(NamedTuple):
    """What a topic holds."""

    messages: int
    hashes: int
    """The sum of the hashes of its offsets and data."""
    in_order: str
    """One hash of the data of all, in their order."""


def publish(service: Service, topic: str, messages: int) -> None:
    """Publish so many messages to a topic, each with the attribute `site`: its number modulo `SITES`."""
    preparing.send(service, "POST", ((f"{topic}:publish", body) for body in _bodies(messages)))


def _bodies(messages: int) -> Iterator[bytes]:
    draw = Random(messages)
    rest = SIZE - 8
    for first in range(0, messages, PER_REQUEST):
        count = min(PER_REQUEST, messages - first)
        drawn = draw.randbytes(count * rest)
        told = [
            {
                "attributes": {"site": str((first + number) % SITES)},
                "data": base64.b64encode(
                    (first + number).to_bytes(8, "big") + drawn[number * rest : (number + 1) * rest]
                ).decode(),
            }
            for number in range(count)
        ]
        yield msgspec.json.encode({"messages": told})


def held(service: Service, topic: str) -> Held:
    """Return what a topic holds."""
    [found] = held_by_site(service, topic, 1)
    return found


def held_by_site(service: Service, topic: str, sites: int = SITES) -> list[Held]:
    """Return of each site what a topic holds of it, hashed as if it were a topic of its own."""
    orders = [hashlib.sha256() for _ in range(sites)]
    counts, sums = [0] * sites, [0] * sites
    with duckdb.connect() as connection:
        for batch in ranges(service, topic):
            data = batch.column("data").to_pylist()
            kept = [int.from_bytes(each[:8], "big") % sites for each in data]
            for site, each in zip(kept, data, strict=True):
                orders[site].update(each)
            connection.register("read", pa.table({**_columns(batch), "site": pa.array(kept, pa.int32())}))
            for site, count, hashes in connection.execute(f"SELECT site, {HASHES} FROM read GROUP BY ALL").fetchall():
                counts[site] += count
                sums[site] += int(hashes)
    return [Held(count, hashes, order.hexdigest()) for count, hashes, order in zip(counts, sums, orders, strict=True)]


def _columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    return {name: batch.column(name) for name in ("offset", "data")}


def ranges(service: Reachable, topic: str) -> Iterator[pa.RecordBatch]:
    """Yield the messages of a topic, in their order."""
    headers = {"x-api-key": service.token, "Accept": "application/vnd.apache.arrow.stream"}
    at, end = 0, 1
    with httpx.Client(headers=headers, timeout=60, trust_env=False) as client:
        while at < end:
            answer = client.get(f"{service.url}/v1/{topic}:read", params={"from": at, "max": RANGE})
            answer.raise_for_status()
            yield from pyarrow.ipc.open_stream(answer.content)
            at, end = int(answer.headers["AMS-Next-Offset"]), int(answer.headers["AMS-End-Offset"])
