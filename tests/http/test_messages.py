"""Decoding of bodies, above all of hot requests, in place and by workers, and the answers of pulls."""

import asyncio
import base64
import json
import re
import tracemalloc
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.errors import AmsError, BadRequest, InvalidInput, TooLarge
from ams.core.messages import Batch, Message, Stored, message
from ams.core.names import Offset
from ams.http import messages
from ams.http.bodies import BIG_BODY, MAX_ATTRIBUTES, MAX_MEMBERS, MAX_MESSAGES, BodyReader, first_value, strings
from ams.http.messages import MessageReader, read_ack_ids, read_messages
from ams.http.openapi import HEADERS
from ams.wire.base import CamelRequest
from ams.wire.messages import AttributePair, PublishBody
from ams.workers.pool import NoWorker, TaskFailed
from tests.support.memory import in_a_process
from tests.support.pools import CountedPool, FailingPool
from tests.support.waiting import wait_until_async

PREFIX = "projects/P/subscriptions/S:"

# Bodies of any route (contract 1.2); the contract's rows test most of it


class Inner(CamelRequest):
    max_messages: int | None = None


class Outer(CamelRequest):
    ack_ids: list[str] | None = None
    push_config: Inner | None = None
    many: list[Inner] | None = None


READER = BodyReader(Outer, "parse error")


def test_1_2_names_are_read_without_regard_to_case_on_every_level_and_the_last_of_a_name_wins() -> None:
    read = READER.read(b'{"AckIds": ["a"], "PUSHCONFIG": {"maxmessages": 3}, "Many": [{"MaxMessages": 1}, {}]}')
    assert read == Outer(["a"], Inner(3), [Inner(1), Inner()])
    assert READER.read(b'{"ackIds": ["a"], "ACKIDS": 5, "AckIds": ["b"]}') == Outer(["b"])
    assert READER.read(b'{"AckIds": ["a"], "ACKIDS": ["b"], "": 0, "AckIds": ["c"]}') == Outer(["c"])


@given(st.lists(st.tuples(st.sampled_from(["ackIds", "AckIds", "ACKIDS", "ack_ids", "x", ""]), st.integers(0, 9))))
def test_1_2_however_often_a_name_is_given_in_whatever_spelling_the_last_counts(members: list[tuple[str, int]]) -> None:
    body = ",".join(f'"{name}": ["{value}"]' for name, value in members)
    given_last = [[str(value)] for name, value in members if name.lower() == "ackids"][-1:]
    assert READER.read(f"{{{body}}}".encode()) == Outer(*given_last)


@pytest.mark.parametrize("odd", [b"1e999", b"9" * 5000, b"[" + b"[]," * 9 + b"-1e-999]", b'{"a": {"b": [1e999]}}'])
def test_1_2_unknown_fields_are_ignored_whatever_they_hold(odd: bytes) -> None:
    assert READER.read(b'{"x": %b, "pushConfig": {"y": %b, "maxMessages": 3}}' % (odd, odd)) == Outer(None, Inner(3))


def test_1_2_there_may_be_thousands_of_unknown_fields_and_too_many_are_refused_before_they_are_read() -> None:
    def members(count: int) -> bytes:
        return b'{%b, "AckIds": []}' % b",".join(b'"%064d": 0' % number for number in range(count - 1))

    assert READER.read(members(MAX_MEMBERS)) == Outer([])
    with pytest.raises(InvalidInput, match="parse error"):
        READER.read(members(MAX_MEMBERS + 1))


@pytest.mark.parametrize("body", [
    b'{"ackIds": ["b"], "ACKIDS": 5}', b'{"Many": [{"MAXMESSAGES": "1"}]}', b" ",
    b"{} x", b'{"ackIds": [1]}', b'{"ackIds": [null]}', b'{"pushConfig": []}', b'{"ackIds": ["\xff"]}',
    b'{"a":' * 100_000, b"[" * 100_000,
], ids=range(10))  # fmt: skip
def test_1_2_wrong_types_in_any_spelling_and_no_json_are_the_parse_error_of_the_route(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="parse error"):
        READER.read(body)


JSON: Any = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3), max_leaves=10,
)  # fmt: skip


