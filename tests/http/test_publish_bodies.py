"""The quick reading of usual publish bodies gives what a plain reading of each message gives, whatever the body."""

import base64
import json
from collections.abc import Mapping, Sequence

from hypothesis import example, given
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.core.messages import Message, message
from ams.http.bodies import Reader
from ams.http.messages import MessageReader
from ams.wire.messages import AttributePair, PublishBody

Told = tuple[list[Message], int, int, int] | str
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
            advice = "encode it, or run the service with the setting lenient_data"
            raise refusal(f"the data of message {place}, counted from 0, is not base64: {advice}")
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
    return messages, sum(sizes), max(sizes, default=0), sum(len(each.data) for each in messages)


def told(body: bytes, lenient: bool) -> Told:
    try:
        made = MessageReader(lenient).read_small(body)
    except InvalidInput as error:
        return str(error)
    assert made.has_ordering_keys == any(each.ordering_key for each in made)
    return list(made), made.size, made.largest, made.data_bytes


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
