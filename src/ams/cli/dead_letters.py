"""`ams dead`: dead letters, messages that an endpoint refused too often, and publishing them again."""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, NamedTuple

from ams.cli.arguments import SubscriptionName, argument, option, topic_names
from ams.cli.command import CommandGroup, OptionSet, Session
from ams.cli.exit_codes import Usage
from ams.cli.messages import data_text, read_messages
from ams.cli.output import columns, emit, json_line, printable, short_name
from ams.client import wire
from ams.client.errors import Conflict, InvalidInput, NotAllowed, NotFound

app = CommandGroup("ams dead list watering", "ams dead show watering 3", "ams dead redrive watering 3 4")

_ID = re.compile("[0-9]{1,18}")
AT_ONCE = 500  # messages that are read at once
_PREFIX = "deadLetter"
_NAMES = ("Subscription", "SourceTopic", "MessageId", "PublishTime", "Reason", "Attempts", "Status")
_GOOGLES = ("DeliveryCount", "Subscription", "SubscriptionProject", "TopicPublishTime")
_GIVEN = frozenset((*(_PREFIX + name for name in _NAMES), *(f"CloudPubSubDeadLetterSource{name}" for name in _GOOGLES)))
"""Attributes that the service adds to a dead letter (docs/reference/push.md)."""


@dataclass(frozen=True, slots=True)
class DeadLetterSource(OptionSet):
    """Topic of the dead letters, and the subscription to read it through."""

    topic: Annotated[str, option("Another dead letter topic.", "--from", metavar="TOPIC", complete=topic_names)] = ""
    through: Annotated[
        str, option("Subscription to that topic; a consumer needs one.", "--subscription", metavar="SUB")
    ] = ""


class _DeadLetters(NamedTuple):
    session: Session
    subscription: str
    topic: str
    through: str

    def read(self, ids: range, *, back: bool = False) -> Iterator[wire.ReadMessage]:
        for each in read_messages(self.session, self.topic, ids, AT_ONCE, self.through, back=back):
            # Compares only the subscription's name: the project may have been renamed.
            if short_name(_letter_attribute(each, "Subscription")) == self.subscription:
                yield each

    def one(self, number: int) -> wire.ReadMessage:
        """Return the dead letter with an id. Raises `NotFound` if it is not the subscription's."""
        found = list(self.read(range(number, number + 1))) if number in self.ids() else []
        if not found:
            raise NotFound(f"{number} is no dead letter of subscription {self.subscription} in topic {self.topic}")
        return found[0]

    def ids(self) -> range:
        call = wire.get_topic_offsets(self.session.project, self.topic, subscription=self.through)
        bounds = self.session.call(call)
        return range(bounds.min, bounds.max)


@app.does("list")
def list_(
    session: Session,
    subscription: SubscriptionName,
    *,
    limit: Annotated[int, option("The newest so many.", min=1)] = 100,
    source: DeadLetterSource,
) -> None:
    """List the dead letters of a subscription, the newest first."""
    letters = _dead_letters(session, subscription, source)
    found = list(islice(letters.read(letters.ids(), back=True), limit))
    names = ("MessageId", "Attempts", "Status", "Reason")
    rows = [(each.message_id, each.publish_time, *(_letter_attribute(each, name) for name in names)) for each in found]
    session.show(found, columns(("ID", "SINCE", "MESSAGE", "ATTEMPTS", "STATUS", "REASON"), rows))


@app.does()
def show(
    session: Session,
    subscription: SubscriptionName,
    number: Annotated[int, argument("ID", "Id in that topic.", min=0)],
    source: DeadLetterSource,
) -> None:
    """Show a dead letter: why it is one, and the message as it was published."""
    found = _dead_letters(session, subscription, source).one(number)
    own = {"ordering key": found.ordering_key}
    own |= {f"attribute {name}": value for name, value in _original(found).items()}
    said = {
        "id": found.message_id,
        "since": found.publish_time,
        "message": _letter_attribute(found, "MessageId"),
        "published": _letter_attribute(found, "PublishTime"),
        "topic": short_name(_letter_attribute(found, "SourceTopic")),
        "attempts": _letter_attribute(found, "Attempts"),
        "status": _letter_attribute(found, "Status"),
        "reason": _letter_attribute(found, "Reason"),
    }
    session.show(found, {**said, **own, "data": data_text(found)})


