"""The endpoint check: whoever owns a push endpoint shows it by serving a text that only the service can know."""

import asyncio
import contextlib
import hmac
import ssl
from collections import Counter
from collections.abc import Iterator

from ams.core.errors import Overloaded
from ams.core.names import ProjectId
from ams.outgoing.guard import Guard, Refused
from ams.push.connecting import Connector, Endpoint, Reply
from ams.push.failing import Progress, Unreachable

HASH_PATH = "/ams_verification_hash"
"""At the root of the endpoint's host (HTTP contract 13.4)."""
CHECK_SECONDS = 5.0
"""For everything: finding the address, connecting, and the whole answer."""


CHECKS, CHECKS_OF_PROJECT = 16, 4
"""At once: somebody else's server says how long each takes."""


class CheckSlots:
    """Limits how many checks go on at the same time."""

    def __init__(self) -> None:
        self._taken: Counter[ProjectId] = Counter()

    @contextlib.contextmanager
    def taken(self, project: ProjectId) -> Iterator[None]:
        """Take a slot while the block runs; raise `Overloaded` when there is none left."""
        if self._taken[project] >= CHECKS_OF_PROJECT or self._taken.total() >= CHECKS:
            raise Overloaded("Too many push endpoints are verified at once")
        self._taken[project] += 1
        try:
            yield
        finally:
            self._taken[project] -= 1
            self._taken += Counter()  # forgets who has none


class CheckFailed(Exception):
    """The endpoint did not show the hash; the text says why."""


class EndpointCheck:
    """Asks endpoints for their hash."""

    def __init__(self, guard: Guard, trust: ssl.SSLContext, seconds: float = CHECK_SECONDS) -> None:
        self._connector = Connector(guard, trust)
        self._seconds = seconds

    async def check(self, host: str, port: int, expected: str) -> None:
        """Return when `host` answers exactly the expected text; raise `CheckFailed`."""
        progress = Progress()
        try:
            async with asyncio.timeout(self._seconds):
                reply = await self._ask(Endpoint(host, port), len(expected) + 1, progress)
        except TimeoutError:
            raise CheckFailed(f"No answer within {self._seconds:g} seconds, while {progress.step}") from None
        except (Refused, Unreachable) as error:
            raise CheckFailed(str(error)) from error
        _judge(reply, expected.encode())

    async def _ask(self, endpoint: Endpoint, keep: int, progress: Progress) -> Reply:
        until = asyncio.get_running_loop().time() + self._seconds
        connection = await self._connector.connect(endpoint, progress, until)
        try:
            return await connection.ask("GET", HASH_PATH, [], b"", keep=keep, progress=progress, closes=True)
        finally:
            await connection.abort()


def _judge(reply: Reply, expected: bytes) -> None:
    if reply.status != 200:
        raise CheckFailed("Wrong response status code")
    if reply.cut and len(reply.body) <= len(expected):
        raise CheckFailed(reply.cut)
    if not hmac.compare_digest(reply.body, expected):
        raise CheckFailed("Wrong verification hash")
