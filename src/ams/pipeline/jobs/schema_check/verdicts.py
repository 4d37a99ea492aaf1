"""Whether a schema allows a message, in the words of the service. Imports no Spark.

What takes longer than the service lets others wait is checked as it does it: by a worker process, in limited time
and memory, so that the verdict is the same.
"""

import asyncio
import base64
from collections.abc import Mapping
from types import TracebackType

from ams.core.errors import InvalidInput, Overloaded
from ams.core.messages import message
from ams.pipeline.jobs.schema_check.rules import Rules
from ams.validation import compile_stored
from ams.validation.checker import MESSAGE, Piece, Task
from ams.validation.cost import INLINE, Budget, TooMuch
from ams.validation.long_checks import LongChecks
from ams.workers import Pool


class Verdicts:
    """A schema, compiled once for many messages; for one thread."""

    def __init__(self, rules: Rules) -> None:
        self._rules = rules
        self._compiled = compile_stored(rules.type, rules.payload, rules.attributes)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pool = Pool(1)

    def __enter__(self) -> "Verdicts":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None:
            self._loop.run_until_complete(self._pool.close())
            self._loop.close()

    def refusal(self, offset: int, data: bytes, attributes: Mapping[str, str]) -> str | None:
        """Return why a message would be refused, None when it would not. Never tells what stands in it."""
        budget = Budget(INLINE)
        try:
            self._compiled.check_payload(offset, data, budget)
            if self._compiled.attributes is not None:
                self._compiled.attributes.check(offset, attributes, budget)
        except InvalidInput as error:
            return error.message
        except TooMuch:
            return self._asked_apart(offset, data, attributes)
        return None

    def _asked_apart(self, offset: int, data: bytes, attributes: Mapping[str, str]) -> str | None:
        fragment = message(base64.b64encode(data).decode("ascii"), attributes, plain=True).fragment
        task = Task(*self._parts, [Piece(offset, MESSAGE, fragment)], all=False)
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
        try:
            refused = self._loop.run_until_complete(LongChecks(self._pool).check(None, task))
        except InvalidInput as error:
            return error.message
        except Overloaded as error:
            raise RuntimeError(f"message {offset} could not be checked: {error.message}") from error
        return refused[0].text if refused else None

    @property
    def _parts(self) -> tuple[str, str | None, str | None]:
        return self._rules.type, self._rules.payload, self._rules.attributes
