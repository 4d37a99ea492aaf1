"""Publish bodies read quickly and by workers give what a plain reading of each message gives, whatever the body."""

import asyncio
import base64
import json
from collections.abc import Awaitable, Callable, Mapping, Sequence

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ams.core.errors import AmsError, InvalidInput
from ams.core.messages import Batch, Message, message
from ams.http.big_bodies import BIG_BODY, MAX_ATTRIBUTES, MAX_MESSAGES
from ams.http.bodies import Reader
from ams.http.messages import MessageReader, read_ack_ids, read_messages
from ams.wire.messages import AttributePair, PublishBody
from ams.workers import NoWorker, TaskFailed
from tests.support.pools import CountedPool, FailingPool
from tests.support.waiting import wait_until_async

Told = tuple[list[Message], int, int, int, int] | str
"""Messages and their counts, or the text of an error."""

_reader = Reader(PublishBody, lambda: InvalidInput("Invalid Message Arguments"))


def plainly(body: bytes, lenient: bool) -> list[Message]:
    """Read a body message by message, as contract 12.1, 12.2 and 17.1, M7 say it."""
    messages = []
    for place, sent in enumerate(_reader.read(body).messages or ()):
        data = (sent and sent.data) or ""
        attributes = named(sent and sent.attributes)
        if not data.strip("\r\n") and not attributes:
            raise refusal(f"message {place}, counted from 0, has neither data nor attributes")
        key = (sent and sent.ordering_key) or ""
        if len(key.encode()) > 1024:
            raise refusal(f"the ordering key of message {place}, counted from 0, has more than 1024 bytes")
        if not lenient and not is_base64(data):
            text = "is not base64, as strict_data demands: encode it"
            raise refusal(f"the data of message {place}, counted from 0, {text}")
        messages.append(message(data, attributes, key))
    return messages


def named(given: Mapping[str, str | None] | Sequence[AttributePair] | None) -> dict[str, str]:
    pairs = given.items() if isinstance(given, Mapping) else [(each.key, each.value) for each in given or ()]
    return {name or "": value or "" for name, value in pairs}


def is_base64(data: str) -> bool:
    try:
        base64.b64decode(data.replace("\r", "").replace("\n", ""), validate=True)
    except ValueError:
        return False
    return True


def refusal(text: str) -> InvalidInput:
    return InvalidInput(f"Invalid Message Arguments: {text}")


def expected(body: bytes, lenient: bool) -> Told:
    try:
        messages = plainly(body, lenient)
    except InvalidInput as error:
        return str(error)
    sizes = [len(each.fragment) for each in messages]
    not_base64 = sum(not is_base64(each.data) for each in messages)
    return messages, sum(sizes), max(sizes, default=0), sum(len(each.data) for each in messages), not_base64


def told(body: bytes, lenient: bool) -> Told:
    try:
        made = MessageReader().read_small(body, lenient=lenient)
    except InvalidInput as error:
        return str(error)
    assert made.has_ordering_keys == any(each.ordering_key for each in made)
    return list(made), made.size, made.largest, made.data_bytes, made.not_base64


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
ENCODED = st.binary(max_size=60).map(lambda data: base64.b64encode(data).decode())
BROKEN = st.tuples(ENCODED, st.integers(0, 20), st.sampled_from(["\n", "\r\n", "=", "-", " ", "A", "\u00e9", '"'])).map(
    lambda each: each[0][: each[1]] + each[2] + each[0][each[1] :]
)
DATA = st.one_of(ENCODED, ENCODED, BROKEN, TEXT, st.none(), st.integers())
ATTRIBUTES = st.one_of(
    st.dictionaries(TEXT, TEXT, max_size=5),
    st.dictionaries(TEXT, TEXT | st.none(), max_size=3),
    st.lists(st.dictionaries(st.sampled_from(["key", "value", "Key", "VALUE"]), TEXT | st.none())),
    st.none() | st.integers() | TEXT,
)
KEYS = TEXT | st.none() | st.sampled_from(["\u00e9" * 512, "\u00e9" * 512 + "x", 7])
FIELDS = {
    "data": DATA, "attributes": ATTRIBUTES, "orderingKey": KEYS, "messageId": TEXT | st.none(), "publishTime": TEXT,
}  # fmt: skip
USUAL = st.fixed_dictionaries(
    {"data": ENCODED.filter(bool)},
    optional={"attributes": st.dictionaries(TEXT, TEXT, max_size=5), "messageId": TEXT, "publishTime": TEXT},
)
KEYED = st.tuples(USUAL, st.fixed_dictionaries({"orderingKey": KEYS})).map(lambda parts: parts[0] | parts[1])
ODD = (
    st.fixed_dictionaries(
        {}, optional=FIELDS | {"DATA": DATA, "Attributes": ATTRIBUTES, "orderingkey": KEYS, "x": TEXT}
    )
    | st.none()
)