@given(JSON | st.dictionaries(st.sampled_from(["ackIds", "AckIds", "pushConfig", "many", "MANY"]), JSON))
def test_any_json_is_read_or_refused_and_nothing_else(value: object) -> None:
    try:
        assert isinstance(READER.read(json.dumps(value).encode()), Outer)
    except InvalidInput as error:
        assert error.message == "parse error"


@given(JSON.map(json.dumps), st.sampled_from(["", " ", "\n\t"]), st.sampled_from(["", " x", "\n{}", "]", ' "']))
@example('{"x": 1e999}', "", " x")
@example('{"x": %s}' % ("9" * 5000), "", " x")
def test_1_2_what_follows_the_first_value_does_not_matter(text: str, before: str, after: str) -> None:
    assert first_value(f"{before}{text}{after}".encode()) == text.encode()
    assert first_value(before.encode()) == b""


def told_of(read: Callable[[bytes], Outer], body: bytes) -> Outer | str:
    try:
        return read(body)
    except InvalidInput as error:
        return error.message


@given(JSON.map(json.dumps) | st.text(alphabet='{}[]":,\\u0 tfnaAcIdsK1-e.\x01\x7f\ufeff', max_size=40),
       st.sampled_from(["", " ", " x", "\n{}", "]"]))  # fmt: skip
@example('{"ackIds": ["\x01"]}', "")
@example('{"ackIds": ["\\ud800"]}', "")
@example("\ufeff{}", "")
@example("[" * 2000, "")
def test_1_2_the_first_value_is_read_as_if_nothing_followed_it(text: str, after: str) -> None:
    def read_slowly(body: bytes) -> Outer:
        return READER.read(first_value(body))

    body = f"{text}{after}".encode()
    told = told_of(read_slowly, body)
    assert told_of(READER.read_first, body) == ("parse error" if isinstance(told, str) else told)


@pytest.mark.parametrize("body", [b"no", b"{", b"\xff", b'{"a": 1', b"[" * 100_000])
def test_16_what_is_no_json_is_refused(body: bytes) -> None:
    with pytest.raises(BadRequest, match="^Invalid Request Body$"):
        first_value(body)


def test_1_2_null_is_absent_in_a_map_of_texts() -> None:
    assert strings(b'{"data": null, "Data": "", "x": "y"}') == {"Data": "", "x": "y"}
    assert strings(b"null") == strings(b"") == {}


# Publish bodies, which must equal a plain decoding of each message, whatever the body

BatchDescription = tuple[list[Message], int, int, int, int] | str  # messages and their counts, or the text of an error

_reader = BodyReader(PublishBody, "Invalid Message Arguments")


def read_plainly(body: bytes, lenient: bool) -> list[Message]:
    """Decode a body message by message, as contract 12.1, 12.2 and 17.1, M7 say it."""
    found = []
    for place, sent in enumerate(_reader.read(body).messages or ()):
        data = (sent and sent.data) or ""
        attributes = name_attributes(sent and sent.attributes)
        if not data.strip("\r\n") and not attributes:
            raise refusal(f"message {place}, counted from 0, has neither data nor attributes")
        key = (sent and sent.ordering_key) or ""
        if len(key.encode()) > 1024:
            raise refusal(f"the ordering key of message {place}, counted from 0, has more than 1024 bytes")
        if not lenient and not is_base64(data):
            text = "is not base64, as strict_data demands: encode it"
            raise refusal(f"the data of message {place}, counted from 0, {text}")
        found.append(message(data, attributes, key))
    return found


def name_attributes(given: Mapping[str, str | None] | Sequence[AttributePair] | None) -> dict[str, str]:
    pairs = given.items() if isinstance(given, Mapping) else [(each.key, each.value) for each in given or ()]
    return {name or "": value or "" for name, value in pairs}


def is_base64(data: str) -> bool:
    digits = data.replace("\r", "").replace("\n", "")
    try:
        base64.b64decode(digits, validate=True)
    except ValueError:
        return False
    return len(digits) % 4 == 0  # the library takes padding that is too long


def refusal(text: str) -> InvalidInput:
    return InvalidInput(f"Invalid Message Arguments: {text}")


