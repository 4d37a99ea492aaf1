"""What this service adds to the contract: publishing once, seeking, reading ranges, retention, doctor."""

from tests.contract.rows import (
    A_TOPIC,
    ASK_OFFSETS,
    BOTH,
    FORBIDDEN,
    NO_SUBSCRIPTION,
    SUBSCRIPTION,
    TOPIC,
    Answer,
    Ask,
    Row,
    Wait,
    ack,
    delete,
    error,
    every,
    listed,
    member,
    offsets,
    post,
    publish,
    pull,
    put,
    received,
    refused,
)

PUBLISH = TOPIC + ":publish"
HOUR, DAY = 3600, 86_400
REUSED = error("CO", "Idempotency key reused with other content")
TOO_LARGE = refused(413, "INVALID_ARGUMENT", "Message size is too large")
BAD_KEY = error("IA", "Idempotency-Key must have 1 to 255 visible ASCII characters")


def keyed(key: str, *data: str, to: str = TOPIC) -> Ask:
    return publish(*data, to=to)._replace(headers={"idempotency-key": key})


def ids(*numbers: int) -> Answer:
    return Answer({"messageIds": [str(number) for number in numbers]})


KEYS = [
    Row("ours key", "the same key with the same messages answers the first ids and stores nothing",
        keyed("k", "MA==", "MQ=="), ids(0, 1), (*BOTH, keyed("k", "MA==", "MQ=="), publish("Mg==")),
        ((pull(), received(0, 1, 2)),)),
    Row("ours key", "the same messages written in another way are the same messages",
        post(PUBLISH, b'{ "Messages": [{"attributes": {}, "data": "MA==", "messageId": "9"}] }',
             headers={"idempotency-key": "k"}),
        ids(0), (A_TOPIC, keyed("k", "MA=="))),
    Row("ours key", "the same key with other messages is refused and stores nothing", keyed("k", "MQ=="), REUSED,
        (*BOTH, keyed("k", "MA==")), ((pull(), received(0)),)),
    Row("ours key", "a key belongs to one topic", keyed("k", "MQ==", to=TOPIC + "2"), ids(0),
        (A_TOPIC, put(TOPIC + "2"), keyed("k", "MA=="))),
    Row("ours key", "without a key every publish is stored", publish("MA=="), ids(1), (A_TOPIC, publish("MA=="))),
    Row("ours key", "a key as long as it may be", keyed("k" * 255), ids(0), (A_TOPIC,)),
    Row("ours key", "a key over 255 characters is refused and nothing stored", keyed("k" * 256), BAD_KEY, BOTH,
        ((pull(), received()),)),
    Row("ours key", "an empty key is refused", keyed(""), BAD_KEY, (A_TOPIC,)),
    Row("ours key", "a request that was refused leaves its key free", keyed("k", "MQ=="), ids(0),
        (A_TOPIC,), ((keyed("j", "A" * 2000), TOO_LARGE), (keyed("j", "MQ=="), ids(1))), "small"),
    Row("ours key", "no messages use no key", keyed("k", "MA=="), ids(0), (A_TOPIC, post(PUBLISH, {"messages": []},
        headers={"idempotency-key": "k"}))),
    Row("ours key", "a key is known as long as the messages are kept", keyed("k", "MQ=="), ids(1),
        (A_TOPIC, keyed("k", "MA=="), Wait(7 * DAY), keyed("k", "MA=="), Wait(0.001))),
    Row("ours key", "a key older than its window counts as new", keyed("k", "MQ=="), ids(1),
        (A_TOPIC, keyed("k", "MA=="), Wait(HOUR), keyed("k", "MA=="), Wait(0.001)), (), "short memory"),
]  # fmt: skip

SEEK = SUBSCRIPTION + ":seek"
THREE = (*BOTH, publish("MA==", "MQ==", "Mg=="))
ONE_OF_TWO = error("IA", "Give either time or offset")
BAD_SEEK = error("IA", "Invalid Seek Arguments")
NO_BOUNDS = error("IA", "Offset out of bounds")
BAD_TIME = error("IA", "Time is not in valid Zulu format.")
NO_TOPIC_LEFT = error("CO", "Subscription's topic doesn't exist")


