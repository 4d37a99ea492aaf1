"""Dead letters over HTTP: what a worker elsewhere puts aside."""

from typing import Annotated

import msgspec

from ams.core.errors import InvalidInput
from ams.core.names import Offset, ack_offset, ack_prefix
from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.http.wire import Reader, Shape
from ams.push.upstream import Verdict
from ams.service.push.dead_letters import DeadLetters

BAD_ARGUMENTS = "Invalid Dead Letter Arguments"


class DeadLetter(Shape, rename="camel"):
    """The next message of the subscription, by the id that acknowledges it, and why it could not be delivered."""

    ack_id: str | None = None
    reason: str | None = None
    attempts: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None
    status: Annotated[int, msgspec.Meta(ge=0, le=999)] | None = None


_letter = Reader(DeadLetter, lambda: InvalidInput(BAD_ARGUMENTS))


class DeadLetterRoutes:
    """The routes of dead letters."""

    def __init__(self, dead_letters: DeadLetters) -> None:
        self._dead_letters = dead_letters

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        path = "/projects/{project}/subscriptions/{subscription}:deadLetter"
        return [Row("POST", path, "subscriptions:deadLetter", self.dead_letter, reads=DeadLetter)]

    async def dead_letter(self, call: Call) -> bytes:
        """Put the next message aside into the dead letter topic, once however often asked, and acknowledge it."""
        letter = _letter.read(await call.body())
        offset = ack_offset(ack_prefix(call.caller.here.name, call.subscription), letter.ack_id or "")
        if offset < 0:
            raise InvalidInput("Invalid ack id")
        verdict = Verdict(letter.reason or "", letter.attempts or 0, letter.status or 0)
        await self._dead_letters.dead_letter_for(call.caller, call.subscription, Offset(offset), verdict)
        return answers.EMPTY
