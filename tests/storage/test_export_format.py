from hypothesis import given
from hypothesis import strategies as st

from ams.core.messages import Stored, message
from ams.storage.export_format import Message, User, decode_line, encode_line, encoded_message

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
NUMBERS = st.integers(0, 2**63 - 1)


@given(NUMBERS, NUMBERS, TEXTS, st.dictionaries(TEXTS, TEXTS, max_size=4), st.just("") | TEXTS)
def test_a_message_comes_back_as_is(offset: int, time: int, data: str, attributes: dict[str, str], key: str) -> None:
    stored = Stored(offset, time, message(data, attributes, key).fragment)

    line = encoded_message(stored)
    read = decode_line(line)

    assert line.count(b"\n") == 1
    assert isinstance(read, Message)
    assert Stored(read.offset, read.time, message(read.data, read.attributes, read.ordering_key).fragment) == stored


@given(TEXTS, TEXTS)
def test_what_is_left_out_comes_back_as_its_default(name: str, token: str) -> None:
    line = User(name=name, token=token)
    assert decode_line(encode_line(line)) == line


def test_a_line_does_not_show_what_it_holds() -> None:
    assert repr(User(name="u", token="secret")) == "<a line of kind user>"
