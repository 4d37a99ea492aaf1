"""What is made of an endpoint's answer: an excerpt that people can read, and when to come again."""

from collections.abc import Sequence
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from ams.push.connecting import Reply
from ams.push.failing import one_line
from ams.push.sending import Answer

TEXT_BYTES = 2048
"""Of an answer's body that are shown."""
_MAX_HEADER = 64
"""Bytes of a `Retry-After` that are looked at."""


def answer(reply: Reply, now: float) -> Answer:
    """Return what a reply means; `now` in seconds since the epoch."""
    is_text = not is_success(reply.status) and not _is_encoded(reply)
    return Answer(reply.status, excerpt(reply.body) if is_text else "", _retry_after(reply, now))


def is_success(status: int) -> bool:
    """Whether the text of an answer is of no interest."""
    return 200 <= status < 300


def excerpt(body: bytes) -> str:
    """Return the beginning of a body on one line, without what cannot be shown."""
    return one_line(body[:TEXT_BYTES].decode(errors="ignore"), TEXT_BYTES)


def _is_encoded(reply: Reply) -> bool:
    """Whether a body is compressed: it stays as it is, and what of it could be shown would be no words."""
    codings = [value.strip().lower() for name, value in reply.headers if name.lower() == b"content-encoding"]
    return any(each not in (b"", b"identity") for each in codings)


def _retry_after(reply: Reply, now: float) -> float | None:
    values = [value for name, value in reply.headers if name.lower() == b"retry-after"]
    return retry_after(values, now) if values else None


def retry_after(values: Sequence[bytes], now: float) -> float | None:
    """Return the seconds that a `Retry-After` asks for, never below 0; None for what says nothing (RFC 9110, 10.2.3).

    It is a count of seconds or a date. Whoever sends several does not know when.
    """
    if len(values) != 1 or len(values[0]) > _MAX_HEADER:
        return None
    said = values[0].decode("latin-1").strip()
    if said.isascii() and said.isdigit():
        return float(said)
    try:
        moment = parsedate_to_datetime(said)
        if moment.tzinfo is None:  # as the oldest of the three forms is
            moment = moment.replace(tzinfo=UTC)
        return max(0.0, (moment - datetime.fromtimestamp(now, UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError, IndexError):
        return None