def escaped(text: str, every: int) -> str:
    """Write a JSON text with escapes that no one needs, in the names too."""
    written = text.replace("/", "\\/")
    return written.replace("a", "\\u0061").replace("Key", "\\u004bey") if every else written


BODIES = st.builds(
    lambda name, messages, indent, every: escaped(json.dumps({name: messages}, indent=indent), every).encode(),
    st.sampled_from(["messages", "messages", "messages", "Messages"]),
    st.lists(USUAL, max_size=4) | st.lists(USUAL | KEYED, max_size=4) | st.lists(USUAL | ODD, max_size=4),
    st.none() | st.integers(0, 1),
    st.integers(0, 1),
)


@given(BODIES, st.booleans())
@example(b'{"messages":[{"data":"aGk="},{"data":"aGk=","data":"aGl="}],"messages":[{"data":"AAAA"}]}', False)
@example(b'{"messages":[{"data":"aGk=","attributes":{"k":"1","l":"2","k":"3"}}]}', False)
@example(b'{"messages":[{"data":"aGk=","Data":"AAAA"},{"data":"AA=="}]}', False)
@example(b'{"messages":[{"data":"aGl="},{"data":"=AAA"},{"data":"AA=A"},{"data":"AAA"},{"data":"===="}]}', True)
@example(b'{"messages":[{"attributes":{"k":"v"}},{"data":"aGk="}]}', False)
@example(b'{"messages":[{"data":"aGk=","attributes":{"\\ud83d\\ude00":"\\u0000\\/"}}]}', False)
@example(b'{"messages":[{"data":"aGk=","orderingKey":"a","orderingKey":"b"},{"data":"aGk="}]}', False)
@example(b'{"messages":[{"data":"aGk="},{"data":"aGk=","orderingKey":""},{"data":"aGk=","orderingKey":null}]}', False)
@example(b'{"messages":[{"orderingKey":"alone"}]}', False)
@example(b"null", False)
@example(b"", False)
def test_any_body_is_read_as_plainly(body: bytes, lenient: bool) -> None:
    assert told(body, lenient) == expected(body, lenient)


@given(BODIES, st.data())
def test_a_body_with_a_wrong_byte_or_cut_off_is_read_as_plainly(body: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(body)))
    spoilt = (
        body[:place] + data.draw(st.sampled_from([b"\xff", b'"', b"\\", b"", b"[", b"\xc3\xa9"])) + body[place + 1 :]
    )

    assert told(spoilt, False) == expected(spoilt, False)
    assert told(body[:place], False) == expected(body[:place], False)


PREFIX = "projects/P/subscriptions/S:"


def outcome(runner: asyncio.Runner, ask: Callable[[], Awaitable[object]]) -> object:
    """Return what is read, and what is counted of it, or the kind and text of the refusal."""

    async def asked() -> object:
        return await ask()

    try:
        read = runner.run(asked())
        if isinstance(read, Batch):
            counted = read.size, read.largest, read.data_bytes, read.not_base64, read.has_ordering_keys
            return [*read], read[1:], [*read.fragments], counted
        return read
    except AmsError as error:
        return type(error), error.message


