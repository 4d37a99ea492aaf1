"""Scripts of a load's connections: publish, pull, acknowledge, or pull and acknowledge in turn.

Each connection follows its own script: a generator that yields steps and receives the answer of each. Preparing steps
(seek, pull) are not counted. The measurement begins at the first counted step.
"""

import base64
import functools
import itertools
import random
import re
from collections.abc import Generator
from typing import NamedTuple

import msgspec

from bench.connection import Pieces, Response, request

BODIES = 4
"""Different publish bodies a load sends in turn, so that no two neighbours are equal."""
_NUMBER = re.compile(rb'"ackId":"[^":]*:(\d+)"')
_ACK_ID = re.compile(rb'"ackId":("[^"]*")')


class Publish(msgspec.Struct, tag=True):
    """Publish `per_request` messages of `size` bytes, going round over the topics (`projects/P/topics/T`)."""

    topics: list[str]
    per_request: int = 1
    size: int = 1024


class Pull(msgspec.Struct, tag=True):
    """Pull `messages` from where each subscription stands, again and again; nothing is acknowledged."""

    subscriptions: list[str]
    messages: int


class Acknowledge(msgspec.Struct, tag=True):
    """Pull `batch` messages of each subscription from the oldest (not counted), then acknowledge them one by one."""

    subscriptions: list[str]
    batch: int


class Consume(msgspec.Struct, tag=True):
    """Pull up to `messages`, acknowledge the last, and so on."""

    subscriptions: list[str]
    messages: int
    follow: bool = False
    """At the end, wait for new messages; otherwise begin again at the oldest."""


class Lease(msgspec.Struct, tag=True):
    """Pull up to `messages` of parallel subscriptions, acknowledge each by its id in one list, and so on.

    The first connection of a subscription seeks to its oldest message when it finds nothing. Leases of the others then
    expire, and their acknowledgements come too late; the others wait.
    """

    subscriptions: list[str]
    messages: int


class Read(msgspec.Struct, tag=True):
    """Read `messages` messages of a topic of `backlog`, from one place after the other, in the form `accept` names."""

    topic: str
    messages: int
    backlog: int
    accept: str


Work = Publish | Pull | Acknowledge | Consume | Lease | Read


class Step(NamedTuple):
    request: Pieces
    messages: int = 0
    """Messages this request moves when it is answered well."""
    counted: bool = True
    reads_body: bool = False
    """True if the script needs the body of the answer."""


Script = Generator[Step, Response, None]


class Unexpected(Exception):
    """An answer that makes the measurement worthless; the text says which."""


def scripts(work: Work, count: int, token: str) -> list[Script]:
    """Return `count` scripts that share the work's topics or subscriptions evenly."""
    return [_script(work, number, count, token) for number in range(count)]


