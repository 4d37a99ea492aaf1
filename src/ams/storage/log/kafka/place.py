"""Where a topic is on Kafka: its name there, and what its first offset is called here.

A name is `PREFIX.LABEL.IDENTITY[-FIRST]`. The prefix tells installations apart that share one Kafka, and has no dot;
the label is for people and for other readers of the topic; the identity makes the name unique, so that a topic can be
deleted and made again under its name at once; `FIRST` is there when the offsets do not start at 0, as in a topic that
was moved here after its oldest messages were gone. Nothing else remembers these names: the brokers list them.
"""

import re
from typing import NamedTuple

from ams.core.names import Offset, TopicId, topic_id

MAX_NAME = 249
"""Characters of a Kafka topic's name."""
PREFIX = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_NAME = re.compile(r"(?P<prefix>[a-zA-Z0-9_-]+)\.(?:.*\.)?(?P<identity>[0-9a-f]{32})(?:-(?P<first>\d{1,18}))?")


FIRST = Offset(0)


class Place(NamedTuple):
    """A topic and where it is: offset `n` of the broker is `n + first` here."""

    topic: TopicId
    name: str
    first: Offset = FIRST


def place_of(prefix: str, topic: TopicId, label: str = "", first: Offset = FIRST) -> Place:
    """Return where a new topic goes; `label` is cut to what fits."""
    end = f".{bytes(topic).hex()}" + (f"-{first}" if first else "")
    cut = label[: MAX_NAME - len(prefix) - len(end) - 1]
    return Place(topic, f"{prefix}.{cut}{end}" if cut else f"{prefix}{end}", first)


def place_in(prefix: str, name: str) -> Place | None:
    """Return what a Kafka topic's name says; None for one that is not this installation's."""
    found = _NAME.fullmatch(name)
    if found is None or found["prefix"] != prefix:
        return None
    return Place(topic_id(found["identity"]), name, Offset(int(found["first"] or 0)))
