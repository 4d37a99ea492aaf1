"""One deadline for a whole request: whoever asks is answered before the connection is cut (contract 15, A18)."""

import asyncio
from collections.abc import Callable
from typing import Any

from ams.errors import ServiceTimeout
from ams.http.asgi import JSON, Application, Event, Receive, Send, answer
from ams.http.errors import Refusal

SHARE = 0.9
"""Of the time there is for writing an answer: what is left is for sending it."""
TOO_LATE = "The request could not be answered in time"


class Deadline:
    """An application that answers in `seconds`, if need be that it cannot."""

    def __init__(self, app: Application, seconds: float, refusal: Callable[[Exception], Refusal]) -> None:
        self._app = app
        self._seconds = seconds
        self._refusal = refusal

    async def __call__(self, scope: dict[str, Any], receive: Receive, send: Send) -> None:
        """Answer one request; what has begun to be sent and does not end is given up."""
        has_begun = False

        async def begin(event: Event) -> None:
            nonlocal has_begun
            has_begun = True
            await send(event)

        limit = asyncio.timeout(self._seconds)
        try:
            async with limit:
                await self._app(scope, receive, begin)
        except TimeoutError:
            if has_begun or not limit.expired():
                raise
            found = self._refusal(ServiceTimeout(TOO_LATE))
            await answer(send, found.code, found.body, [JSON])
