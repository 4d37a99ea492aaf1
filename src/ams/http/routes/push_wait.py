"""Waiting for messages of many subscriptions at once, for processes that deliver (`ams push`); not of the contract."""

from collections.abc import Sequence

import msgspec

from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SubscriptionId
from ams.http.routes import answers
from ams.http.routes.push_lease import is_id
from ams.http.routing import Call, Row
from ams.http.wire import Reader, Shape
from ams.service.delivering import Deliverer
from ams.service.push.pushing import DISABLED, Pushing

MAX_SUBSCRIPTIONS = 1000
"""That one request may wait for."""
MAX_SECONDS = 30
MAX_BODY = 64 * 1024


class WaitBody(Shape):
    """Subscriptions by their ids, and how long to wait for a message of one of them; absent is not at all."""

    subscriptions: list[str] | None = None
    seconds: int | None = None


class Ready(msgspec.Struct):
    """Which of the subscriptions have something to pull; none: nothing came."""

    ready: Sequence[str]


_wait = Reader(WaitBody, lambda: InvalidInput("Invalid Push Wait Arguments"))


class WaitRoutes:
    """The routes of waits."""

    def __init__(self, deliverer: Deliverer, pushing: Pushing) -> None:
        self._deliverer = deliverer
        self._pushing = pushing

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [Row("POST", "/push:wait", "push:wait", self.wait, reads=WaitBody, answers=Ready, most=MAX_BODY)]

    async def wait(self, call: Call) -> bytes:
        """Answer as soon as one of many subscriptions has something to pull."""
        if not self._pushing.enabled:
            raise Conflict(DISABLED)
        body = _wait.read(await call.body())
        subscriptions, seconds = body.subscriptions or [], body.seconds or 0
        if len(subscriptions) > MAX_SUBSCRIPTIONS or not all(map(is_id, subscriptions)):
            raise InvalidInput(f"A push wait is for {MAX_SUBSCRIPTIONS} subscriptions")
        if not 0 <= seconds <= MAX_SECONDS:
            raise InvalidInput(f"A push wait is of 0 to {MAX_SECONDS} seconds")
        with call.watched() as left:
            ready = await self._deliverer.ready(frozenset(map(SubscriptionId, subscriptions)), seconds, left)
        return answers.encode(Ready(sorted(ready)))