@app.does()
def redrive(
    session: Session,
    subscription: SubscriptionName,
    *,
    numbers: Annotated[list[int] | None, argument("[ID]...", "Ids in that topic.")] = None,
    every: Annotated[bool, option("All of them, the oldest first.", "--all")] = False,
    to: Annotated[str, option("Another topic.", metavar="TOPIC", complete=topic_names)] = "",
    unverified: Annotated[
        bool, option("Also those that are not, or not surely, what was published.", "--unverified")
    ] = False,
    source: DeadLetterSource,
) -> None:
    """Publish dead letters again as they were; asked again, each is still published once.

    Each is compared with the message that it says it was: whoever may publish to the dead letter topic can write one.
    """
    if bool(numbers) == every:
        raise Usage("name the dead letters by their ids, or give --all")
    letters = _dead_letters(session, subscription, source)
    target = to or short_name(session.call(wire.get_subscription(session.project, subscription)).topic)
    doubtful = []
    for letter in letters.read(letters.ids()) if every else [letters.one(number) for number in numbers or ()]:
        if not unverified and not _is_genuine(letters, letter):
            doubtful.append(letter.message_id)
            continue
        published, before = _publish_again(letters, letter, target)
        if session.for_programs:
            told = {"id": letter.message_id, "topic": target, "messageId": published, "publishedBefore": before}
            emit(json_line(told))
        else:
            emit(printable(f"{letter.message_id} is {published} in topic {target}{', as before' if before else ''}"))

    if doubtful:
        raise Conflict(
            f"not published: {', '.join(doubtful)} of topic {letters.topic}: the message that it says it was is gone or"
            " another one, and whoever may publish to that topic can write it; --unverified publishes it all the same"
        )


def _is_genuine(letters: _DeadLetters, letter: wire.ReadMessage) -> bool:
    topic, number = short_name(_letter_attribute(letter, "SourceTopic")), _letter_attribute(letter, "MessageId")
    if not topic or not _ID.fullmatch(number):
        return False
    place, session = int(number), letters.session
    through = letters.subscription if letters.through else ""
    asked = wire.read_topic(session.project, topic, start=place, stop=place + 1, most=1, subscription=through)
    try:
        found = session.call(asked)
    except (InvalidInput, NotFound, NotAllowed):
        return False
    return any(each.offset == place and _content(each) == _content(letter) for each in found)


def _content(message: wire.ReadMessage) -> tuple[str, dict[str, str], str]:
    return message.data, _original(message), message.ordering_key


def _publish_again(letters: _DeadLetters, letter: wire.ReadMessage, target: str) -> tuple[str, bool]:
    """Publish a dead letter's message again; return its new id, and whether it was already published."""
    message = wire.Message(data=letter.data, attributes=_original(letter), ordering_key=letter.ordering_key)
    # Key by place and time: a topic made again under its name has other times.
    words = " ".join((letters.topic, letter.message_id, letter.publish_time))
    key = f"redrive-{hashlib.sha256(words.encode()).hexdigest()}"
    session = letters.session
    try:
        session.patient.call(wire.publish(session.project, target, [], key=key))
        before = False
    except Conflict:  # the key is known
        before = True
    published = session.patient.call(wire.publish(session.project, target, [message], key=key))
    return published.message_ids[0], before


def _dead_letters(session: Session, subscription: str, source: DeadLetterSource) -> _DeadLetters:
    """Return the place of dead letters. Raises `Usage` if the subscription has no dead letter topic."""
    topic = source.topic
    if not topic:
        found = session.call(wire.get_subscription(session.project, subscription))
        policy, of_push = found.dead_letter_policy, str(found.push_config.get("deadLetterTopic", ""))
        topic = short_name(policy.dead_letter_topic if policy else of_push)
    if not topic:
        raise Usage(f"subscription {subscription} has no dead letter topic: name the one it had with --from")
    return _DeadLetters(session, subscription, topic, source.through)


def _letter_attribute(letter: wire.ReadMessage, name: str) -> str:
    return letter.attributes.get(_PREFIX + name, "")


def _original(letter: wire.ReadMessage) -> dict[str, str]:
    return {name: value for name, value in letter.attributes.items() if name not in _GIVEN}
