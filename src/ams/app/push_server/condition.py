"""The condition of the push server: whether it can work, as it tells everybody who asks (push contract 4, P26)."""

import asyncio

OK = "ok"
STARTING = ""
NO_WORKER = "Could not retrieve push worker user"
"""In the words of the contract; the service, or its answer to who the worker is, is missing."""

MISSES, HITS = 3, 2
"""Failures in a row after which what worked works no more, and successes after which it does again."""


class Condition:
    """Starts as `STARTING`; the first success makes it `OK`, and single failures do not end that."""

    def __init__(self, text: str = STARTING) -> None:
        self._text = text
        self._was_ok = text == OK
        self._missed = 0
        self._hit = 0
        self._changed = asyncio.Event()

    @property
    def text(self) -> str:
        """What is told."""
        return self._text

    @property
    def is_ok(self) -> bool:
        """Whether calls are answered."""
        return self._text == OK

    def reached(self) -> None:
        """Note that the service answered as it should."""
        self._missed = 0
        self._hit += 1
        if not self._was_ok or self._hit >= HITS:
            self._was_ok = True
            self._tell(OK)

    def missed(self) -> None:
        """Note that it did not."""
        self._hit = 0
        self._missed += 1
        if not self._was_ok or self._missed >= MISSES:
            self._tell(NO_WORKER)

    async def change(self) -> None:
        """Return when another text is told than now."""
        await self._changed.wait()

    def _tell(self, text: str) -> None:
        if text == self._text:
            return
        self._text = text
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()
