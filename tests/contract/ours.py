"""What this service adds to the contract: publishing once, seeking, reading ranges, retention, doctor."""

from tests.contract.rows import (
    A_TOPIC,
    BOTH,
    TOPIC,
    Answer,
    Ask,
    Row,
    Wait,
    error,
    every,
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
        keyed("k", "MA==", "MQ=="), ids(0, 1), (*BOTH, keyed("k", "MA==", "MQ=="), publish("Mg==")), ((pull(), received(0, 1, 2)),)),
    Row("ours key", "the same messages written in another way are the same messages",
        post(PUBLISH, b'{ "Messages": [{"attributes": {}, "data": "MA==", "messageId": "9"}] }',
             headers={"idempotency-key": "k"}), ids(0), (A_TOPIC, keyed("k", "MA=="))),
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

ROWS = every(KEYS)
