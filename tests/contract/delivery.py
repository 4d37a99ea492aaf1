"""Sections 10, 11 and 12: publish, pull, acknowledge, offsets; and rows of 17.1 and 17.2 about them."""

from tests.contract.rows import *

PUBLISH, PULL, ACK = TOPIC + ":publish", SUBSCRIPTION + ":pull", SUBSCRIPTION + ":acknowledge"
THREE = (*BOTH, publish("MA==", "MQ==", "Mg=="))
NOTHING = Answer({"receivedMessages": []})
BAD_MESSAGE = error("IA", "Invalid Message Arguments")


def bad_message(what: str) -> Answer:
    return error("IA", f"Invalid Message Arguments: {what}")


def empty_message(place: int = 0) -> Answer:
    return bad_message(f"message {place}, counted from 0, has neither data nor attributes")


def no_base64(place: int = 0) -> Answer:
    return bad_message(f"the data of message {place}, counted from 0, is not base64, as strict_data demands: encode it")


BAD_PULL = error("IA", "Invalid Pull Parameters Arguments")
TOPIC_GONE = error("CO", "Subscription's topic doesn't exist")
BAD_ACK = error("IA", "Invalid ack id")
WRONG, NONE_PENDING = error("IA", "wrong ack"), error("IA", "no ack pending")
TIMEOUT = Answer({"error": {"code": 408, "message": "ack timeout", "status": "TIMEOUT"}}, 408)
PUBLISH_TIME = Like(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,8}[1-9])?Z")
ACK_ID = "projects/$P/subscriptions/S:"
LONG_KEY = bad_message("the ordering key of message 1, counted from 0, has more than 1024 bytes")
TOO_LARGE = custom_error(413, "INVALID_ARGUMENT", "Message size is too large")


def messages(*sent: object) -> Request:
    return post(PUBLISH, {"messages": list(sent)})


def message_answer(**message: object) -> Answer:
    """Return a pull's answer with one message like this."""
    whole = {"messageId": "0", "publishTime": PUBLISH_TIME, "data": "", **message}
    return Answer({"receivedMessages": [{"ackId": ACK_ID + "0", "message": whole}]})


def ack_texts(*texts: str) -> Request:
    return post(ACK, {"ackIds": list(texts)})


HARD = {
    "q": 'say "hi"', "nl": "a\nb", "two": "a\\nb", "back": "\\", "u": "ü€😀", "inject": '","x":"y', "": "empty name",
    "Case": "KEPT",
}  # fmt: skip

