"""Where subscriptions stand, over HTTP: offsets, timeToOffset, modifyOffset (contract 11.3 to 11.5), seek."""

import math
import re
from datetime import UTC, datetime

import msgspec

from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.http.wire import Reader, Shape
from ams.service.seeking import Seeker

_ZULU = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?Z")
_NANOSECONDS = 1_000_000
"""In one millisecond."""


class NewOffset(Shape):
    """Where to move a subscription; absent is 0."""

    offset: int | None = None


class Seek(Shape):
    """Where to move a subscription: to the first message published at `time` or later, or to `offset`; one of them."""

    time: str | None = None
    offset: int | None = None


_seek = Reader(Seek, lambda: InvalidInput("Invalid Seek Arguments"))
_offset = Reader(NewOffset, lambda: InvalidInput("Invalid Offset Arguments"))


class Offsets(msgspec.Struct):
    """Ids: the oldest kept message, the next one to be given, and where the subscription stands (contract 11.3)."""

    min: int
    max: int
    current: int


class OffsetAt(msgspec.Struct):
    """The id of a message (contract 11.4)."""

    offset: int


class OffsetRoutes:
    """The routes of offsets."""

    def __init__(self, seeker: Seeker) -> None:
        self._seeker = seeker

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/projects/{project}/subscriptions/{subscription}"
        return [
            Row("GET", one + ":offsets", "subscriptions:offsets", self.show, answers=Offsets),
            Row(
                "GET",
                one + ":timeToOffset",
                "subscriptions:timeToOffset",
                self.of_time,
                answers=OffsetAt,
                parameters=("time",),
            ),
            Row("POST", one + ":modifyOffset", "subscriptions:modifyOffset", self.modify, reads=NewOffset),
            Row("POST", one + ":seek", "subscriptions:seek", self.seek, reads=Seek, answers=Offsets),
        ]

    async def show(self, call: Call) -> bytes:
        """Answer the topic's bounds and where the subscription stands between them."""
        offsets = await self._seeker.offsets(call.caller, call.subscription)
        return answers.encode(Offsets(**offsets._asdict()))

    async def of_time(self, call: Call) -> bytes:
        """Answer the first message published at `time` or later; subscription and access list come before `time`."""
        await self._seeker.require(call.caller, call.subscription)
        time = zulu_time(call.parameter("time") or "")
        return answers.encode(OffsetAt(await self._seeker.offset_at(call.caller, call.subscription, time)))

    async def modify(self, call: Call) -> bytes:
        """Move the subscription; an absent offset is 0."""
        offset = _offset.read(await call.body()).offset or 0
        await self._seeker.seek(call.caller, call.subscription, offset)
        return answers.EMPTY

    async def seek(self, call: Call) -> bytes:
        """Move the subscription to a time or an offset, in one step; answer where it stands."""
        wanted = _seek.read(await call.body())
        if (wanted.time is None) == (wanted.offset is None):
            raise InvalidInput("Give either time or offset")
        if wanted.time is not None:
            offsets = await self._seeker.seek_time(call.caller, call.subscription, zulu_time(wanted.time))
        else:
            offsets = await self._seeker.seek(call.caller, call.subscription, wanted.offset or 0)
        return answers.encode(Offsets(**offsets._asdict()))


def zulu_time(text: str) -> Milliseconds:
    """Read `YYYY-MM-DDTHH:MM:SS.mmmZ`, with a blank for the T and 0 to 9 digits too (contract 11.4).

    What is finer than a millisecond is rounded up: messages carry whole ones, and none before the time is wanted.
    Raises `InvalidInput`.
    """
    found = _ZULU.fullmatch(text)
    if found is None:
        raise InvalidInput("Time is not in valid Zulu format.")
    date, time, fraction = found.groups(default="")
    try:
        seconds = int(datetime.fromisoformat(f"{date}T{time}").replace(tzinfo=UTC).timestamp())
    except ValueError:
        raise InvalidInput("Time is not in valid Zulu format.") from None
    return Milliseconds(seconds * 1000 + math.ceil(int(fraction.ljust(9, "0")) / _NANOSECONDS))
