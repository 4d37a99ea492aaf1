"""How bodies of hot requests are read, big ones above all, and answers written; small ones: test_publish_bodies.py."""

import asyncio
import json
import re
import tracemalloc
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput, TooLarge
from ams.core.messages import Message, Stored, message
from ams.core.names import Offset
from ams.http import messages
from ams.http.big_bodies import BIG_BODY, MAX_ATTRIBUTES, MAX_MESSAGES
from ams.http.messages import MessageReader
from ams.http.openapi import HEADERS

PREFIX = "projects/P/subscriptions/S:"
NOTHING = "message {}, counted from 0, has neither data nor attributes"
NO_BASE64 = "the data of message {}, counted from 0, is not base64, as strict_data demands: encode it"
LONG_KEY = "the ordering key of message {}, counted from 0, has more than 1024 bytes"


async def read(body: object, *, lenient: bool = False) -> list[tuple[str, dict[str, str]]]:
    text = body if isinstance(body, bytes) else json.dumps(body).encode()
    return [(each.data, dict(each.attributes)) for each in await MessageReader().read(text, lenient=lenient)]


@pytest.mark.parametrize(
    ("bad", "reason"),
    [({"data": "\r\n\n"}, NOTHING), (None, NOTHING), ({"data": "a-_k"}, NO_BASE64),
     ({"data": "*" * BIG_BODY}, NO_BASE64), ({"data": "aGk=", "orderingKey": "\u00e9" * 513}, LONG_KEY)],
    ids=["empty", "null", "not base64", "large and not base64", "long key"],
)  # fmt: skip
async def test_m7_what_is_wrong_with_a_message_of_a_big_body_is_told_with_its_place(bad: object, reason: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await read({"messages": [*[{"data": "aGk="}] * 40_000, bad]})

    assert str(refused.value) == f"Invalid Message Arguments: {reason.format(40_000)}"


async def test_a_big_body_is_read_like_a_small_one() -> None:
    sent = {"messages": [{"data": "QUJD", "attributes": {"n": str(number)}} for number in range(10_000)]}
    assert len(json.dumps(sent)) > BIG_BODY

    assert await read(sent) == [("QUJD", {"n": str(number)}) for number in range(10_000)]


@pytest.mark.parametrize("name", [b"messages", b"MESSAGES"])
async def test_a_body_of_more_messages_than_may_be_is_too_large_before_it_is_read(name: bytes) -> None:
    with pytest.raises(TooLarge):
        await read(b'{"%b":[' % name + b"{}," * MAX_MESSAGES + b"{}]}")


@pytest.mark.parametrize("pair", [b'"%d":""', b'{"key":"%d"}'], ids=["object", "list"])
async def test_a_message_may_have_so_many_attributes_and_no_more(pair: bytes) -> None:
    start, end = (b"[", b"]") if pair.startswith(b"{") else (b"{", b"}")

    def body(count: int) -> bytes:
        pairs = b",".join(pair % number for number in range(count))
        return b'{"messages":[{"attributes":' + start + pairs + end + b"}]}"

    assert len((await read(body(MAX_ATTRIBUTES)))[0][1]) == MAX_ATTRIBUTES
    with pytest.raises(TooLarge):
        await read(body(MAX_ATTRIBUTES + 1))


async def test_as_many_messages_as_may_be_are_read_and_braces_and_commas_within_texts_are_none() -> None:
    sent = b'{"data":"QUJD"},' * (MAX_MESSAGES - 1) + b'{"data":"QUJD"}'
    text = "{,[" * MAX_MESSAGES

    assert len(await read(b'{"messages":[' + sent + b"]}")) == MAX_MESSAGES
    assert await read({"messages": [{"attributes": {"n": text}}]}) == [("", {"n": text})]


@pytest.mark.parametrize(
    "body",
    [b'{"messages":[0' + b",0" * MAX_MESSAGES + b"]}", b'{"messages":[null' + b",null" * MAX_MESSAGES + b"]}",
     b'{"messages":7,"x":[0' + b",0" * MAX_MESSAGES + b"]}", b'{"messages":[' + b"[" * BIG_BODY,
     b'{"messages":[{"attributes":[0' + b",0" * BIG_BODY + b"]}]}",
     b'{"messages":[{"attributes":"' + b"," * BIG_BODY + b'"}]}'],
    ids=range(6),
)  # fmt: skip
async def test_a_big_body_that_holds_anything_else_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidInput, match="^Invalid Message Arguments$"):
        await read(body)


async def test_a_big_body_without_messages_stores_none() -> None:
    for body in (b"{}", b"null", b'{"messages":null}'):
        assert await read(body + b" " * BIG_BODY) == []


async def test_of_what_is_passed_over_in_a_big_body_nothing_is_made() -> None:
    """Of megabytes of nested lists there would be hundreds of megabytes of objects, and it would take a second."""
    nested = b"[" + b"[]," * 2_000_000 + b"1e999]"
    body = b'{"x":%b,"Messages":[{"y":%b,"DATA":"QUJD"}]}' % (nested, nested)
    tracemalloc.start()
    try:
        assert await read(body) == [("QUJD", {})]
        assert tracemalloc.get_traced_memory()[1] < 5 * len(body)
    finally:
        tracemalloc.stop()