def expect_description(body: bytes, lenient: bool) -> BatchDescription:
    try:
        found = read_plainly(body, lenient)
    except InvalidInput as error:
        return str(error)
    sizes = [len(each.fragment) for each in found]
    not_base64 = sum(not is_base64(each.data) for each in found)
    return found, sum(sizes), max(sizes, default=0), sum(len(each.data) for each in found), not_base64


def describe_batch(made: Batch) -> BatchDescription:
    assert made.has_ordering_keys == any(each.ordering_key for each in made)
    return list(made), made.size, made.largest, made.data_bytes, made.not_base64


def describe_body(body: bytes, lenient: bool) -> BatchDescription:
    try:
        return describe_batch(MessageReader().read_small(body, lenient=lenient))
    except InvalidInput as error:
        return str(error)


TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
ENCODED_DATA = st.binary(max_size=60).map(lambda data: base64.b64encode(data).decode())
BROKEN_DATA = st.tuples(
    ENCODED_DATA, st.integers(0, 20), st.sampled_from(["\n", "\r\n", "=", "-", " ", "A", "\u00e9", '"'])
).map(lambda each: each[0][: each[1]] + each[2] + each[0][each[1] :])
DATA = st.one_of(ENCODED_DATA, ENCODED_DATA, BROKEN_DATA, TEXT, st.none(), st.integers())
ATTRIBUTES = st.one_of(
    st.dictionaries(TEXT, TEXT, max_size=5), st.dictionaries(TEXT, TEXT | st.none(), max_size=3),
    st.lists(st.dictionaries(st.sampled_from(["key", "value", "Key", "VALUE"]), TEXT | st.none())),
    st.none() | st.integers() | TEXT,
)  # fmt: skip
KEYS = TEXT | st.none() | st.sampled_from(["\u00e9" * 512, "\u00e9" * 512 + "x", 7])
FIELDS = {
    "data": DATA, "attributes": ATTRIBUTES, "orderingKey": KEYS, "messageId": TEXT | st.none(), "publishTime": TEXT,
}  # fmt: skip
USUAL_MESSAGES = st.fixed_dictionaries({"data": ENCODED_DATA.filter(bool)}, optional={
    "attributes": st.dictionaries(TEXT, TEXT, max_size=5), "messageId": TEXT, "publishTime": TEXT
})  # fmt: skip
KEYED_MESSAGES = st.tuples(USUAL_MESSAGES, st.fixed_dictionaries({"orderingKey": KEYS})).map(
    lambda parts: parts[0] | parts[1]
)
ODD_MESSAGES = (
    st.fixed_dictionaries(
        {}, optional=FIELDS | {"DATA": DATA, "Attributes": ATTRIBUTES, "orderingkey": KEYS, "x": TEXT}
    )
    | st.none()
)


def escape_text(text: str, every: int) -> str:
    """Write a JSON text with unnecessary escapes, in the names too."""
    written = text.replace("/", "\\/")
    return written.replace("a", "\\u0061").replace("Key", "\\u004bey") if every else written


BODIES = st.builds(
    lambda name, sent, indent, every: escape_text(json.dumps({name: sent}, indent=indent), every).encode(),
    st.sampled_from(["messages", "messages", "messages", "Messages"]),
    st.lists(USUAL_MESSAGES, max_size=4)
    | st.lists(USUAL_MESSAGES | KEYED_MESSAGES, max_size=4)
    | st.lists(USUAL_MESSAGES | ODD_MESSAGES, max_size=4),
    st.none() | st.integers(0, 1), st.integers(0, 1),
)  # fmt: skip


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
    assert describe_body(body, lenient) == expect_description(body, lenient)


@given(BODIES, st.data())
def test_a_body_with_a_wrong_byte_or_cut_off_is_read_as_plainly(body: bytes, data: st.DataObject) -> None:
    place = data.draw(st.integers(0, len(body)))
    spoilt = (
        body[:place] + data.draw(st.sampled_from([b"\xff", b'"', b"\\", b"", b"[", b"\xc3\xa9"])) + body[place + 1 :]
    )

    assert describe_body(spoilt, False) == expect_description(spoilt, False)
    assert describe_body(body[:place], False) == expect_description(body[:place], False)


