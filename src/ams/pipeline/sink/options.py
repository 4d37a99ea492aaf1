"""What may be said to `format("ams")` of writing."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

from ams.pipeline.errors import WrongOption
from ams.pipeline.options import ACCESS, Access, Given, names

WRITING = (
    "topic",
    "orderBy",
    "idempotencyKey",
    "createTopics",
    "maxRequestMessages",
    "maxRequestBytes",
    "keyWindow",
    "checkpointLocation",
)
KEY_WINDOW_SECONDS = 86400.0
"""How long the service is believed to know idempotency keys, unless it is said otherwise."""

_KEY = re.compile(r"[!-~]{1,128}")


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a request may be; a message that is larger travels alone."""

    messages: int = 1000
    bytes: int = 4 * 1024 * 1024
    """Of its body: well below the 16 MiB a service takes as it comes."""
    open_bytes: int = 32 * 1024 * 1024
    """Of all requests that are not full yet; beyond them all are closed, lest many topics fill the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writing:
    """What is to be written, to which service. It goes to the executors with the writer and is never shown."""

    access: Access
    project: str
    topic: str | None
    """Where all rows go; None when each row says it."""
    order_by: tuple[str, ...]
    """Columns whose values never fall; the sink checks it, and names rows by them."""
    idempotency_key: str | None
    create_topics: bool
    limits: Limits
    key_window: float
    """Seconds the service knows keys at least."""
    checkpoint: str | None
    """Of a streaming query, where it was said by the option."""


def writing(options: Mapping[str, str], environment: Mapping[str, str] = os.environ) -> Writing:
    """Read the options of a sink; raise `WrongOption` for the first that cannot be."""
    given = Given(options)
    given.allow(ACCESS + WRITING)
    access, in_use = given.access(environment)
    project, topic = _where(given, in_use)
    key = given.text("idempotencyKey")
    if key is not None and not _KEY.fullmatch(key):
        raise WrongOption("idempotencyKey", "has 1 to 128 visible ASCII characters and no blanks")
    return Writing(
        access=access,
        project=project,
        topic=topic,
        order_by=tuple(each.strip() for each in (given.text("orderBy") or "").split(",") if each.strip()),
        idempotency_key=key,
        create_topics=given.truth("createTopics", default=False),
        limits=Limits(
            messages=given.count("maxRequestMessages") or Limits().messages,
            bytes=given.count("maxRequestBytes") or Limits().bytes,
        ),
        key_window=given.seconds("keyWindow", KEY_WINDOW_SECONDS),
        checkpoint=given.text("checkpointLocation"),
    )


def _where(given: Given, in_use: str | None) -> tuple[str, str | None]:
    text = given.text("topic")
    if text is None:
        if in_use is None:
            raise WrongOption("project", "is missing; it says where the topics are")
        return in_use, None
    found = names("topic", text, in_use)
    if len(found) > 1:
        raise WrongOption("topic", "all rows go to one; a column topic sends each to its own")
    return found[0].project, found[0].name