PUBLISHING = [
    Row("12.2, clients A16, 17.1 M1", "ids are consecutive from 0, in request order", publish("MA==", "MQ=="),
        Answer({"messageIds": ["0", "1"]}), (A_TOPIC,), ((publish("Mg=="), Answer({"messageIds": ["2"]})),)),
    Row("12.1, clients A6", "what comes out is what went in, and nothing else", pull(),
        message_answer(data="aGk=", attributes={"k": "v"}),
        (*BOTH, messages({"data": "aGk=", "attributes": {"k": "v"}}))),
    Row("12.1", "id and time of the request are ignored", pull(), message_answer(data="aGk="),
        (*BOTH, messages({"data": "aGk=", "messageId": "7", "publishTime": "x"}))),
    Row("12.1, clients A7", "data absent is empty text", pull(), message_answer(attributes={"k": "v"}),
        (*BOTH, messages({"attributes": {"k": "v"}}))),
    Row("12.1", "attributes absent or empty are omitted", pull(), message_answer(data="aGk="),
        (*BOTH, messages({"data": "aGk=", "attributes": {}}))),
    Row("12.1", "a null attribute is empty text", pull(), message_answer(attributes={"k": ""}),
        (*BOTH, messages({"attributes": {"k": None}}))),
    Row("12.1", "the last of a name wins", pull(), message_answer(attributes={"k": "2"}),
        (*BOTH, post(PUBLISH, b'{"messages": [{"attributes": {"k": "1", "k": "2"}}]}'))),
    Row("12.1", "CR and LF inside base64 are tolerated", pull(), message_answer(data="aG\r\nk="),
        (*BOTH, messages({"data": "aG\r\nk="}))),
    Row("12.1", "attributes may be a list of pairs and come out as a map", pull(), message_answer(attributes={"a": "1",
        "b": ""}), (*BOTH, messages({"attributes": [{"key": "a", "value": "1"}, {"key": "b"}]}))),
    Row("12.1, 10.2, clients A6", "an ordering key stands beside the message", pull(2),
        Answer({"receivedMessages": [{"ackId": ACK_ID + "0", "orderingKey": HARD["inject"],
        "message": {"messageId": "0", "publishTime": PUBLISH_TIME, "data": "aGk=", "attributes": HARD}},
        {"ackId": ACK_ID + "1", "message": {"messageId": "1", "publishTime": PUBLISH_TIME, "data": "aGk="}}]}), (*BOTH,
        messages({"data": "aGk=", "attributes": HARD, "orderingKey": HARD["inject"]}, {"data": "aGk=",
        "orderingKey": ""}))),
    Row("12.1", "keys of one request may differ, and their name is spelled as one likes", pull(1),
        message_answer(data="MA=="), (*BOTH, messages({"data": "MA==", "ORDERINGKEY": None}, {"data": "MQ==",
        "orderingKey": "a"}, {"data": "Mg==", "orderingKey": "b"}))),
    Row("12.1, 12.2", "too long an ordering key", messages({"data": "aGk="}, {"data": "aGk=",
        "orderingKey": "ü" * 513}), LONG_KEY, BOTH, ((ASK_OFFSETS, offsets(0, 0, 0)),)),
    Row("12.1, 12.2", "an ordering key that is no text", messages({"data": "aGk=", "orderingKey": 7}), BAD_MESSAGE,
        (A_TOPIC,)),
    Row("12.1", "an ordering key alone is no message", messages({"orderingKey": "k"}), empty_message(), (A_TOPIC,)),
    Row("17.1 M3, clients A7", "any text in attributes survives", pull(), message_answer(attributes=HARD),
        (*BOTH, messages({"attributes": HARD}))),
    Row("12.2", "no messages", post(PUBLISH, {"messages": []}), Answer({"messageIds": []}), (A_TOPIC,)),
    Row("12.2", "no field", post(PUBLISH, {}), Answer({"messageIds": []}), (A_TOPIC,)),
    Row("12.2", "the topic comes first", post(PUBLISH, b"no json"), NO_TOPIC),
    Row("12.2", "the access list comes before the body", post(PUBLISH, b"no json", by="pub"), FORBIDDEN,
        (A_TOPIC, PUB)),
    Row("12.2", "parse error", post(PUBLISH, b"no json"), BAD_MESSAGE, (A_TOPIC,)),
    Row("12.2", "an attribute that is no text", messages({"attributes": {"k": 1}}), BAD_MESSAGE, (A_TOPIC,)),
    Row("17.1 M7", "data that is no base64", messages({"data": "msg 1"}), no_base64(), (A_TOPIC,), served="strict"),
    Row("17.1 M7", "base64 without its padding", messages({"data": "aGk"}), no_base64(), (A_TOPIC,), served="strict"),
    Row("17.1 M7", "base64 of the other alphabet", messages({"data": "-_-_"}), no_base64(), (A_TOPIC,),
        served="strict"),
    Row("17.1 M7", "data that is no base64 in a project that says so", messages({"data": "msg 1"}), no_base64(),
        (A_TOPIC, messages({"data": "msg 1"}), put("/projects/$P", {"strictData": True})), ((get("/projects/$P"),
        Answer(Has(strictData=True))), (put("/projects/$P", {"description": "d"}), Answer(Has(strictData=True))),
        (put("/projects/$P", {"strictData": False}), Answer(Has(strictData=False))), (messages({"data": "msg 1"}),
        Answer({"messageIds": ["1"]})))),
    Row("17.1 M7", "any text in a project that says so", messages({"data": "msg 1"}), Answer({"messageIds": ["0"]}),
        (A_TOPIC, put("/projects/$P", {"strictData": False})), served="strict"),
    Row("7, 17.1 M7", "strictData is true or false", put("/projects/$P", {"strictData": "yes"}),
        error("BR", "Invalid Request Body"), (), ((get("/projects/$P"), Answer(Has(strictData=None))),)),
    Row("17.1 M7", "neither data nor attributes", messages({}), empty_message(), (A_TOPIC,)),
    *[Row("17.1 M7, clients A17", f"any text is kept: {each!r}", pull(), message_answer(data=each),
        (*BOTH, messages({"data": each}))) for each in ("msg 1", "aGk", "-_-_", "{\"a\": \"ü\\n\"}", "hello", "test")],
    Row("17.1 M5", "all of a request or none of it", messages({"data": "aGk="}, {"data": "x"}), no_base64(1), BOTH,
        ((ASK_OFFSETS, offsets(0, 0, 0)), (publish(), Answer({"messageIds": ["0"]}))), served="strict"),
    Row("12.2, 17.1 M6", "a message over the limit, and nothing is stored", messages({"data": "aGk="},
        {"data": "A" * 1200}), TOO_LARGE, BOTH, ((ASK_OFFSETS, offsets(0, 0, 0)),), served="small"),
    Row("12.2", "the limit is per message, not per request", publish(*["A" * 800] * 10),
        Answer({"messageIds": [str(n) for n in range(10)]}), (A_TOPIC,), served="small"),
]  # fmt: skip

