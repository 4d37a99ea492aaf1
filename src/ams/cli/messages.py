"""`ams publish`, `ams pull`, `ams ack` and `ams tail`: messages, which of them are shown, and how."""

import functools
import json
import secrets
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from io import BufferedReader
from itertools import islice
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from ams.cli.arguments import AttributePairs, SubscriptionName, TopicName, argument, option, pairs
from ams.cli.command import OptionSet, Session, deleting, with_options
from ams.cli.exit_codes import Usage, file_named
from ams.cli.output import columns, emit, json_line, note, printable
from ams.client import Message, ReceivedMessage, wire
from ams.client.errors import ClientError, NotAllowed
from ams.client.messages import outgoing
from ams.client.wire import PulledMessage
from ams.core import filters
from ams.core.clock import Milliseconds, publish_time
from ams.core.errors import InvalidInput
from ams.core.names import SCHEMA_ENCODING_ATTRIBUTE, SCHEMA_NAME_ATTRIBUTE, SCHEMA_REVISION_ATTRIBUTE

if TYPE_CHECKING:
    from ams.validation.protobuf import ProtobufSchema

CHUNK = 64 * 1024  # bytes per read of stdin; the lines of a chunk are one request
REQUEST_MESSAGES = 1000
LONGEST_LINE = 16 * 2**20  # bytes; above the service's limit, small enough for memory

AckId = Annotated[str, argument("ACKID", "Ack id or message id.")]
Test = Callable[[PulledMessage], bool]


@dataclass(frozen=True, slots=True)
class MessageFilter(OptionSet):
    """Filter of messages; without options all are shown."""

    filter: Annotated[
        str, option("Only messages with such attributes: 'attributes.site = \"ATHENS\"'.", metavar="EXPR")
    ] = ""
    json: Annotated[
        str,
        option(
            "Only messages whose JSON has something at a path, '$.readings[0]', or is so: \"@.site == 'ATHENS'\".",
            metavar="JSONPATH",
        ),
    ] = ""

    def test(self) -> Test:
        """Return the filter function. Raises `Usage` for an invalid option."""
        try:
            read = filters.parse(self.filter) if self.filter else None
        except InvalidInput as error:
            raise Usage(f"--filter: {error.message}") from None
        tests: list[Test] = [lambda message: read(message.attributes)] if read else []
        tests += [_json_test(self.json)] if self.json else []
        return lambda message: all(each(message) for each in tests)


def _json_test(text: str) -> Test:
    """Read a query of RFC 9535, or only a condition, as in `$[?(...)]`, on the whole payload."""
    import jsonpath  # lazy: other commands do not need it

    is_query = text.lstrip().startswith("$")
    try:
        query = jsonpath.JSONPathEnvironment(strict=True).compile(text.strip() if is_query else f"$[?({text})]")
    except jsonpath.JSONPathError as error:
        raise Usage(f"--json: {str(error).splitlines()[0]}") from None

    def matches(message: PulledMessage) -> bool:
        try:
            payload: Any = json.loads(message.payload())
        except (ValueError, RecursionError):
            return False  # not JSON
        if is_query and not isinstance(payload, dict | list):
            return text.strip() == "$"
        return query.match(payload if is_query else [payload]) is not None

    return matches


@with_options
def publish(
    session: Session,
    topic: TopicName,
    data: Annotated[str | None, option("Publish this text as one message.")] = None,
    file: Annotated[str | None, option("Publish this file as one message; - is standard input.")] = None,
    attr: AttributePairs = None,
    ordering_key: Annotated[str, option("Ordering key of every message.", metavar="KEY")] = "",
) -> None:
    """Publish messages and print their ids: --data, a --file, or else each line of standard input."""
    empty = Message(b"", pairs(attr, "--attr", "NAME=VALUE"), ordering_key)
    if data is not None and file is not None:
        raise Usage("give --data or --file, not both")
    if data is not None:
        _send(session, topic, [replace(empty, data=data.encode("utf-8", "surrogateescape"))])
    elif file is not None:
        _send(session, topic, [replace(empty, data=content_of(file))])
    else:
        if sys.stdin.isatty():
            note("each line becomes a message; Ctrl-D ends")
        with open(sys.stdin.fileno(), "rb", closefd=False) as source:
            for request in requests(source, empty):
                _send(session, topic, request)