async def test_others_go_on_while_a_big_body_is_read() -> None:
    body = json.dumps({"messages": [{"data": "QUJD"}] * 50_000}).encode()
    reading = asyncio.ensure_future(MessageReader().read(body))
    breaths = 0
    while not reading.done():
        await asyncio.sleep(0)
        breaths += 1

    assert len(await reading) == 50_000
    assert breaths > 100


@pytest.mark.parametrize(
    ("body", "wanted", "waits"),
    [("{}", 1, True), ('{"maxMessages": "5", "returnImmediately": "true"}', 5, False),
     ('{"maxMessages": 5, "returnImmediately": false}', 5, True),
     ('{"maxMessages": "", "returnImmediately": "false"}', 1, True),
     ('{"maxMessages": "many", "returnImmediately": ""}', 1, False),
     ('{"maxMessages": "0", "returnImmediately": true}', 1, False),
     ('{"maxMessages": "-3", "returnImmediately": "no"}', 1, False),
     ('{"MaxMessages": "10.5", "RETURNIMMEDIATELY": "false"}', 1, True),
     ('{"maxMessages": "%s"}' % ("9" * 5000), 1, True)],
)  # fmt: skip
def test_10_1_how_a_pull_is_read(body: str, wanted: int, waits: bool) -> None:
    assert messages.pull_request(body.encode()) == (wanted, waits)


@pytest.mark.parametrize("body", ["", "[]", '{"maxMessages": 1.5}', '{"returnImmediately": 1}', '{"maxMessages": {}}'])
def test_10_3_a_pull_that_cannot_be_read_is_refused(body: str) -> None:
    with pytest.raises(InvalidInput, match="^Invalid Pull Parameters Arguments$"):
        messages.pull_request(body.encode())


KEYS = st.text(st.characters(exclude_categories=("Cs",)), max_size=5)
SENT = st.lists(st.builds(message, st.just("aGk="), st.dictionaries(KEYS, KEYS, max_size=1), KEYS), min_size=1)


@given(SENT)
def test_a6_an_ordering_key_stands_beside_the_message_and_all_else_is_as_without(sent: list[Message]) -> None:
    def pulled(*messages_: Message) -> list[dict[str, Any]]:
        stored = [Stored(Offset(7 + n), Milliseconds(n // 3), each.fragment) for n, each in enumerate(messages_)]
        received: list[dict[str, Any]] = json.loads(messages.pulled(PREFIX, stored))["receivedMessages"]
        return received

    plain = pulled(*(message(each.data, each.attributes) for each in sent))
    shown = pulled(*sent)

    assert [each.pop("orderingKey", "") for each in shown] == [each.ordering_key for each in sent]
    assert shown == plain


async def big_ack(ids: list[str] | None) -> list[str] | None:
    body = json.dumps({"ackIds": ids}).encode() + b" " * BIG_BODY
    return await MessageReader().ack_ids(PREFIX, body)


async def test_11_1_of_a_big_acknowledgement_the_largest_id_counts_and_it_is_refused_like_a_small_one() -> None:
    ids = [f"{PREFIX}{number}" for number in range(10_000)]

    assert await big_ack(ids[5000:] + ids[:5000]) == [f"{PREFIX}9999"]
    assert await big_ack([PREFIX + "-3"]) == [PREFIX + "-3"]
    assert await big_ack(None) is None
    assert await big_ack([*ids, "x"]) is None
    assert await big_ack([]) == []
    with pytest.raises(InvalidInput, match="^Invalid ack parameter$"):
        await MessageReader().ack_ids(PREFIX, b'{"ackIds": [1]}' + b" " * BIG_BODY)


def keyed(*values: bytes) -> str | None:
    return messages.idempotency_key([(b"host", b"x"), *((b"idempotency-key", value) for value in values)])


def test_a_key_is_the_value_of_its_header_as_it_is() -> None:
    assert keyed() is None
    assert keyed(b'"8e03978e-40d5"') == '"8e03978e-40d5"'
    assert keyed(b" a b ") == "a b"
    assert keyed(b"k" * 255) == "k" * 255


@pytest.mark.parametrize("value", [b"", b"  ", b"k" * 256, b"a\tb", b"\x00", "schlüssel".encode(), b"\xfcber"])
def test_what_cannot_be_a_key_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidInput, match="^Idempotency-Key must have 1 to 255 visible ASCII characters$"):
        keyed(value)


@given(st.text(st.characters(max_codepoint=0x200), max_size=260))
@example("a b")
@example("k" * 256)
def test_the_description_of_the_api_says_which_keys_there_are(key: str) -> None:
    form = HEADERS["Idempotency-Key"][1]
    is_described = bool(re.fullmatch(form["pattern"], key)) and form["minLength"] <= len(key) <= form["maxLength"]

    try:
        is_taken = keyed(key.encode()) == key
    except InvalidInput:
        is_taken = False

    assert is_taken == is_described


def test_two_keys_are_refused() -> None:
    with pytest.raises(InvalidInput, match="^Idempotency-Key is given more than once$"):
        keyed(b"a", b"a")
