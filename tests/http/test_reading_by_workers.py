"""Big bodies: a worker reads them as they are read in place, with the same messages, errors and texts."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ams.core.errors import AmsError
from ams.core.messages import Batch
from ams.http.big_bodies import BIG_BODY, MAX_ATTRIBUTES, MAX_MESSAGES
from ams.http.messages import MessageReader, read_ack_ids, read_messages
from ams.workers import NoWorker, Pool, TaskFailed

PREFIX = "projects/P/subscriptions/S:"


class Counted(Pool):
    """A pool that says how many tasks its workers have done."""

    tasks = 0

    def done(self, *args: Any, **others: Any) -> Any:
        self.tasks += 1
        return super().done(*args, **others)


class Failing(Pool):
    """A pool none of whose workers does what it is asked."""

    def __init__(self, error: Exception) -> None:
        super().__init__(1)
        self._error = error

    def is_ready(self, size: int = 0) -> bool:
        return True

    def done(self, *_: Any, **__: Any) -> Any:
        raise self._error


@pytest.fixture(scope="module")
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture(scope="module")
def pool(runner: asyncio.Runner) -> Iterator[Counted]:
    async def ready() -> Counted:
        made = Counted(1)
        while not made.is_ready():
            await asyncio.sleep(0.01)
        return made

    made = runner.run(ready())
    yield made
    runner.run(made.close())


def outcome(runner: asyncio.Runner, ask: Callable[[], Awaitable[object]]) -> object:
    """Return what is read, and what is counted of it, or the kind and text of the refusal."""

    async def asked() -> object:
        return await ask()

    try:
        read = runner.run(asked())
        if isinstance(read, Batch):
            counted = read.size, read.largest, read.data_bytes, read.has_ordering_keys
            return [*read], read[1:], [*read.fragments], counted
        return read
    except AmsError as error:
        return type(error), error.message


def both(runner: asyncio.Runner, pool: Counted, body: bytes, *, lenient: bool = False) -> object:
    """Return what is read of a publish body in place, which is what a worker reads."""
    here, there = MessageReader(False), MessageReader(False, pool)
    before = pool.tasks
    in_place = outcome(runner, lambda: here.read(body, lenient=lenient))
    in_worker = outcome(runner, lambda: there.read(body, lenient=lenient))
    assert pool.tasks == before + (len(body) > BIG_BODY)
    assert in_worker == in_place
    return in_place


DATA = st.one_of(
    st.binary(max_size=9).map(lambda data: base64.b64encode(data).decode()),
    st.text(max_size=6),
    st.sampled_from(["", "\n", "aG\r\nk=", "aGk", "a-_k", "\ud800", 'q"', "ü", None, 7]),
)
ATTRIBUTES = st.one_of(
    st.none(),
    st.dictionaries(st.text(max_size=3), st.text(max_size=3) | st.none() | st.integers(), max_size=3),
    st.lists(
        st.fixed_dictionaries({}, optional={"key": st.text(max_size=2), "Value": st.text(max_size=2)}), max_size=3
    ),
    st.just("text"),
)
KEYS = st.text(max_size=3) | st.sampled_from([None, 7, "k" * 1024, "k" * 1025])
MESSAGE = st.one_of(
    st.fixed_dictionaries(
        {}, optional={"data": DATA, "attributes": ATTRIBUTES, "Data": DATA, "messageId": DATA, "orderingKey": KEYS}
    ),
    st.none(),
    st.integers(),
)
BODY = st.one_of(
    st.fixed_dictionaries({}, optional={"messages": st.lists(MESSAGE, max_size=5), "MESSAGES": st.lists(MESSAGE)}),
    st.fixed_dictionaries({"messages": DATA}),
    st.lists(st.integers(), max_size=2),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODY, cut=st.integers(0, 3), lenient=st.booleans())
@example(body={"messages": [{"data": "aGk=", "attributes": {"a": "ü\ud83d"}}]}, cut=0, lenient=True)
@example(body={"messages": []}, cut=0, lenient=False)
def test_a_worker_reads_a_big_body_as_it_is_read_in_place(
    runner: asyncio.Runner, pool: Counted, body: object, cut: int, lenient: bool
) -> None:
    text = json.dumps(body).encode()

    both(runner, pool, text[: len(text) - cut] + b" " * BIG_BODY, lenient=lenient)


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"data": "QUJD", "attributes": {"n": str(number)}} for number in range(10_000)]},
        {"messages": [{"data": "QUJD", "orderingKey": str(number % 7)} for number in range(10_000)]},
        {"messages": [{"data": "QUJD" * 100_000}] * 7},
        {"messages": [*[{"data": "aGk="}] * 40_000, {"data": "aGk"}]},
        {"messages": [{}] * (MAX_MESSAGES + 1)},
        {"messages": [{"attributes": {str(number): "" for number in range(MAX_ATTRIBUTES + 1)}}]},
        {"messages": [{"data": "*" * BIG_BODY}]},
    ],
    ids=["many", "with keys", "large", "bad", "too many", "too many attributes", "large and bad"],
)
def test_large_ones_are_read_alike(runner: asyncio.Runner, pool: Counted, body: object) -> None:
    assert both(runner, pool, json.dumps(body).encode())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.fixed_dictionaries({}, optional={"ackIds": st.none() | st.lists(
        st.integers(-1, 10**7).map(lambda number: f"{PREFIX}{number}") | st.sampled_from(["x", PREFIX, 7])
    )}),
    times=st.sampled_from([1, 5000]),
)  # fmt: skip
def test_a_worker_reads_big_acknowledgements_as_they_are_read_in_place(
    runner: asyncio.Runner, pool: Counted, body: dict[str, list[object]], times: int
) -> None:
    text = json.dumps({name: ids and ids * times for name, ids in body.items()}).encode() + b" " * BIG_BODY
    here, there = MessageReader(False), MessageReader(False, pool)

    in_place = outcome(runner, lambda: here.ack_ids(PREFIX, text))

    assert outcome(runner, lambda: there.ack_ids(PREFIX, text)) == in_place


@pytest.mark.parametrize("error", [NoWorker(), TaskFailed()])
async def test_what_no_worker_does_is_done_in_place(error: Exception) -> None:
    reader = MessageReader(False, Failing(error))
    padding = b" " * BIG_BODY

    assert [each.data for each in await reader.read(b'{"messages":[{"data":"aGk="}]}' + padding)] == ["aGk="]
    assert await reader.ack_ids(PREFIX, b'{"ackIds":["%b3"]}' % PREFIX.encode() + padding) == [PREFIX + "3"]


async def test_nobody_waits_for_a_worker_to_begin() -> None:
    pool = Counted(1)
    reader = MessageReader(False, pool)

    assert len(await reader.read(b'{"messages":[{"data":"aGk="}]}' + b" " * BIG_BODY)) == 1

    assert pool.tasks == 0
    await pool.close()


def test_jobs_return_bytes_of_their_own() -> None:
    body = bytearray(b'{"messages":[{"data":"aGk="}]}')
    ids = bytearray(b'{"ackIds":["%b3"]}' % PREFIX.encode())

    _, lengths, fragments = read_messages([memoryview(b""), memoryview(body)])
    [largest] = read_ack_ids([memoryview(PREFIX.encode()), memoryview(ids)])
    body[:], ids[:] = bytes(len(body)), bytes(len(ids))

    assert (bytes(lengths), bytes(fragments)) == (b"\x0d\0\0\0", b'"data":"aGk="')
    assert largest == b"\x91\xbc" + PREFIX.encode() + b"3"