PULLING = [
    Row("10.1", "a body is required", post(PULL), BAD_PULL, BOTH),
    Row("10.1, clients R3", "both fields are texts", post(PULL, {"maxMessages": "2", "returnImmediately": "true"}),
        batch_with_ids(0, 1), THREE),
    Row("10.1", "and may be a number and a boolean", post(PULL, {"maxMessages": 2, "returnImmediately": True}),
        batch_with_ids(0, 1), THREE),
    Row("10.1", "one message when nothing is said", post(PULL, {}), batch_with_ids(0), THREE),
    Row("10.1", "one for what is no integer", post(PULL, {"maxMessages": "many"}), batch_with_ids(0), THREE),
    Row("10.1", "one for 0", post(PULL, {"maxMessages": "0"}), batch_with_ids(0), THREE),
    Row("10.1", "one for less", post(PULL, {"maxMessages": "-5"}), batch_with_ids(0), THREE),
    Row("10.1", "more than the setting allows is cut silently", pull(1000), batch_with_ids(0, 1, 2), (*THREE,
        publish()), served="small"),
    Row("10.1", "a fraction is refused", post(PULL, b'{"maxMessages": 2.5}'), BAD_PULL, BOTH),
    Row("10.2, clients A5", "nothing is an empty list", pull(), NOTHING, BOTH),
    Row("10.2, clients A15", "ascending, and all there is", pull(), batch_with_ids(0, 1, 2), THREE),
    Row("10.3", "unknown subscription, before the body", post(PULL, b"no json"), NO_SUBSCRIPTION),
    Row("10.3", "the access list comes before the body", post(PULL, b"no json", by="con"), FORBIDDEN, (*BOTH, CON)),
    Row("10.3", "the topic comes before the body", post(PULL, b"no json"), TOPIC_GONE, (*BOTH, delete(TOPIC))),
    Row("10.3", "body", post(PULL, b"no json"), BAD_PULL, BOTH),
    Row("10.4", "a pull without acknowledge returns the same again, at once", pull(2), batch_with_ids(0, 1),
        (*THREE, pull(2))),
    Row("10.4", "what retention took is passed over", pull(), batch_with_ids(3), (*THREE, Wait(8 * DAY), publish())),
    Row("10.4", "every pull restarts the clock", ack(0), Answer({}), (*THREE, pull(), Wait(9), pull(), Wait(9))),
    Row("17.1 M9, clients A14", "waiting ends, empty, after a bounded time", post(PULL, {"returnImmediately": "false"}),
        NOTHING, BOTH),
    Row("17.1 M9", "waiting is the default", post(PULL, {}), NOTHING, BOTH),
    Row("17.1 M9", "a wait never wants a full batch", post(PULL, {"maxMessages": "10", "returnImmediately": "false"}),
        batch_with_ids(0, 1, 2), THREE),
    Row("17.1 M10", "a pull asks for more than there is and gets it all", pull(10_000), batch_with_ids(0, 1, 2), THREE),
    Row("17.1 M12", "a smaller pull does not shrink what may be acknowledged", ack(2), Answer({}),
        (*THREE, pull(3), pull(1))),
    Row("17.1 M12", "nor does an empty one", ack(2), Answer({}),
        (*THREE, pull(3), post(SUBSCRIPTION + ":modifyAckDeadline", {"ackDeadlineSeconds": 10}))),
    Row("17.1 M11", "another subscription is not moved", pull(of=SUBSCRIPTIONS + "/R"),
        Answer({"receivedMessages": [Has(ackId="projects/$P/subscriptions/R:0")]}),
        (*BOTH, put(SUBSCRIPTIONS + "/R", {"topic": "projects/$P/topics/T"}), publish(), pull(), ack(0))),
    Row("17.1 M2", "a topic without messages begins and ends at 0", ASK_OFFSETS, offsets(0, 0, 0), BOTH),
]  # fmt: skip