def both(runner: asyncio.Runner, pool: CountedPool, body: bytes, *, lenient: bool = False) -> object:
    """Return what is read of a publish body in place, which is what a worker reads."""
    here, there = MessageReader(), MessageReader(pool)
    runner.run(wait_until_async(pool.is_ready))  # a worker that idles for long ends
    before = pool.tasks
    in_place = outcome(runner, lambda: here.read(body, lenient=lenient))
    in_worker = outcome(runner, lambda: there.read(body, lenient=lenient))
    assert pool.tasks == before + (len(body) > BIG_BODY)
    assert in_worker == in_place
    return in_place


ODD_BODIES = st.builds(
    lambda body, cut: json.dumps(body).encode()[: -cut or None],
    st.one_of(
        st.fixed_dictionaries({}, optional={"messages": st.lists(ODD | st.integers()), "MESSAGES": st.lists(ODD)}),
        st.fixed_dictionaries({"messages": DATA}),
        st.lists(st.integers(), max_size=2),
    ),
    st.integers(0, 3),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES | ODD_BODIES, lenient=st.booleans())
@example(body=b'{"messages":[{"data":"aGk=","attributes":{"a":"\\u00fc\\ud83d"}}]}', lenient=True)
@example(body=b'{"messages":[{"data":"\\ud800"}]}', lenient=True)
@example(body=b'{"messages":[]}', lenient=False)
def test_a_worker_reads_a_big_body_as_it_is_read_in_place(
    runner: asyncio.Runner, pool: CountedPool, body: bytes, lenient: bool
) -> None:
    both(runner, pool, body + b" " * BIG_BODY, lenient=lenient)


@pytest.mark.parametrize(
    "body",
    [{"messages": [{"data": "QUJD", "attributes": {"n": str(number)}} for number in range(10_000)]},
     {"messages": [{"data": "QUJD", "orderingKey": str(number % 7)} for number in range(10_000)]},
     {"messages": [{"data": "QUJD" * 100_000}] * 7}, {"messages": [*[{"data": "aGk="}] * 40_000, {"data": "aGk"}]},
     {"messages": [{}] * (MAX_MESSAGES + 1)},
     {"messages": [{"attributes": {str(number): "" for number in range(MAX_ATTRIBUTES + 1)}}]},
     {"messages": [{"data": "*" * BIG_BODY}]}],
    ids=["many", "with keys", "large", "bad", "too many", "too many attributes", "large and bad"],
)  # fmt: skip
def test_large_ones_are_read_alike(runner: asyncio.Runner, pool: CountedPool, body: object) -> None:
    assert both(runner, pool, json.dumps(body).encode())


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.fixed_dictionaries({}, optional={"ackIds": st.none() | st.lists(
        st.integers(-1, 10**7).map(lambda number: f"{PREFIX}{number}") | st.sampled_from(["x", PREFIX, 7])
    )}),
    times=st.sampled_from([1, 5000]),
)  # fmt: skip
def test_a_worker_reads_big_acknowledgements_as_they_are_read_in_place(
    runner: asyncio.Runner, pool: CountedPool, body: dict[str, list[object]], times: int
) -> None:
    text = json.dumps({name: ids and ids * times for name, ids in body.items()}).encode() + b" " * BIG_BODY
    here, there = MessageReader(), MessageReader(pool)

    in_place = outcome(runner, lambda: here.ack_ids(PREFIX, text))

    assert outcome(runner, lambda: there.ack_ids(PREFIX, text)) == in_place


@pytest.mark.parametrize("error", [NoWorker(), TaskFailed()])
async def test_what_no_worker_does_is_done_in_place(error: Exception) -> None:
    reader = MessageReader(FailingPool(error))
    padding = b" " * BIG_BODY

    assert [each.data for each in await reader.read(b'{"messages":[{"data":"aGk="}]}' + padding)] == ["aGk="]
    assert await reader.ack_ids(PREFIX, b'{"ackIds":["%b3"]}' % PREFIX.encode() + padding) == [PREFIX + "3"]


async def test_nobody_waits_for_a_worker_to_begin() -> None:
    pool = CountedPool()
    reader = MessageReader(pool)

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