# Large bodies, which are decoded a piece at a time, and by workers if there are any


def outcome(runner: asyncio.Runner, ask: Callable[[], Awaitable[object]]) -> object:
    """Return the messages with their counts, or the text of the refusal."""

    async def await_answer() -> object:
        return await ask()

    try:
        read = runner.run(await_answer())
    except AmsError as error:
        return error.message
    if not isinstance(read, Batch):
        return read
    assert [*read.fragments] == [each.fragment for each in read]
    return describe_batch(read)


def read_big(runner: asyncio.Runner, pool: CountedPool, body: bytes, *, lenient: bool = False) -> object:
    here, there = MessageReader(), MessageReader(pool)
    runner.run(wait_until_async(pool.is_ready))  # a worker that idles for long ends
    before = pool.tasks
    in_place = outcome(runner, lambda: here.read(body, lenient=lenient))
    in_worker = outcome(runner, lambda: there.read(body, lenient=lenient))
    assert pool.tasks == before + 1
    assert in_worker == in_place
    return in_place


ODD_BODIES = st.builds(
    lambda body, cut: json.dumps(body).encode()[: -cut or None],
    st.one_of(
        st.fixed_dictionaries(
            {}, optional={"messages": st.lists(ODD_MESSAGES | st.integers()), "MESSAGES": st.lists(ODD_MESSAGES)}
        ),
        st.fixed_dictionaries({"messages": DATA}), st.lists(st.integers(), max_size=2),
    ),
    st.integers(0, 3),
)  # fmt: skip


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(body=BODIES | ODD_BODIES, lenient=st.booleans())
@example(body=b'{"messages":[{"data":"aGk=","attributes":{"a":"\\u00fc\\ud83d"}}]}', lenient=True)
@example(body=b'{"messages":[{"data":"\\ud800"}]}', lenient=True)
@example(body=b'{"messages":[]}', lenient=False)
@example(body=b"null", lenient=False)
def test_a_worker_reads_a_big_body_alike(runner: asyncio.Runner, pool: CountedPool, body: bytes, lenient: bool) -> None:
    padded = body + b" " * (BIG_BODY + 1)
    read, wanted = read_big(runner, pool, padded, lenient=lenient), expect_description(padded, lenient)
    # It is decoded a slice at a time: of several faults it may report another one.
    assert read == wanted or (isinstance(wanted, str) and isinstance(read, str))


SMALL_MESSAGE = {"data": "aGk="}


@pytest.mark.parametrize("body", [
    {"messages": [{"data": "QUJD", "attributes": {"n": str(number)}} for number in range(10_000)]},
    {"messages": [{"data": "QUJD", "orderingKey": str(number % 7)} for number in range(10_000)]},
    {"messages": [{"data": "QUJD" * 100_000}] * 7}, {"messages": [*[SMALL_MESSAGE] * 40_000, {"data": "aGk"}]},
    {"messages": [*[SMALL_MESSAGE] * 40_000, {"data": "\r\n\n"}]},
    {"messages": [*[SMALL_MESSAGE] * 40_000, SMALL_MESSAGE | {"orderingKey": "k" * 1025}]},
    {"messages": [{"data": "*" * BIG_BODY}]},
    {"messages": [SMALL_MESSAGE] * MAX_MESSAGES}, {"messages": [{"attributes": {"n": "{,[" * MAX_MESSAGES}}]},
    {"messages": [0] * (MAX_MESSAGES + 1)}, {"messages": 7, "x": [0] * (MAX_MESSAGES + 1)},
    {"messages": [{"attributes": [0] * BIG_BODY}]}, {"messages": [{"attributes": "," * BIG_BODY}]},
], ids=["many", "with keys", "large", "bad", "empty", "long key", "large and bad", "as many as may be",
        "braces in a text", "numbers", "no list", "attributes of numbers", "attributes that are a text"])  # fmt: skip
def test_large_ones_are_read_as_plainly_too(runner: asyncio.Runner, pool: CountedPool, body: object) -> None:
    text = json.dumps(body).encode()
    assert read_big(runner, pool, text) == expect_description(text, False)


