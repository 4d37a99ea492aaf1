"""Bodies: what a delivery carries, made of pulled messages (push contract 10 and 11).

A message's JSON is ready since it was published, and bodies are joined of it as it is. Messages are looked into only
where data shall be decoded, and for Mattermost.
"""

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import pybase64

from ams.core.messages import Fragment, Message, decoded_data, parse
from ams.core.push_config import MATTERMOST
from ams.push.target import Target
from ams.push.upstream import Pulled

_encode = msgspec.json.Encoder().encode
_COLON = ord(":")


class Body(NamedTuple):
    """The body of one delivery."""

    content: bytes
    undecodable: int
    """Messages whose data should have been decoded and is no text, so that it is base64 still (P13)."""


class Bodies:
    """Makes the bodies of one target."""

    def __init__(self, target: Target) -> None:
        config = target.config
        self._mattermost = config if config.type == MATTERMOST else None
        self._single = config.max_messages == 1
        self._decodes = config.base64_decode
        subscription = _encode(target.path.removeprefix("/"))
        self._tail = b'},"subscription":%b}' % subscription

    @property
    def is_mattermost(self) -> bool:
        """Whether a body holds one message, whatever the configuration allows (P12)."""
        return self._mattermost is not None

    def body(self, messages: Sequence[Pulled]) -> Body:
        """Return the body that carries these messages: at least one, and no more for Mattermost or `max_messages` 1."""
        if self._mattermost is not None:
            return self._post(messages[0])
        undecodable = 0
        if self._decodes:
            decoded = [_decoded(each) for each in messages]
            messages = [each for each, _ in decoded]
            undecodable = sum(not good for _, good in decoded)
        if self._single:
            return Body(b"".join(self._item(messages[0], b"")), undecodable)
        return Body(self._list(messages), undecodable)

    def _list(self, messages: Sequence[Pulled]) -> bytes:
        parts, separator = [b'{"messages":['], b""
        for each in messages:
            parts += self._item(each, separator)
            separator = b","
        parts.append(b"]}")
        return b"".join(parts)

    def _item(self, message: Pulled, separator: bytes) -> tuple[bytes, ...]:
        """Return the parts of one message; empty ids and times are left out (push contract 10)."""
        _, message_id, publish_time, fragment = message
        shown_id = b'"messageId":%b,' % _encode(message_id) if message_id else b""
        shown_time = b',"publishTime":%b' % _encode(publish_time) if publish_time else b""
        return separator, b'{"message":{', shown_id, fragment, shown_time, self._tail

    def _post(self, message: Pulled) -> Body:
        assert self._mattermost is not None
        sent = parse(message.fragment)
        text = _text(sent) if self._decodes else None
        post = {"text": sent.data if text is None else text}
        if self._mattermost.mattermost_username:
            post["username"] = self._mattermost.mattermost_username
        if self._mattermost.mattermost_channel:
            post["channel"] = self._mattermost.mattermost_channel
        return Body(_encode(post), int(self._decodes and text is None))


def _decoded(message: Pulled) -> tuple[Pulled, bool]:
    """Return a message with its data as text, and whether it is text; else as it was."""
    fragment = message.fragment
    # Data comes last. A quote within it has a backslash before it, so a colon before one says that it begins there.
    opening = fragment.rfind(b'"', 0, -1)
    try:
        if fragment[opening - 1] != _COLON:
            return _parsed_and_decoded(message)
        text = pybase64.b64decode(fragment[opening + 1 : -1], validate=True).decode()
    except ValueError:
        return _parsed_and_decoded(message)
    return message._replace(fragment=Fragment(fragment[:opening] + _encode(text))), True


def _parsed_and_decoded(message: Pulled) -> tuple[Pulled, bool]:
    """Return the same, for data that may have escapes or line breaks in it."""
    sent = parse(message.fragment)
    text = _text(sent)
    if text is None:
        return message, False
    attributes = b'"attributes":%b,' % _encode(sent.attributes) if sent.attributes else b""
    return message._replace(fragment=Fragment(b'%b"data":%b' % (attributes, _encode(text)))), True


def _text(message: Message) -> str | None:
    """Return the data as text; None when it is not UTF-8 in base64, which JSON could not carry undamaged (P13)."""
    try:
        return decoded_data(message.data).decode()
    except ValueError:
        return None