ACKNOWLEDGING = [
    Row("11.1, clients A13", "the answer is an object", ack(0), Answer({}), (*THREE, pull(1))),
    Row("11.1, clients R8", "any case of the field", post(ACK, {"AckIds": ["projects/$P/subscriptions/S:0"]}),
        Answer({}), (*THREE, pull(1))),
    Row("11.1", "parse error, before the subscription", post(ACK, b"no json"), error("IA", "Invalid ack parameter")),
    Row("11.1", "unknown subscription, before the ids", post(ACK, {}), NO_SUBSCRIPTION),
    Row("11.1", "no field", post(ACK, {}), BAD_ACK, BOTH),
    Row("11.1", "null", post(ACK, {"ackIds": None}), BAD_ACK, BOTH),
    Row("11.1", "an empty list", ack(), BAD_ACK, BOTH),
    Row("11.1", "only negative numbers", ack(-1), BAD_ACK, (*THREE, pull())),
    Row("11.1", "an id of another subscription", ack_texts("projects/$P/subscriptions/R:0"), BAD_ACK, (*THREE, pull())),
    Row("11.1", "an id with a leading slash", ack_texts("/projects/$P/subscriptions/S:0"), BAD_ACK, (*THREE, pull())),
    Row("11.1", "one bad id among good ones", ack_texts("projects/$P/subscriptions/S:0", "x"), BAD_ACK, (*THREE,
        pull()), ((ASK_OFFSETS, offsets(0, 0, 3)),)),
    Row("11.1", "a number of more than 64 bits", ack(2**63), BAD_ACK, (*THREE, pull())),
    Row("11.1", "the ids are looked at before the state", ack_texts("x"), BAD_ACK, BOTH),
    Row("11.1, 17.2 A1", "nothing handed out", ack(0), NONE_PENDING, (*BOTH, publish())),
    Row("11.1, 17.2 A1", "beyond what was handed out", ack(2), WRONG, (*THREE, pull(2)), ((ack(1), Answer({})),)),
    Row("11.1, 11.2", "late: 408, nothing changed, and the same messages come again", ack(0), TIMEOUT, (*THREE, pull(1),
        Wait(10.001)), ((ASK_OFFSETS, offsets(0, 0, 3)), (pull(1), batch_with_ids(0)), (ack(0), Answer({})))),
    Row("11.2, 17.2 A2", "in time to the millisecond", ack(0), Answer({}), (*THREE, pull(1), Wait(10))),
    Row("11.2, clients R9", "only the largest counts", ack(2), Answer({}), (*THREE, pull()),
        ((ASK_OFFSETS, offsets(0, 3, 3)), (pull(), NOTHING))),
    Row("11.2", "in any order", ack(1, 2, 0), Answer({}), (*THREE, pull()), ((ASK_OFFSETS, offsets(0, 3, 3)),)),
    Row("11.2", "a part of the batch", ack(0), Answer({}), (*THREE, pull()), ((pull(), batch_with_ids(1, 2)),)),
    Row("11.2, 17.2 A1", "a second ack of the same batch is a success", ack(0), Answer({}), (*THREE, pull(1), ack(0)),
        ((ASK_OFFSETS, offsets(0, 1, 3)),)),
    Row("11.2", "a new deadline acts on the running clock", ack(0), TIMEOUT,
        (*THREE, pull(1), Wait(2), post(SUBSCRIPTION + ":modifyAckDeadline", {"ackDeadlineSeconds": 1}))),
    Row("11.2", "a longer one too", ack(0), Answer({}),
        (*THREE, pull(1), post(SUBSCRIPTION + ":modifyAckDeadline", {"ackDeadlineSeconds": 600}), Wait(600))),
    Row("17.2 A3", "a batch that begins at 0 is one", ack(0), Answer({}), (*BOTH, publish(), pull())),
    Row("17.2 A4", "an ack after a seek does not move back", ack(0), Answer({}),
        (*THREE, pull(), post(SUBSCRIPTION + ":modifyOffset", {"offset": 3})), ((ASK_OFFSETS, offsets(0, 3, 3)),)),
]  # fmt: skip

