from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.client import Message, wire
from ams.client.messages import incoming, outgoing
from ams.client.wire import ReceivedMessage


def received(ordering_key: str = "", **fields: object) -> ReceivedMessage:
    usual = {"message_id": "7", "publish_time": "2024-03-05T10:20:30.123Z"}
    message = wire.PulledMessage(**(usual | fields))  # type: ignore[arg-type]  # tests name fields freely
    return ReceivedMessage(ack_id="projects/P/subscriptions/S:7", ordering_key=ordering_key, message=message)


@given(st.binary(), st.dictionaries(st.text(), st.text()), st.text())
def test_what_a_message_says_survives_the_wire(data: bytes, attributes: dict[str, str], key: str) -> None:
    sent = outgoing(Message(data, attributes, key))

    message = incoming(received(sent.ordering_key, data=sent.data, attributes=sent.attributes))

    assert (message.data, message.attributes, message.ordering_key) == (data, attributes, key)


def test_a_received_message_has_an_id_a_time_and_what_acknowledges_it() -> None:
    message = incoming(received())

    assert message.id == "7"
    assert message.publish_time == datetime(2024, 3, 5, 10, 20, 30, 123_000, UTC)
    assert message.ack_id == "projects/P/subscriptions/S:7"


@pytest.mark.parametrize("time", ["2016-02-24T11:55:09.786127994Z", "2016-02-24T12:55:09.786127+01:00"])
def test_times_of_any_precision_and_zone_are_read(time: str) -> None:
    assert incoming(received(publish_time=time)).publish_time == datetime(2016, 2, 24, 11, 55, 9, 786_127, UTC)


def test_data_that_is_not_base64_is_the_text_that_came() -> None:
    assert incoming(received(data="msg 1")).data == b"msg 1"


def test_a_received_message_is_published_again_without_its_id_and_time() -> None:
    again = outgoing(incoming(received("bed 4", data="aGk=", attributes={"k": "v"})))

    assert again == wire.Message(data="aGk=", attributes={"k": "v"}, ordering_key="bed 4")