def requests(source: BufferedReader, empty: Message) -> Iterator[list[Message]]:
    """Group lines into requests as they arrive: a slow source need not fill a request.

    Messages are copies of `empty` with data. An empty line is a message only with attributes: the service refuses empty
    messages.
    """

    def requests_of(lines: list[bytes]) -> Iterator[list[Message]]:
        messages = [replace(empty, data=line) for line in lines if line or empty.attributes]
        for start in range(0, len(messages), REQUEST_MESSAGES):
            yield messages[start : start + REQUEST_MESSAGES]

    rest = bytearray()
    while chunk := source.read1(CHUNK):
        rest += chunk
        if b"\n" in chunk:
            *lines, unended = bytes(rest).split(b"\n")
            rest = bytearray(unended)
            yield from requests_of(lines)
        elif len(rest) > LONGEST_LINE:
            raise Usage("a line of the input is too long to be a message")
    if rest:
        yield from requests_of([bytes(rest)])


def content_of(file: str) -> bytes:
    """Return the content of a file; `-` is stdin. Raises `Usage` if it cannot be read."""
    if file == "-":
        return sys.stdin.buffer.read()
    with file_named(file), open(file, "rb") as opened:
        return opened.read()


def _send(session: Session, topic: str, messages: list[Message]) -> None:
    ids = session.patient.project(session.project).topic(topic).publish(messages)
    emit(json_line(wire.Published(message_ids=ids)) if session.for_programs else "\n".join(ids))


@with_options
def pull(
    session: Session,
    subscription: SubscriptionName,
    max_messages: Annotated[int, option("Most messages to get.", "--max", min=1)] = 1,
    ack: Annotated[bool, option("Acknowledge them once they are printed.", "--ack")] = False,
    wait: Annotated[bool, option("Wait a few seconds for a first message.")] = True,
) -> None:
    """Get the next messages; without --ack they are delivered again."""
    with saying_of_push(session, subscription):
        answer = session.call(wire.pull(session.project, subscription, max_messages=max_messages, wait=wait))
    received = answer.received_messages
    if received or session.for_programs:
        text = body_reader(session)
        rows = [row(each.message, each.ordering_key, text) for each in received]
        session.show(answer, columns(("ID", "PUBLISHED", "ATTRIBUTES", "DATA"), rows))
    else:
        note("no messages")
    if ack and received:
        # An ordered subscription needs only the last id, a parallel one each.
        session.call(wire.acknowledge(session.project, subscription, [each.ack_id for each in received]))


@with_options
def ack(session: Session, subscription: SubscriptionName, ack_id: AckId) -> None:
    """Acknowledge a pulled message, of an ordered subscription all before it too."""
    whole = wire.ack_id(session.project, subscription, int(ack_id)) if ack_id.isdecimal() else ack_id
    with saying_of_push(session, subscription):
        session.call(wire.acknowledge(session.project, subscription, [whole]))
    offset, hand_out, _ = whole.rpartition(":")[2].partition("-")
    session.confirm(f"acknowledged {offset}" if hand_out else f"acknowledged up to {offset}")


@contextmanager
def saying_of_push(session: Session, subscription: str) -> Iterator[None]:
    """Explain a refused pull of a push subscription: the service refuses all pulls alike (contract 10.3)."""
    try:
        yield
    except NotAllowed as error:
        try:
            is_pushed = session.call(wire.get_subscription(session.project, subscription)).push_config.get("type")
        except ClientError:  # without the right to look: keep the service's error
            is_pushed = False
        if not is_pushed:
            raise
        said = (
            f"{error.message}: {subscription} is a push subscription, whose messages go to its endpoint"
            f" (ams subs push-status {subscription}); to pull from it: ams subs push-config {subscription} --none"
        )
        raise NotAllowed(said, error.code, error.status) from error