def _script(work: Work, number: int, count: int, token: str) -> Script:
    match work:
        case Publish(topics):
            return _publish(work, _share(topics, number, count), token)
        case Pull(subscriptions, messages):
            return _pull(_share(subscriptions, number, count), messages, token)
        case Acknowledge(subscriptions, batch):
            return _acknowledge(_share(subscriptions, number, count), batch, token)
        case Consume(subscriptions, messages, follow):
            return _consume(_share(subscriptions, number, count), messages, follow, token)
        case Lease(subscriptions, messages):
            begins = number < len(subscriptions)
            return _lease(_share(subscriptions, number, count), messages, begins, token)
        case Read(topic, messages, backlog, accept):
            return _read(topic, messages, backlog // messages, number, accept, token)


def _share(names: list[str], number: int, count: int) -> list[str]:
    """Return every count-th name; when there are fewer names than connections, some share one."""
    return names[number::count] or [names[number % len(names)]]


def _publish(work: Publish, topics: list[str], token: str) -> Script:
    bodies = [publish_body(work.per_request, work.size, seed) for seed in range(BODIES)]
    rounds = max(len(topics), BODIES)
    pairs = zip(itertools.cycle(topics), itertools.cycle(bodies), strict=False)
    steps = [
        Step(request("POST", f"/v1/{topic}:publish", token, body), work.per_request)
        for topic, body in itertools.islice(pairs, rounds)
    ]
    for step in itertools.cycle(steps):  # noqa: UP028
        yield step  # a list cannot receive answers


def _pull(subscriptions: list[str], messages: int, token: str) -> Script:
    body = pull_body(messages)
    steps = [Step(request("POST", f"/v1/{each}:pull", token, body), messages) for each in subscriptions]
    first = yield steps[0]._replace(counted=False, reads_body=True)
    if len(ack_numbers(first)) != messages:
        raise Unexpected(f"a pull of {messages} messages got {len(ack_numbers(first))} (status {first.status})")
    while True:
        for step in steps:
            answer = yield step
            # Ids of more digits make later answers a little longer than the first, rarely shorter.
            if answer.status == 200 and answer.size < 0.9 * first.size:
                raise Unexpected(f"a pull of {messages} messages got fewer")


def _acknowledge(subscriptions: list[str], batch: int, token: str) -> Script:
    while True:
        places = []
        for each in subscriptions:
            numbers = yield from _pull_from_oldest(each, batch, token)
            places.append((f"/v1/{each}:acknowledge", each, numbers))
        for turn in range(batch):
            for path, name, numbers in places:
                yield Step(request("POST", path, token, ack_body(name, numbers[turn])), 1)


def _pull_from_oldest(subscription: str, messages: int, token: str) -> Generator[Step, Response, list[int]]:
    yield Step(request("POST", f"/v1/{subscription}:modifyOffset", token, b'{"offset":0}'), counted=False)
    pull = request("POST", f"/v1/{subscription}:pull", token, pull_body(messages))
    pulled = yield Step(pull, counted=False, reads_body=True)
    numbers = ack_numbers(pulled)
    if len(numbers) != messages:
        raise Unexpected(f"a pull of {messages} messages got {len(numbers)} (status {pulled.status})")
    return numbers


def _consume(subscriptions: list[str], messages: int, follow: bool, token: str) -> Script:
    body = pull_body(messages, wait=follow)
    pulls = [(each, request("POST", f"/v1/{each}:pull", token, body)) for each in subscriptions]
    for name, pull in itertools.cycle(pulls):
        numbers = ack_numbers((yield Step(pull, reads_body=True)))
        if numbers:
            ack = request("POST", f"/v1/{name}:acknowledge", token, ack_body(name, numbers[-1]))
            yield Step(ack, len(numbers))
        elif not follow:
            seek = request("POST", f"/v1/{name}:modifyOffset", token, b'{"offset":0}')
            yield Step(seek, counted=False)


def _lease(subscriptions: list[str], messages: int, begins: bool, token: str) -> Script:
    body = pull_body(messages, wait=not begins)
    pulls = [(each, request("POST", f"/v1/{each}:pull", token, body)) for each in subscriptions]
    for name, pull in itertools.cycle(pulls):
        ids = _ACK_ID.findall((yield Step(pull, reads_body=True)).body)
        if ids:
            ack = b'{"ackIds":[%b]}' % b",".join(ids)
            yield Step(request("POST", f"/v1/{name}:acknowledge", token, ack), len(ids))
        elif begins:
            yield Step(request("POST", f"/v1/{name}:modifyOffset", token, b'{"offset":0}'), counted=False)


def _read(topic: str, messages: int, places: int, number: int, accept: str, token: str) -> Script:
    """Read range after range; all have the same size, as all messages have."""
    paths = [f"/v1/{topic}:read?from={place * messages}&max={messages}" for place in range(places)]
    steps = [Step(request("GET", path, token, accept=accept), messages) for path in paths]
    first = yield steps[0]._replace(counted=False)
    for step in itertools.islice(itertools.cycle(steps), number, None):
        answer = yield step
        if answer.status != 200 or answer.size < 0.9 * first.size:
            raise Unexpected(f"a read of {messages} messages got fewer (status {answer.status})")


@functools.cache
def publish_body(messages: int, size: int, seed: int) -> bytes:
    """Return the body of a publish request: random bytes of `size`, the same for the same seed."""
    generator = random.Random(seed)
    data = base64.b64encode(generator.randbytes(size)).decode()
    return msgspec.json.encode({"messages": [{"data": data}] * messages})


def pull_body(messages: int, *, wait: bool = False) -> bytes:
    """Return the body of a pull, in the spelling of the official client: numbers and booleans as strings."""
    return b'{"maxMessages":"%d","returnImmediately":"%b"}' % (messages, b"false" if wait else b"true")


def ack_body(subscription: str, number: int) -> bytes:
    return f'{{"ackIds":["{subscription}:{number}"]}}'.encode()


def ack_numbers(answer: Response) -> list[int]:
    return [int(number) for number in _NUMBER.findall(answer.body)]