ATTRIBUTE, PAIR = b'"%d":""', b'{"key":"%d"}'


def with_attributes(pair: bytes, count: int) -> bytes:
    start, end = (b"[", b"]") if pair == PAIR else (b"{", b"}")
    pairs = b",".join(pair % number for number in range(count))
    return b'{"messages":[{"attributes":' + start + pairs + end + b"}]}"


@pytest.mark.parametrize("name", [b"messages", b"MESSAGES"])
async def test_a_body_of_more_messages_or_attributes_than_may_be_is_too_large_before_it_is_read(name: bytes) -> None:
    reader = MessageReader()
    bodies = [with_attributes(pair, MAX_ATTRIBUTES + 1) for pair in (ATTRIBUTE, PAIR)]
    for body in [b'{"%b":[' % name + b"{}," * MAX_MESSAGES + b"{}]}", *bodies]:
        with pytest.raises(TooLarge):
            await reader.read(body, lenient=False)
    for pair in (ATTRIBUTE, PAIR):
        [made] = await reader.read(with_attributes(pair, MAX_ATTRIBUTES), lenient=False)
        assert len(made.attributes) == MAX_ATTRIBUTES
    for rest in (b"[" * BIG_BODY, b"null," * MAX_MESSAGES + b"null]}"):
        with pytest.raises(InvalidInput, match="^Invalid Message Arguments$"):
            await reader.read(b'{"%b":[' % name + rest, lenient=False)


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    body=st.fixed_dictionaries({}, optional={"ackIds": st.none() | st.lists(
        st.integers(-1, 10**7).map(lambda number: f"{PREFIX}{number}") | st.sampled_from(["x", PREFIX, 7])
    )}),
    times=st.sampled_from([1, 5000]),
)  # fmt: skip
def test_a_worker_reads_big_acks(runner: asyncio.Runner, pool: CountedPool, body: dict[str, list[object]], times: int):
    text = json.dumps({name: ids and ids * times for name, ids in body.items()}).encode() + b" " * BIG_BODY
    here, there = MessageReader(), MessageReader(pool)
    in_place = outcome(runner, lambda: here.ack_ids(PREFIX, text))
    assert outcome(runner, lambda: there.ack_ids(PREFIX, text)) == in_place


@pytest.mark.parametrize("error", [NoWorker(), TaskFailed(), None])
async def test_what_no_worker_does_is_done_in_place_and_nobody_waits_for_one_to_begin(error: Exception | None) -> None:
    pool = FailingPool(error) if error else CountedPool()
    reader, padding = MessageReader(pool), b" " * BIG_BODY

    assert [each.data for each in await reader.read(b'{"messages":[{"data":"aGk="}]}' + padding)] == ["aGk="]
    assert await reader.ack_ids(PREFIX, b'{"ackIds":["%b3"]}' % PREFIX.encode() + padding) == [PREFIX + "3"]
    assert isinstance(pool, FailingPool) or pool.tasks == 0
    await pool.close()


@pytest.mark.parametrize(("said", "waits"), [
    (b"", True), (b"false", True), (b'"false"', True), (b"true", False), (b'"true"', False), (b'""', False),
    (b'"no"', False),
])  # fmt: skip
def test_10_1_only_false_or_nothing_waits(said: bytes, waits: bool) -> None:
    body = b'{"returnImmediately": %b}' % said if said else b"{}"
    assert messages.pull_request(body) == (1, waits)
    with pytest.raises(InvalidInput, match="^Invalid Pull Parameters Arguments$"):
        messages.pull_request(b'{"returnImmediately": 1}')


def test_jobs_return_bytes_of_their_own() -> None:
    body = bytearray(b'{"messages":[{"data":"aGk="}]}')
    ids = bytearray(b'{"ackIds":["%b3"]}' % PREFIX.encode())

    _, lengths, fragments = read_messages([memoryview(b""), memoryview(body)])
    [largest] = read_ack_ids([memoryview(PREFIX.encode()), memoryview(ids)])
    body[:], ids[:] = bytes(len(body)), bytes(len(ids))

    assert (bytes(lengths), bytes(fragments)) == (b"\x0d\0\0\0", b'"data":"aGk="')
    assert largest == b"\x91\xbc" + PREFIX.encode() + b"3"


