"""The endpoint check: whoever owns a push endpoint shows it by serving a text that only the service can know."""

import asyncio
import contextlib
import hmac
import ssl
from collections import Counter
from collections.abc import Iterator

import httpcore

import ams
from ams.errors import Overloaded
from ams.names import ProjectId
from ams.push.brief import BriefNetwork
from ams.push.guard import Guard, GuardedNetwork, Refused, pool

HASH_PATH = "/ams_verification_hash"
"""At the root of the endpoint's host (contract 13.4)."""
CHECK_SECONDS = 5.0
"""For everything: finding the address, connecting, and the whole answer."""


CHECKS, CHECKS_OF_PROJECT = 16, 4
"""At once: somebody else's server says how long each takes."""


class Places:
    """Places for checks that go on at the same time."""

    def __init__(self) -> None:
        self._taken: Counter[ProjectId] = Counter()

    @contextlib.contextmanager
    def taken(self, project: ProjectId) -> Iterator[None]:
        """Take a place while the block runs; raise `Overloaded` when there is none left."""
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
        self._network = BriefNetwork(GuardedNetwork(guard))
        self._trust = trust
        self._seconds = seconds

    async def check(self, host: str, port: int, expected: str) -> None:
        """Return when `host` answers exactly the expected text; raise `CheckFailed`."""
        try:
            async with asyncio.timeout(self._seconds):
                await self._ask(host, port, expected.encode())
        except TimeoutError:
            raise CheckFailed(f"No answer within {self._seconds:g} seconds") from None
        except httpcore.TimeoutException:
            raise CheckFailed("No connection could be made in time") from None
        except (Refused, httpcore.NetworkError, httpcore.ProtocolError, ssl.SSLError) as error:
            raise CheckFailed(_one_line(error)) from error

    async def _ask(self, host: str, port: int, expected: bytes) -> None:
        url = httpcore.URL(scheme=b"https", host=host.encode(), port=port, target=HASH_PATH.encode())
        shown = f"[{host}]" if ":" in host else host
        headers = {"Host": f"{shown}:{port}", "User-Agent": f"ams/{ams.__version__}", "Connection": "close"}
        # Half of the time for each of the host's addresses: one that swallows everything leaves some for the next.
        limits = {"timeout": {"connect": self._seconds / 2}}
        async with (
            pool(self._network, self._trust) as connections,
            connections.stream("GET", url, headers=list(headers.items()), extensions=limits) as answer,
        ):
            if answer.status != 200:
                raise CheckFailed("Wrong response status code")
            if not hmac.compare_digest(await _head(answer, len(expected) + 1), expected):
                raise CheckFailed("Wrong verification hash")


async def _head(answer: httpcore.Response, size: int) -> bytes:
    """Read no more than the first `size` bytes, or little more: what is longer is wrong already."""
    body = b""
    async for part in answer.aiter_stream():
        body += part
        if len(body) >= size:
            break
    return body


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__