AT = SUBSCRIPTION + ":timeToOffset?time="
MOVE = SUBSCRIPTION + ":modifyOffset"
NO_TIME = error("IA", "Time is not in valid Zulu format.")
OUT = error("CO", "Timestamp is out of bounds for the subscription's topic/partition")

OFFSETS = [
    Row("11.3, clients A20", "max is the next id, current the first not acknowledged", ASK_OFFSETS, offsets(0, 1, 3),
        (*THREE, pull(1), ack(0))),
    Row("11.3", "min is the oldest kept, and current is never below it", ASK_OFFSETS, offsets(3, 3, 4),
        (*THREE, Wait(8 * DAY), publish())),
    Row("11.3", "unknown subscription", ASK_OFFSETS, NO_SUBSCRIPTION),
    Row("11.3", "the topic is gone", ASK_OFFSETS, TOPIC_GONE, (*BOTH, delete(TOPIC))),
    Row("11.4, clients R11", "the first message then or later", get(AT + "2020-01-01T00:00:00.000Z"),
        Answer({"offset": 0}), THREE),
    Row("11.4, clients R11", "a blank for the T", get(AT + "2020-01-01%2000:00:00.000Z"), Answer({"offset": 0}), THREE),
    Row("11.4", "no fraction", get(AT + "2020-01-01T00:00:00Z"), Answer({"offset": 0}), THREE),
    Row("11.4", "nine digits", get(AT + "2020-01-01T00:00:00.123456789Z"), Answer({"offset": 0}), THREE),
    Row("11.4", "ten digits", get(AT + "2020-01-01T00:00:00.1234567890Z"), NO_TIME, THREE),
    Row("11.4", "no Z", get(AT + "2020-01-01T00:00:00.000"), NO_TIME, THREE),
    Row("11.4", "no such day", get(AT + "2023-02-29T00:00:00.000Z"), NO_TIME, THREE),
    Row("11.4", "absent", get(SUBSCRIPTION + ":timeToOffset"), NO_TIME, THREE),
    Row("11.4", "the subscription comes before the time", get(AT + "x"), NO_SUBSCRIPTION),
    Row("11.4", "after the last message", get(AT + "2999-01-01T00:00:00.000Z"), OUT, THREE),
    Row("11.4", "an empty topic", get(AT + "2020-01-01T00:00:00.000Z"), OUT, BOTH),
    Row("11.4", "the topic is gone", get(AT + "2020-01-01T00:00:00.000Z"),
        error("IE", "Backend Error", retry_after="2"), (*BOTH, delete(TOPIC))),
    Row("11.5", "backwards: replay", post(MOVE, {"offset": 1}), EMPTY, (*THREE, pull(), ack(2)),
        ((pull(), batch_with_ids(1, 2)),)),
    Row("11.5", "forwards: skip, to the end", post(MOVE, {"offset": 3}), EMPTY, THREE,
        ((pull(), NOTHING), (ASK_OFFSETS, offsets(0, 3, 3)))),
    Row("11.5", "absent is 0", post(MOVE, {}), EMPTY, (*THREE, pull(), ack(2)), ((pull(), batch_with_ids(0, 1, 2)),)),
    Row("11.5", "parse error, before the subscription", post(MOVE, {"offset": "1"}),
        error("IA", "Invalid Offset Arguments")),
    Row("11.5", "unknown subscription", post(MOVE, {"offset": 1}), NO_SUBSCRIPTION),
    Row("11.5", "the topic is gone", post(MOVE, {"offset": 1}), TOPIC_GONE, (*BOTH, delete(TOPIC))),
    Row("11.5, 17.2 A6", "out of bounds, and no change", post(MOVE, {"offset": 4}), error("IA", "Offset out of bounds"),
        (*THREE, pull(1), ack(0)), ((ASK_OFFSETS, offsets(0, 1, 3)),)),
    Row("11.5", "negative", post(MOVE, {"offset": -1}), error("IA", "Offset out of bounds"), THREE),
    Row("11.5", "beyond any integer", post(MOVE, {"offset": 10**30}), error("IA", "Offset out of bounds"), THREE),
    Row("11.5", "a batch pulled before cannot be acknowledged any more", ack(2), NONE_PENDING,
        (*THREE, pull(), post(MOVE, {"offset": 0}))),
]  # fmt: skip

ROWS = [*PUBLISHING, *PULLING, *ACKNOWLEDGING, *OFFSETS]