def read_traced(body: bytes) -> tuple[list[object], int]:
    """Return the data of a body's messages, and the peak memory of decoding in bytes."""
    tracemalloc.start()
    return [each.data for each in asyncio.run(MessageReader().read(body))], tracemalloc.get_traced_memory()[1]


def test_of_what_is_passed_over_in_a_big_body_nothing_is_made() -> None:
    """Megabytes of nested lists would become hundreds of megabytes of objects, and take a second."""
    nested = b"[" + b"[]," * 2_000_000 + b"1e999]"
    body = b'{"x":%b,"Messages":[{"y":%b,"DATA":"QUJD"}]}' % (nested, nested)
    data, peak = in_a_process(read_traced, body)

    assert data == ["QUJD"]
    assert peak < 5 * len(body)


async def test_others_go_on_while_a_big_body_is_read() -> None:
    body = json.dumps({"messages": [{"data": "QUJD"}] * 50_000}).encode()
    reading = asyncio.ensure_future(MessageReader().read(body))
    breaths = 0
    while not reading.done():
        await asyncio.sleep(0)
        breaths += 1

    assert len(await reading) == 50_000
    assert breaths > 100


async def test_11_1_of_a_big_acknowledgement_the_largest_id_counts_and_it_is_refused_like_a_small_one() -> None:
    async def read_ids(ids: Any) -> list[str] | None:
        return await MessageReader().ack_ids(PREFIX, json.dumps({"ackIds": ids}).encode() + b" " * BIG_BODY)

    ids = [f"{PREFIX}{number}" for number in range(10_000)]
    assert await read_ids(ids[5000:] + ids[:5000]) == [f"{PREFIX}9999"]
    assert await read_ids([PREFIX + "-3"]) == [PREFIX + "-3"]
    assert await read_ids(None) is None
    assert await read_ids([*ids, "x"]) is None
    assert await read_ids([]) == []
    with pytest.raises(InvalidInput, match="^Invalid ack parameter$"):
        await read_ids([1])


# Pulls, and keys of publishes


NAMES = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
SENT_MESSAGES = st.lists(
    st.builds(message, st.just("aGk="), st.dictionaries(NAMES, NAMES, max_size=1), NAMES), min_size=1
)


@given(SENT_MESSAGES)
def test_a6_an_ordering_key_stands_beside_the_message_and_all_else_is_as_without(sent: list[Message]) -> None:
    def pull_answer(*of: Message) -> list[dict[str, Any]]:
        stored = [Stored(Offset(7 + n), Milliseconds(n // 3), each.fragment) for n, each in enumerate(of)]
        received: list[dict[str, Any]] = json.loads(messages.pull_answer(PREFIX, stored))["receivedMessages"]
        return received

    plain = pull_answer(*(message(each.data, each.attributes) for each in sent))
    shown = pull_answer(*sent)

    assert [each.pop("orderingKey", "") for each in shown] == [each.ordering_key for each in sent]
    assert shown == plain


def read_key(*values: bytes) -> str | None:
    return messages.idempotency_key([(b"host", b"x"), *((b"idempotency-key", value) for value in values)])


@given(st.text(st.characters(max_codepoint=0x200), max_size=260))
@example("a b")
@example('"8e03978e-40d5"')
@example("k" * 255)
@example("k" * 256)
def test_a_key_is_the_value_of_its_header_if_the_description_of_the_api_says_that_it_may_be(key: str) -> None:
    form = HEADERS["Idempotency-Key"][1]
    is_described = bool(re.fullmatch(form["pattern"], key)) and form["minLength"] <= len(key) <= form["maxLength"]

    try:
        is_taken = read_key(key.encode()) == key
    except InvalidInput:
        is_taken = False

    assert is_taken == is_described


def test_two_keys_are_refused_and_no_key_is_none() -> None:
    assert read_key() is None
    with pytest.raises(InvalidInput, match="^Idempotency-Key is given more than once$"):
        read_key(b"a", b"a")
