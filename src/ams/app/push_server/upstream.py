"""The HTTP API of a service as an upstream: ours or the reference's (push contract 12, 8.3).

A keeper of `ams.push.upstream.Upstream`. Pulls never wait in the service, as the reference would gather for 300 ms:
`ams.app.push_server.waiting` says when there may be something.
"""

from collections.abc import Sequence
from typing import NoReturn

import msgspec

from ams.app.push_server.targets import named
from ams.app.push_server.waiting import Waiting
from ams.client import AsyncClient, wire
from ams.client import errors as client_errors
from ams.client.wire.call import Call, json_body, reader, subscriptions_path
from ams.core.messages import Fragment
from ams.push.upstream import Away, Gone, NotTaken, Pulled, Refused, Target, UpstreamError, Verdict

_GONE = frozenset({"project doesn't exist", "subscription doesn't exist"})
_ACK_LATE = frozenset({"no ack pending", "wrong ack"})
"""How a reference words that it does not know of a hand-out; answered as an error of its own."""
_NOT_NEXT = "message is not the next one of the subscription"
"""How a service words that a message was acknowledged, or the subscription moved, before it was put aside."""


class _Message(msgspec.Struct, rename="camel"):
    message_id: str = ""
    publish_time: str = ""
    attributes: msgspec.Raw = msgspec.Raw(b"{}")
    data: msgspec.Raw = msgspec.Raw(b'""')


class _Received(msgspec.Struct, rename="camel"):
    ack_id: str
    message: _Message


class _Pull(msgspec.Struct, rename="camel"):
    received_messages: list[_Received]


_pull = reader(_Pull)


class _Standing:
    """What is known of a subscription between two calls."""

    __slots__ = ("end", "may_have_more")

    def __init__(self) -> None:
        self.end = -1
        """Offset of the last message of a pull that brought all there was; -1: it brought as many as it might."""
        self.may_have_more = False
        """Whether a pull at once is right, without waiting."""


class HttpUpstream:
    """Messages of a service elsewhere; `waiting` says when to pull."""

    def __init__(self, client: AsyncClient, waiting: Waiting) -> None:
        self._client = client
        self._waiting = waiting
        self._standings: dict[str, _Standing] = {}

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return the next messages; nothing after a while in which there were none."""
        standing = self._standings.setdefault(target.path, _Standing())
        try:
            if not standing.may_have_more and not await self._waiting.until_due(target):
                return ()
            answer = await self._client.call(_pull_call(target, max_messages))
        except client_errors.ClientError as error:
            self._raise(target, error)
        messages = _within(max_bytes, [_pulled(each) for each in answer.received_messages])
        standing.may_have_more = bool(messages)
        is_all = len(messages) < max_messages and len(messages) == len(answer.received_messages)
        standing.end = messages[-1].offset if messages and is_all else -1
        if messages:
            self._waiting.came(target.path)
        return messages

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        """Acknowledge exactly the last message, which covers those before it."""
        project, subscription = named(target.path)
        ack = wire.ack_id(project, subscription, last.offset)
        try:
            await self._client.call(wire.acknowledge(project, subscription, [ack]))
        except client_errors.ClientError as error:
            place = self._client.endpoint.rpartition("//")[2]
            self._raise(
                target,
                error,
                f"an error occurred while trying to acknowledge message with ackId {ack} from subscription"
                f" {target.path} from {place}, ",
            )
        self._acknowledged(target, last)

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Let the service put a message into the dead letter topic, and acknowledge it."""
        project, subscription = named(target.path)
        ack = wire.ack_id(project, subscription, message.offset)
        letter = wire.dead_letter(
            project, subscription, ack, reason=verdict.reason, attempts=verdict.attempts, status=verdict.status
        )
        try:
            await self._client.call(letter)
        except client_errors.ClientError as error:
            self._raise(target, error)
        self._acknowledged(target, message)

    def patience(self, target: Target) -> float | None:
        """Return the acknowledgement deadline; a service cuts to whole seconds, so 0 leaves nearly one."""
        return float(max(target.ack_deadline_seconds, 1))

    def forget(self, target: Target) -> None:
        """Forget where a subscription stands, and that it is waited for."""
        self._standings.pop(target.path, None)
        self._waiting.forget(target.path)

    def _acknowledged(self, target: Target, last: Pulled) -> None:
        standing = self._standings.get(target.path)
        if standing is not None and standing.end == last.offset:
            standing.may_have_more = False

    def _raise(self, target: Target, error: client_errors.ClientError, before: str = "") -> NoReturn:
        kind = kind_of(error, is_acknowledgement=bool(before))
        raise kind(before + error.message) from error


def kind_of(error: client_errors.ClientError, *, is_acknowledgement: bool = False) -> type[UpstreamError]:
    """Return what an answer means for a worker: by status first, by text where the status says too little (P21)."""
    if isinstance(error, client_errors.AckTimeout):
        return NotTaken
    if is_acknowledgement and error.message.strip().lower() in _ACK_LATE:
        return NotTaken
    if error.message.strip().lower() == _NOT_NEXT:
        return NotTaken
    if isinstance(error, client_errors.NotFound):
        return Gone if error.message.strip().lower() in _GONE else Refused
    if isinstance(error, client_errors.Unavailable) or not isinstance(error, client_errors.Refused):
        return Refused if isinstance(error, client_errors.Untrusted | client_errors.Unusable) else Away
    return Refused


def _pull_call(target: Target, max_messages: int) -> Call[_Pull]:
    """Pull without waiting; both values are texts, as every service takes them."""
    body = json_body({"maxMessages": str(max_messages), "returnImmediately": "true"})
    return Call("POST", subscriptions_path(*named(target.path), "pull"), _pull, body, repeatable=True)


def _pulled(received: _Received) -> Pulled:
    message = received.message
    offset = int(received.ack_id.rpartition(":")[2])
    return Pulled(offset, message.message_id, message.publish_time, _fragment(message))


def _fragment(message: _Message) -> Fragment:
    """Join the parts as they came: neither is decoded. Answers of a reference are indented, bodies are not."""
    attributes, data = bytes(message.attributes), bytes(message.data)
    if b"\n" in attributes:
        attributes = msgspec.json.format(attributes, indent=-1)
    shown = b" " + data if b"\\" in data else data
    if attributes in (b"{}", b"null"):
        return Fragment(b'"data":' + shown)
    return Fragment(b'"attributes":%b,"data":%b' % (attributes, shown))


def _within(max_bytes: int, messages: Sequence[Pulled]) -> Sequence[Pulled]:
    """Return as many messages from the first on as there is room for, but one at least."""
    room = max_bytes
    for index, message in enumerate(messages):
        room -= len(message.fragment)
        if room < 0:
            return messages[: max(index, 1)]
    return messages