@with_options
def tail(
    session: Session,
    topic: TopicName,
    *,
    oldest: Annotated[bool, option("Begin with the oldest message kept.", "--oldest")] = False,
    max_messages: Annotated[int | None, option("End after so many messages.", "--max", min=1)] = None,
    shown: MessageFilter,
) -> None:
    """Follow a topic until Ctrl-C, through a subscription that is deleted at the end."""
    is_shown = shown.test()
    for each in (signal.SIGTERM, signal.SIGHUP):  # also interrupt, so that the temporary subscription is deleted
        signal.signal(each, signal.default_int_handler)
    subscription = f"tail-{secrets.token_hex(8)}"
    session.call(wire.create_subscription(session.project, subscription, topic))
    delete = wire.delete_subscription(session.project, subscription)
    with deleting(f"subscription {subscription}", lambda: session.call(delete)):
        note(f"following {topic} as subscription {subscription}; Ctrl-C ends")
        if oldest:
            start = session.call(wire.get_offsets(session.project, subscription)).min
            session.call(wire.modify_offset(session.project, subscription, start))
        received = session.patient.project(session.project).subscription(subscription).messages()
        spelled = (
            msgspec.structs.replace(outgoing(each), message_id=each.id, publish_time=publish_time_of(each))
            for each in received
        )
        show_lines(session, islice(filter(is_shown, spelled), max_messages))


def publish_time_of(message: ReceivedMessage) -> str:
    """Format a message's time as the API does."""
    return publish_time(Milliseconds(round(message.publish_time.timestamp() * 1000)))


def read_messages(
    session: Session, topic: str, ids: range, size: int, subscription: str, *, back: bool = False
) -> Iterator[wire.ReadMessage]:
    """Yield the messages with these ids, `size` at a time; `back`: newest first. A consumer names a subscription."""
    for edge in range(ids.stop, ids.start, -size) if back else range(ids.start, ids.stop, size):
        start, stop = (max(edge - size, ids.start), edge) if back else (edge, min(edge + size, ids.stop))
        most = stop - start
        call = wire.read_topic(session.project, topic, start=start, stop=stop, most=most, subscription=subscription)
        found = session.call(call)
        yield from (each for each in (reversed(found) if back else found) if start <= each.offset < stop)


def show_lines(session: Session, messages: Iterable[wire.Message]) -> None:
    """Print messages as they arrive, one per line."""
    text = body_reader(session)
    for message in messages:
        shown = row(message, message.ordering_key, text)
        emit(json_line(message) if session.for_programs else "  ".join(map(printable, shown)))


def row(message: wire.PulledMessage, ordering_key: str, text: Callable[[PulledMessage], str]) -> Sequence[str]:
    """Return id, time, attributes (after the ordering key) and data of a message as texts."""
    attributes = [f"{name}={value}" for name, value in message.attributes.items()]
    if ordering_key:
        attributes.insert(0, f"[{ordering_key}]")
    return message.message_id, message.publish_time, " ".join(attributes), text(message)


def body_reader(session: Session) -> Callable[[PulledMessage], str]:
    """Return a function from message to text: Protocol Buffers become JSON if the user may read the schema."""
    find_schema = functools.cache(functools.partial(_find_schema, session))

    def text(message: PulledMessage) -> str:
        if message.attributes.get(SCHEMA_ENCODING_ATTRIBUTE) == "BINARY":
            names = (SCHEMA_NAME_ATTRIBUTE, SCHEMA_REVISION_ATTRIBUTE)
            schema = find_schema(*(message.attributes.get(each, "") for each in names))
            with suppress(ValueError):
                if schema is not None:
                    return json_line(schema.as_dict(message.payload()))
        return data_text(message)

    return text


def _find_schema(session: Session, name: str, revision: str) -> "ProtobufSchema | None":
    """Return a schema; None if it has another type, cannot be read, or a library is missing."""
    parts = name.split("/")
    if len(parts) != 4:
        return None
    try:
        from ams.validation.protobuf import ProtobufSchema, descriptor_of  # needs the extra service or spark

        for each in session.call(wire.list_revisions(parts[1], parts[3])).revisions:
            if each.revision == revision and each.type == "protobuf":
                return ProtobufSchema(descriptor_of(each.schema))
    except (ModuleNotFoundError, ClientError, InvalidInput):  # perhaps this user may not read it
        return None
    return None


def data_text(message: wire.PulledMessage) -> str:
    """Return the data as text, or marked as base64 if it is not text."""
    try:
        payload = message.payload()
    except ValueError:
        # Without strict_data a service stores data that is not base64 unchanged.
        return message.data
    try:
        return payload.decode("utf-8")
    except UnicodeDecodeError:
        return f"base64:{message.data}"
