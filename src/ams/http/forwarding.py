"""Forwarding over HTTP (`ams.cluster.ownership`): method, target and body go on, and the answer comes back."""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote, urlsplit

import httpcore
import structlog

from ams.cluster.ownership import OwnerRequests
from ams.core.errors import OUTCOME_UNKNOWN, OwnedElsewhere, Unavailable
from ams.core.names import SubscriptionId
from ams.core.observing import REQUEST
from ams.http.asgi import Header, project_of
from ams.http.limits import unless_left
from ams.outgoing.client import PORTS, HttpClient, NotReached, RequestFailed, new_request
from ams.service.delivering import Gone, UnreadAnswers

T = TypeVar("T")

_PASSED_ON = ("x-api-key", "authorization", "content-type", "accept", "if-match")
_ANSWERED = (b"retry-after", b"www-authenticate", b"etag")
_PART_OF_MEMORY = 4  # where answers have little memory, a large one is fetched when this part of it is free

logger = structlog.get_logger("ams.http")


class Answer(NamedTuple):
    """The answer of the owner."""

    status: int
    body: bytes
    headers: list[Header]  # beside type and length of the body


class Relayed(Exception):
    """The answer of another node, which is no 200."""

    def __init__(self, answer: Answer) -> None:
        super().__init__(f"another node answered {answer.status}")
        self.answer = answer


class Forwarder:
    """Has done elsewhere what another node has to do."""

    def __init__(
        self, client: HttpClient, node: str, doubt: Callable[[SubscriptionId], None], unread: UnreadAnswers
    ) -> None:
        """`node` is the name of this one; `doubt` is told when a node does not seem to own a subscription.

        `unread` is the memory of answers that are not read yet.
        """
        self._client, self._unread = client, unread
        self._requests = OwnerRequests(node, doubt, _PASSED_ON)

    async def run(
        self,
        act: Callable[[], Awaitable[T]],
        scope: MutableMapping[str, Any],
        body: Callable[[], bytes],
        left: Callable[[], Gone] | None = None,
        *,
        most: int = 0,
    ) -> T | Answer:
        """Return what `act` does here, or else the answer of the node that owns what it is about.

        When a node is gone, or says that it does not own it, it is looked once more who does by now. The answer has
        about `most` bytes; `left` watches for the client to leave, which ends the request. Raises what `act` does, and
        `Unavailable` when it is not known what came of it.
        """
        asked: dict[str, Answer | None] = {}
        while True:
            try:
                return await act()
            except OwnedElsewhere as elsewhere:
                owner = elsewhere
            if owner.node in asked:
                known = asked[owner.node]
                if known is None:
                    raise owner
                return known
            self._unread.check(project_of(scope), min(most, self._unread.most // _PART_OF_MEMORY))
            answer = asked[owner.node] = await self._asked(owner, scope, body(), left)
            if answer is not None and answer.status != 503:
                return answer
            self._requests.doubt(SubscriptionId(owner.subscription))

    async def close(self) -> None:
        """End the connections that are kept."""
        await self._client.close()

    async def _asked(
        self, owner: OwnedElsewhere, scope: MutableMapping[str, Any], body: bytes, left: Callable[[], Gone] | None
    ) -> Answer | None:
        """Return what the owner answers; None when it cannot be reached. Raises `owner` if it must not be asked."""
        asking = self._client.ask(self._request(owner, scope, body))
        watch = left() if left else None
        try:
            answer = await (unless_left(asking, watch) if watch else asking)
        except NotReached as error:
            logger.warning("forward.not_reached", url=owner.url, reason=str(error))
            return None
        except RequestFailed as error:
            logger.warning("forward.failed", url=owner.url, reason=str(error))
            self._requests.doubt(SubscriptionId(owner.subscription))
            raise Unavailable(OUTCOME_UNKNOWN) from error
        finally:
            if watch:
                watch.cancel()
        headers = [(name.lower(), value) for name, value in answer.headers if name.lower() in _ANSWERED]
        return Answer(answer.status, answer.body, headers)

    def _request(self, owner: OwnedElsewhere, scope: MutableMapping[str, Any], body: bytes) -> httpcore.Request:
        given = [(name.decode("latin-1"), value.decode("latin-1")) for name, value in scope["headers"]]
        said = self._requests.headers(owner, owner.url, given, (scope.get("client") or ("",))[0])
        headers = [(name.encode(), value.encode("latin-1")) for name, value in said]
        parts = urlsplit(owner.url)
        scheme = parts.scheme.encode()
        query = scope["query_string"]
        target = quote(scope["path"], safe="/:").encode() + (b"?" + query if query else b"")
        place = httpcore.URL(
            scheme=scheme, host=(parts.hostname or "").encode(), port=parts.port or PORTS[scheme], target=target
        )
        return new_request(scope["method"], place, [*headers, (b"x-request-id", REQUEST.get())], body)