def seek(**body: object) -> Ask:
    return post(SEEK, body)


SEEKING = [
    Row("ours seek", "an offset is moved to, and the new position answered", seek(offset=1), offsets(0, 1, 3), THREE,
        ((pull(), received(1, 2)),)),
    Row("ours seek", "the end is a place", seek(offset=3), offsets(0, 3, 3), THREE, ((pull(), received()),)),
    Row("ours seek", "the oldest is a place", seek(offset=0), offsets(0, 0, 3), (*THREE, pull(), ack(1))),
    Row("ours seek", "field names are matched without regard to case", post(SEEK, {"Offset": 2}),
        offsets(0, 2, 3), THREE),
    Row("ours seek", "a time after the last message leads to the end", seek(time="2999-01-01T00:00:00Z"),
        offsets(0, 3, 3), THREE),
    Row("ours seek", "a time before the oldest message leads to that one", seek(time="1970-01-01T00:00:00.000Z"),
        offsets(0, 0, 3), (*THREE, pull(), ack(2))),
    Row("ours seek", "a topic without messages has one place", seek(time="2024-01-01T00:00:00Z"),
        offsets(0, 0, 0), BOTH),
    Row("ours seek", "what retention took is no place", seek(offset=0), NO_BOUNDS,
        (*THREE, Wait(7 * DAY), publish("Mw=="), Wait(2)), ((seek(offset=3), offsets(3, 3, 4)),
        (seek(time="1970-01-01T00:00:00Z"), offsets(3, 3, 4)))),
    Row("ours seek", "what was pulled before can no longer be acknowledged", seek(offset=0), offsets(0, 0, 3),
        (*THREE, pull()), ((ack(2), error("IA", "no ack pending")), (ASK_OFFSETS, offsets(0, 0, 3)))),
    Row("ours seek", "neither is refused", seek(), ONE_OF_TWO, THREE),
    Row("ours seek", "both are refused, and nothing moves", seek(offset=1, time="2024-01-01T00:00:00Z"),
        ONE_OF_TWO, THREE,
        ((ASK_OFFSETS, offsets(0, 0, 3)),)),
    Row("ours seek", "null is absent", seek(offset=None, time=None), ONE_OF_TWO, THREE),
    Row("ours seek", "a body is needed", post(SEEK), BAD_SEEK, THREE),
    Row("ours seek", "an offset is a whole number", seek(offset="1"), BAD_SEEK, THREE),
    Row("ours seek", "a time is text", seek(time=1), BAD_SEEK, THREE),
    Row("ours seek", "a time is written as timeToOffset takes it", seek(time="yesterday"), BAD_TIME, THREE),
    Row("ours seek", "an empty time is none", seek(time=""), BAD_TIME, THREE),
    Row("ours seek", "beyond the end is refused, and nothing moves", seek(offset=4), NO_BOUNDS, THREE,
        ((ASK_OFFSETS, offsets(0, 0, 3)),)),
    Row("ours seek", "below zero is refused", seek(offset=-1), NO_BOUNDS, THREE),
    Row("ours seek", "an unknown subscription", seek(offset=0), NO_SUBSCRIPTION, (A_TOPIC,)),
    Row("ours seek", "the body is looked at first", seek(), ONE_OF_TWO, (A_TOPIC,)),
    Row("ours seek", "a subscription whose topic is gone has no places", seek(offset=0), NO_TOPIC_LEFT,
        (*BOTH, delete(TOPIC))),
    Row("ours seek", "a consumer not on the access list is refused", post(SEEK, {"offset": 0}, "con"), FORBIDDEN,
        (*BOTH, member("con", "consumer"))),
    Row("ours seek", "a consumer on the access list may", post(SEEK, {"offset": 3}, "con"), offsets(0, 3, 3),
        (*THREE, member("con", "consumer"), listed(SUBSCRIPTION, "con"))),
]  # fmt: skip

ROWS = every(KEYS, SEEKING)
